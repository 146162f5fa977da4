"""What the doors cost: HTTP beside uvicorn and FastAPI, TLS beside none."""
