"""The contract between engines and their clients, generated from ``proto/pyserve/llm/v1``."""
