"""How releases are made: the workflow, and what it runs."""
