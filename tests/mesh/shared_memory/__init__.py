"""Memory that two processes of a machine share for large bodies."""
