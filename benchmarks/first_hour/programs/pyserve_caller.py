import pyserve
from sentiment import Sentiment


async def ask(sentiment: pyserve.DeploymentHandle[Sentiment]) -> None:
    await sentiment.remote(text="good")
    await sentiment.remote(text=7)  # mistake
