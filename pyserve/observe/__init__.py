"""Logs; metrics and traces come here too."""
