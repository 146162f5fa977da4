"""The mesh's desired and actual state as plain data, and how it is read from requests."""
