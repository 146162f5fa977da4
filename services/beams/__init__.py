"""Beam search: each request holds several sequences."""
