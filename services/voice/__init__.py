"""Detects speech in audio; each stream has a detector with state of its own."""
