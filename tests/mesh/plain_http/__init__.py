"""Plain HTTP against a running mesh."""
