"""One replica that writes what it is told, and answers when it is let go."""

from pathlib import Path

import pyserve
from tests.support.waiting import eventually


@pyserve.deployment
class Talking:
    async def __call__(self, text: str, until: str = "") -> str:
        """Return the text, once there is a file of that name."""
        print(text, flush=True)
        if until:
            await eventually(Path(until).exists)
        return text


app = Talking.bind()
