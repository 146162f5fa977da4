from fastapi import FastAPI
from pydantic import BaseModel


class Review(BaseModel):
    text: str


class Sentiment:
    def __init__(self) -> None:
        self.good = {"good", "great"}

    def score(self, text: str) -> dict[str, str | float]:
        words = text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}


app = FastAPI()
sentiment = Sentiment()


@app.post("/", summary="Say how a review sounds")
def score(review: Review) -> dict[str, str | float]:
    return sentiment.score(review.text)
