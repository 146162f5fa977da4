"""Batches of vLLM and SGLang, as their encoders make them, and what is passed on of them."""

from __future__ import annotations

import sys
from typing import Any

import msgpack
import pytest

from pyserve import cache
from pyserve.engine_caches import Cleared, Follower, Removed, Stored, decoded, follow
from pyserve.errors import UsageError

# SGLang, and vLLM until 2025: structs are arrays, and what is at its default is left out.
ARRAYS = [
    1.5,
    [
        ["BlockStored", [11, 12], None, [1, 2, 3, 4], 2, None],
        ["BlockStored", [13], 12, [5, 6], 2, None, "GPU"],
        ["BlockRemoved", [11]],
        ["AllBlocksCleared"],
    ],
    0,
]
# vLLM since then: structs are maps with a tag, and hashes may be bytes.
MAPS = {
    "ts": 1.5,
    "events": [
        {
            "type": "BlockStored",
            "block_hashes": [b"\x01" * 32, b"\x02" * 32],
            "parent_block_hash": None,
            "token_ids": [1, 2],
            "block_size": 1,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "group_idx": 0,
        },
        {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": 6, "medium": "CPU"},
        {"type": "BlockRemoved", "block_hashes": [b"\x01" * 32], "medium": "GPU"},
        {"type": "BlockRemoved", "block_hashes": [9], "medium": "cpu"},
        {"type": "AllBlocksCleared"},
        {"type": "OfALaterRelease", "block_hashes": [1]},
    ],
    "data_parallel_rank": 0,
}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What `pyserve.cache` is told."""
    found: list[tuple[Any, ...]] = []

    def stored(keys: Any, parent: Any = None) -> None:
        found.extend([("stored", tuple(keys), parent)] if keys else [])

    monkeypatch.setattr(cache, "stored", stored)
    monkeypatch.setattr(cache, "removed", lambda keys: found.append(("removed", tuple(keys))))
    monkeypatch.setattr(cache, "cleared", lambda: found.append(("cleared",)))
    return found


def message(number: int, batch: Any) -> list[bytes]:
    return [b"kv", number.to_bytes(8, "big"), msgpack.packb(batch)]


def test_events_are_read_from_arrays_and_from_maps() -> None:
    assert [
        Stored((11, 12), None),
        Stored((13,), 12),
        Removed((11,)),
        Cleared(),
    ] == decoded(msgpack.packb(ARRAYS))
    one, two = b"\x01" * 32, b"\x02" * 32
    assert [Stored((one, two), None), Removed((one,)), Cleared()] == decoded(msgpack.packb(MAPS))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([1.5]),
        msgpack.packb({"ts": 1.5}),
        msgpack.packb([1.5, [["BlockStored"]]]),
        msgpack.packb([1.5, [{"block_hashes": [1]}]]),
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="this is no batch"):
        decoded(payload)


def test_blocks_are_passed_on_as_a_chain(said: list[tuple[Any, ...]]) -> None:
    follower = Follower()
    follower.take(message(0, ARRAYS))
    assert [
        ("stored", (11,), None),
        ("stored", (12,), 11),
        ("stored", (13,), 12),
        ("removed", (11,)),
        ("cleared",),
    ] == said
    assert 0 == follower.gaps


def test_after_a_gap_all_is_taken_for_cleared(said: list[tuple[Any, ...]]) -> None:
    follower = Follower()
    stored = [1.5, [["BlockStored", [1], None, [], 1, None]]]
    for number in (5, 6, 8, 9):
        follower.take(message(number, stored))
    expected = [("stored", (1,), None)]
    assert [*expected * 2, ("cleared",), *expected * 2] == said
    assert 1 == follower.gaps


def test_a_message_that_cannot_be_read_is_a_gap_and_ends_nothing(
    said: list[tuple[Any, ...]],
) -> None:
    follower = Follower()
    for frames in ([b"kv"], [b"kv", b"1", b""], [b"kv", bytes(8), b"\xc1"]):
        follower.take(frames)
    follower.take(message(4, [1.5, [["AllBlocksCleared"]]]))
    assert (3, [("cleared",)] * 4) == (follower.gaps, said)


def test_the_error_without_pyzmq_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(UsageError, match=r"pip install 'pyserve\[engine-caches\]'"):
        follow("tcp://127.0.0.1:5557")
