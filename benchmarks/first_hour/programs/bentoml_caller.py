import bentoml
from sentiment import Sentiment


@bentoml.service
class Front:
    sentiment = bentoml.depends(Sentiment)

    @bentoml.api
    def ask(self) -> None:
        self.sentiment.score(text="good")
        self.sentiment.score(text=7)  # mistake
