import litserve as ls
from pydantic import BaseModel


class Review(BaseModel):
    text: str


class Sentiment(ls.LitAPI):
    def setup(self, device: str) -> None:
        self.good = {"good", "great"}

    def decode_request(self, request: Review) -> str:
        return request.text

    def predict(self, text: str) -> dict[str, str | float]:
        words = text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}


if __name__ == "__main__":
    server = ls.LitServer(Sentiment(), timeout=16)
    server.run(host="127.0.0.1", port=8000)
