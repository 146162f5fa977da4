"""What launchers start in these tests."""

import asyncio
import os
from pathlib import Path

import pyserve


@pyserve.deployment
class Plain:
    """Serves, and ends when it is told to."""

    def __call__(self) -> int:
        return os.getpid()


@pyserve.deployment(graceful_shutdown_timeout_s=0.2)
class Lingering:
    """Serves, and does not come to an end."""

    async def aclose(self) -> None:
        print("lingers", flush=True)
        await asyncio.Event().wait()


@pyserve.deployment
class Speaking:
    """Says one thing when it is constructed."""

    def __init__(self) -> None:
        print("my last words", flush=True)


@pyserve.deployment
class Telling:
    """Says what it was given."""

    def __init__(self) -> None:
        print(f"{os.environ['COLOUR']}, {Path('note.txt').read_text()}", flush=True)


@pyserve.deployment
class Greedy:
    """Takes more memory than it was given."""

    def __init__(self) -> None:
        self.taken = [bytearray(10_000_000) for _ in range(100)]


@pyserve.deployment
class Ganged:
    """Says which of its gang it is."""

    def __init__(self) -> None:
        gang = pyserve.get_replica_context().gang_context
        assert gang is not None
        members = sorted(gang.member_replica_ids)
        print(f"{gang.rank} of {gang.world_size} in {gang.gang_id}, with {members}", flush=True)

    def __call__(self) -> int:
        return os.getpid()


plain = Plain.bind()
ganged = Ganged.bind()
greedy = Greedy.bind()
telling = Telling.bind()
lingering = Lingering.bind()
speaking = Speaking.bind()
