"""JSON that is nested deeper than ``orjson`` writes, and what must not become of its process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import orjson
import pydantic
import pytest

from pyserve.replica.http.converters import parse_json
from pyserve.replica.http.values import to_json
from pyserve.serializers.json import in_parts

# As deep as orjson reads, and less, around each step.
DEPTHS = (15, 16, 17, 31, 32, 33, 254, 255, 256, 500, 1000, 1023)
# In a process of its own, which an overflow of orjson's buffer aborts.
_LONG_NUMBERS_IN_LISTS = """
import pydantic
from pyserve.replica.http.values import to_json

class Loose(pydantic.BaseModel):
    value: object

for digits in range(3000, 4300):
    value = 10**digits
    for _ in range(200):
        value = [value]
    assert 2 * 200 + digits + 1 == len(to_json(value))
    if digits % 100 == 0:
        to_json([Loose(value=value)])
print("written")
"""


def nested(levels: int, inner: bytes = b"") -> bytes:
    return b"[" * levels + inner + b"]" * levels


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "text",
    [
        nested,
        lambda depth: b'{"a":' * depth + b"null" + b"}" * depth,
        lambda depth: b'[1,{"a":' * (depth // 2) + b"2.5" + b'},"b"]' * (depth // 2),
        # It has to be written in another way, which has to go as deep.
        lambda depth: nested(min(depth, 900), str(2**70).encode()),
        lambda depth: (
            b'[-18446744073709551617,{"a":' * min(depth // 2, 440)
            + b"0"
            + b"}]" * min(depth // 2, 440)
        ),
    ],
)
def test_what_is_read_is_written(text: Any, depth: int) -> None:
    body = text(depth)
    assert body == to_json(parse_json(body))


@pytest.mark.parametrize("depth", [20, 300])
def test_parts_are_written_as_ever(depth: int) -> None:
    value: Any = {1: {2}, "m": Loose(value=(float("nan"),))}
    expected: Any = {"1": [2], "m": {"value": [None]}}
    for _ in range(depth):
        value, expected = (value, {"x": 1}), [expected, {"x": 1}]
    assert expected == json.loads(to_json(value))


class Loose(pydantic.BaseModel):
    value: Any


def test_what_is_not_deep_is_no_copy() -> None:
    value = {"a": [1, {"b": (2, 3)}]}
    assert in_parts(value, orjson.dumps) is value


def test_what_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring += [ring, ring]
    with pytest.raises(TypeError, match="holds itself"):
        to_json(ring)


@dataclass
class Node:
    child: Any
    _hidden: int = 1


def test_dataclasses_go_as_deep() -> None:
    value: Any = 2**70
    for _ in range(300):
        value = Node(value)
    assert b'{"child":' * 300 + str(2**70).encode() + b"}" * 300 == to_json(value)


def test_depth_of_something_else_is_refused() -> None:
    value: object = None
    for _ in range(300):
        value = Loose.model_construct(value=value)
    with pytest.raises(TypeError, match="the result is not JSON"):
        to_json(value)


def test_long_numbers_in_lists_leave_the_process_whole() -> None:
    """orjson has room for 64 brackets behind a piece of JSON: a client's text aborted a replica."""
    done = subprocess.run(
        [sys.executable, "-c", _LONG_NUMBERS_IN_LISTS],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (0, "written\n") == (done.returncode, done.stdout), done.stderr
