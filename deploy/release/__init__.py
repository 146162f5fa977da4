"""Programs for the workflow that makes releases."""
