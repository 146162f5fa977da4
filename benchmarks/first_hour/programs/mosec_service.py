import msgspec
from mosec import Server, ValidationError, Worker


class Review(msgspec.Struct):
    text: str


class Sentiment(Worker):
    def __init__(self) -> None:
        self.good = {"good", "great"}

    def deserialize(self, data: bytes) -> Review:
        try:
            return msgspec.json.decode(data, type=Review)
        except msgspec.ValidationError as error:
            raise ValidationError(error) from error

    def forward(self, data: Review) -> dict[str, str | float]:
        words = data.text.split()
        score = len(self.good.intersection(words)) / len(words)
        return {"label": "positive" if score else "negative", "score": score}


if __name__ == "__main__":
    server = Server()
    server.append_worker(Sentiment, num=1)
    server.run()
