"""The contract of engines with whoever calls them, generated from ``proto/pyserve/llm/v1``."""
