"""Drivers: admission of their deploys, and reports of the progress."""
