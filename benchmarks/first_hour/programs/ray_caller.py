from ray.serve.handle import DeploymentHandle
from sentiment import Review, Sentiment


async def ask(sentiment: DeploymentHandle[Sentiment]) -> None:
    await sentiment.score.remote(Review(text="good"))
    await sentiment.score.remote(7)  # mistake
