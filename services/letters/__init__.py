"""A small character-level language model with a KV cache."""
