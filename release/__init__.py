"""What the workflow of releases runs."""
