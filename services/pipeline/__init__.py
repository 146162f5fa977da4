"""A film in three stages, as a whole and chunk by chunk: what streaming and references gain."""
