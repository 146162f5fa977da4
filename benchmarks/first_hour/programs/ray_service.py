from fastapi import FastAPI
from pydantic import BaseModel
from ray import serve

api = FastAPI()


class Review(BaseModel):
    text: str


@serve.deployment(max_ongoing_requests=16)
@serve.ingress(api)
class Sentiment:
    def __init__(self) -> None:
        self.good = {"good", "great"}

    @api.post("/")
    def score(self, review: Review) -> dict[str, str | float]:
        words = review.text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}


app = Sentiment.bind()
