"""Handwritten digits: a real classifier behind a ``.proto``, with a demonstration."""
