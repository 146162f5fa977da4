"""The rules of the house, as tests: what a reviewer would otherwise have to remember."""
