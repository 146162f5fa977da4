"""Answers that are files, which the native side reads."""
