"""The caches of engines for language models, as `pyserve.cache` reports them.

vLLM and SGLang publish what happens in their caches of prefixes: blocks stored and removed, all
cleared. ``follow`` subscribes to an engine of this replica and passes that on. Blocks are known
by the engine's own hashes, each of which stands for a block and all before it; whoever calls names
them with ``cache_keys``, computed as the engine does.

Format: ZeroMQ messages of three frames (topic, a number of 8 bytes, batch); the batch is
MessagePack, of arrays in SGLang and in older releases of vLLM, of maps in newer ones
(`vllm/distributed/kv_events.py`, `sglang/srt/disaggregation/kv_events.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack

from pyserve import cache
from pyserve.errors import UsageError

Hash: TypeAlias = bytes | int


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks are in the engine's memory, one after the other.

    Attributes:
        blocks: Their hashes.
        parent: The hash of the block before the first; ``None``: they begin a prompt.
    """

    blocks: tuple[Hash, ...]
    parent: Hash | None


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks are not there any more.

    Attributes:
        blocks: Their hashes.
    """

    blocks: tuple[Hash, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is there any more."""


Event: TypeAlias = Stored | Removed | Cleared
Frames: TypeAlias = Sequence[bytes]

# The fields of events that are arrays, after the name of the event.
_FIELDS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}
_NUMBER_BYTES = 8


def decoded(payload: bytes) -> list[Event]:
    """Return the events of one batch.

    Events of later releases are left out, and so are blocks outside the device's memory: an engine
    says of such ones when they enter another tier, which is no hit yet.

    Raises:
        ValueError: The bytes are no batch.
    """
    try:
        batch = msgpack.unpackb(payload, strict_map_key=False)
        raw = batch["events"] if isinstance(batch, dict) else batch[1]
        found = [_event(each) for each in raw]
    except (LookupError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"this is no batch of an engine's cache events: {error!r}") from error
    return [event for event in found if event is not None]


def _event(raw: Any) -> Event | None:
    if isinstance(raw, dict):
        name, fields = raw["type"], raw
    else:
        name = raw[0]
        # The last fields may be left out where they have their defaults.
        fields = dict(zip(_FIELDS.get(name, ()), raw[1:], strict=False))
    if (fields.get("medium") or "GPU").upper() != "GPU":
        return None
    match name:
        case "BlockStored":
            blocks = tuple(fields["block_hashes"])
            return Stored(blocks, fields.get("parent_block_hash"))
        case "BlockRemoved":
            return Removed(tuple(fields["block_hashes"]))
        case "AllBlocksCleared":
            return Cleared()
    return None


class Follower:
    """Passes the batches of one engine on, in order. It does no I/O.

    After a gap in the numbers, or a batch that cannot be read, it is unknown what the engine has:
    all is taken for cleared, and what is stored from then on is reported again.

    Attributes:
        gaps: How often that was so.
    """

    def __init__(self) -> None:
        self.gaps = 0
        self._next: int | None = None

    def take(self, frames: Frames) -> None:
        """Pass one message on.

        Args:
            frames: Topic, number and batch, as they came.
        """
        number, events = self._read(frames)
        if number is None or (self._next is not None and number != self._next):
            self.gaps += 1
            cache.cleared()
        self._next = None if number is None else number + 1
        for event in events:
            _pass_on(event)

    def _read(self, frames: Frames) -> tuple[int | None, list[Event]]:
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            return None, []
        try:
            return int.from_bytes(frames[1], "big"), decoded(frames[2])
        except ValueError:
            return None, []


def _pass_on(event: Event) -> None:
    match event:
        case Stored(blocks, parent) if parent is None and blocks:
            # The first block stands alone, the others follow it.
            cache.stored(blocks[:1])
            cache.stored(blocks[1:], parent=blocks[0])
        case Stored(blocks, parent):
            cache.stored(blocks, parent=parent)
        case Removed(blocks):
            cache.removed(blocks)
        case Cleared():
            cache.cleared()


def follow(endpoint: str, topic: str = "") -> Callable[[], None]:
    """Pass on what an engine publishes, in a thread of its own; return what ends that.

    Args:
        endpoint: Where the engine publishes, such as ``tcp://127.0.0.1:5557``.
        topic: As the engine's configuration names it.

    Raises:
        UsageError: pyzmq is not installed.
    """
    try:
        import zmq
    except ImportError as error:
        raise UsageError(
            "following an engine's cache needs pyzmq: pip install 'pyserve[engine-caches]'"
        ) from error
    context = zmq.Context.instance()
    socket = context.socket(zmq.SUB)
    socket.setsockopt_string(zmq.SUBSCRIBE, topic)
    socket.connect(endpoint)
    stop, stopped = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    name = f"inproc://pyserve-engine-caches-{id(socket)}"
    stopped.bind(name)
    stop.connect(name)

    def receive() -> None:
        follower = Follower()
        while True:
            ready, _, _ = zmq.select([socket, stopped], [], [])
            if stopped in ready:
                break
            follower.take(socket.recv_multipart())
        socket.close(linger=0)
        stopped.close(linger=0)

    thread = threading.Thread(target=receive, name="pyserve-engine-caches", daemon=True)
    thread.start()

    def end() -> None:
        stop.send(b"")
        thread.join()
        stop.close(linger=0)

    return end
