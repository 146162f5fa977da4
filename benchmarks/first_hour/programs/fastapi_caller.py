from fastapi.testclient import TestClient
from sentiment import app


def ask() -> None:
    client = TestClient(app)
    client.post("/", json={"text": "good"})
    client.post("/", json={"text": 7})  # mistake
