"""OpenAI's API in Python, for calls by handles: requests to the engine's, deltas to answers.

The ingress does this for HTTP, natively.
"""
