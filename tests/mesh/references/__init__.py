"""References between real processes."""
