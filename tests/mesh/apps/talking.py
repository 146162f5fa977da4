"""One replica that writes what it is told, and answers after a while."""

import asyncio

import pyserve


@pyserve.deployment
class Talking:
    async def __call__(self, text: str, delay_s: float = 0.0) -> str:
        print(text, flush=True)
        await asyncio.sleep(delay_s)
        return text


app = Talking.bind()
