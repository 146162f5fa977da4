"""Pages for users, executed."""
