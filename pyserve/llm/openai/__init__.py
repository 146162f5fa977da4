"""OpenAI's API in Python, for calls through handles.

It turns requests into an engine's messages, and deltas into answers. For HTTP, the ingress does the
same natively.
"""
