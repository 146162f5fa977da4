"""Replicas that write while they start and while they serve, each step when a file says so."""

import os
import sys
import time
from pathlib import Path

import pyserve

STEPS = ("10%", "50%", "99%")


def await_step(name: str) -> None:
    """Wait until the test has made a file of that name."""
    folder = Path(os.environ["CHATTY_STEPS"])
    while not (folder / name).exists():
        time.sleep(0.01)


@pyserve.deployment
class Chatty:
    """Prints five lines in its constructor, while bars are drawn."""

    def __init__(self) -> None:
        for number in range(5):
            print(f"line {number} of five")
            # Longer than it takes to redraw the bars.
            time.sleep(0.15)

    def __call__(self) -> str:
        return "said"


@pyserve.deployment
class Loading:
    """Writes its progress over and over in the same row, as bars do."""

    def __init__(self) -> None:
        for step in STEPS:
            sys.stderr.write(f"\rweights {step}")
            sys.stderr.flush()
            await_step(step)
        sys.stderr.write("\rweights 100%\n")
        await_step("constructed")

    def __call__(self) -> str:
        for step in STEPS:
            sys.stderr.write(f"\ranswer {step}")
            sys.stderr.flush()
            await_step(f"answer {step}")
        sys.stderr.write("\ranswer 100%\n")
        return "said"


@pyserve.deployment
class Broken:
    """Cannot be constructed, for a reason that lies in another exception."""

    def __init__(self) -> None:
        try:
            pyserve.get_deployment_handle("Nobody", "nowhere").remote().result(timeout_s=5)
        except Exception as error:
            raise ValueError("the weights are missing") from error


app = Chatty.bind()
loading = Loading.bind()
broken = Broken.bind()
