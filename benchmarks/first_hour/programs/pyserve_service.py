import pyserve


@pyserve.deployment(max_ongoing_requests=16)
class Sentiment:
    def __init__(self) -> None:
        self.good = {"good", "great"}

    def __call__(self, *, text: str) -> dict[str, str | float]:
        words = text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}
