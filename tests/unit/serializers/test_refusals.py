"""A value or bytes that a codec cannot handle give a SerializationError, and nothing else."""

import random
import struct
from contextlib import suppress
from typing import Any

import msgpack
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.errors import SerializationError
from pyserve.serializers import codec, join
from pyserve.wire.v1.mesh_pb2 import Hello
from tests.unit.serializers.examples import CARRIED, NAMES

# `raw` reads everything.
READERS = [name for name in NAMES if name != "raw"]
# Pickles are read inside the mesh only, and bodies garbled at random would run random code.
OPEN_READERS = [name for name in READERS if not codec(name).mesh_only]
WITH_BUFFERS = {
    "json": {"a": [1.5, "text", None]},
    "msgpack": {"a": numpy.arange(5000.0), "b": [1, 2**80, numpy.arange(3)]},
    "pickle": {"a": numpy.arange(5000.0), "b": [1, 2**80, numpy.arange(3)]},
    "cloudpickle": {"a": numpy.arange(5000.0), "b": lambda: 1},
    "proto": Hello(application="default", pid=7),
}


def iter_of_nothing():
    yield from ()


def decode_or_refuse(name, body):
    """Any other exception fails the test."""
    for read in (codec(name).decode, codec(name).decode_call):
        with suppress(SerializationError):
            read(body)


@pytest.mark.parametrize("name", OPEN_READERS)
@given(body=st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(name, body):
    decode_or_refuse(name, body)


@pytest.mark.parametrize("name", OPEN_READERS)
@given(data=st.data())
def test_garbled_bodies_are_read_or_refused(name, data):
    value = data.draw(CARRIED[name] | st.just(WITH_BUFFERS[name]))
    body = bytearray(join(codec(name).encode(value)))
    head = min(len(body), 120)
    for _ in range(data.draw(st.integers(1, 5))):
        if head:
            body[data.draw(st.integers(0, head - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(name, bytes(body))


@pytest.mark.parametrize("name", READERS)
def test_bodies_cut_off_are_refused(name):
    """Wherever the cut is. A cut proto may be a shorter message, which protobuf cannot tell."""
    body = join(codec(name).encode(WITH_BUFFERS[name]))
    cuts = range(len(body)) if len(body) < 1000 else [*range(500), *range(500, len(body), 997)]
    for cut in cuts:
        if name == "proto":
            decode_or_refuse(name, body[:cut])
        else:
            with pytest.raises(SerializationError):
                codec(name).decode(body[:cut])


@pytest.mark.parametrize("name", ["pickle", "cloudpickle"])
def test_a_garbled_head_of_a_pickle_is_refused(name):
    """Unless it still says the same: the padding behind the pickle may be read with it."""
    body = join(codec(name).encode(WITH_BUFFERS["pickle"]))
    draw = random.Random(7)
    for _ in range(300):
        garbled = bytearray(body)
        place = draw.randrange(16 + 2 * 8)
        garbled[place] ^= draw.randrange(1, 256)
        with suppress(SerializationError):
            value: Any = codec(name).decode(bytes(garbled))
            assert [1, 2**80] == value["b"][:2]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff" * 40, b"[[1], {}"])
def test_foreign_bodies_are_refused(name, body):
    if name == "proto" and body == b"":  # An empty message is one.
        assert ([], {}) == codec(name).decode_call(body)
        return
    with pytest.raises(SerializationError):
        codec(name).decode_call(body)


@pytest.mark.parametrize("name", ["json", "msgpack", "pickle", "cloudpickle"])
@pytest.mark.parametrize("value", [1, [], [[1]], [1, {}], [[1], [2]], [[], {}, {}]])
def test_values_that_are_no_calls_are_refused(name, value):
    body = join(codec(name).encode(value))
    with pytest.raises(SerializationError, match="body of a call"):
        codec(name).decode_call(body)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("json", {1: 2}, "builtins.dict.*key must be str"),
        ("json", {1, 2}, "set is not JSON; use msgpack or pickle"),
        ("json", b"bytes", "bytes is not JSON"),
        ("json", 2**64, "64-bit"),
        ("json", numpy.array([1j]), "complex is not JSON"),
        ("msgpack", {1, 2}, "it has a set; use pickle"),
        ("msgpack", [object()], "it has a object; use pickle"),
        ("msgpack", numpy.array([{}]), "array of object; use pickle"),
        ("msgpack", numpy.zeros(2, "i4,f8"), "use pickle"),
        ("msgpack", [1 << 600_000], "an integer of"),
        ("proto", [1], "builtins.list: give it a protobuf message"),
        ("proto", 2**64, "64 bits"),
        ("raw", "text", "builtins.str: give it bytes"),
        ("raw", numpy.arange(10)[::2], "not contiguous"),
        ("pickle", iter_of_nothing(), "builtins.generator: TypeError"),
        ("cloudpickle", iter_of_nothing(), "builtins.generator: TypeError"),
    ],
)
def test_values_that_cannot_be_carried_are_named(name, value, text):
    with pytest.raises(SerializationError, match=text) as caught:
        codec(name).encode(value)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["json", "msgpack", "pickle", "cloudpickle"])
def test_values_that_contain_themselves_or_are_too_deep_are_refused(name):
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError):
        codec(name).encode(deep)


def test_raw_takes_one_argument_and_no_name():
    calls: list[Any] = [((), {}), ((b"a", b"b"), {}), ((b"a",), {"b": b"b"})]
    for args, kwargs in calls:
        with pytest.raises(SerializationError, match="one positional argument"):
            codec("raw").encode_call(args, kwargs)


def test_unknown_messages_ask_for_their_module():
    body = b"\x0a\x0fexample.Unknown"
    with pytest.raises(SerializationError, match="import the _pb2 module"):
        codec("proto").decode(body)


def spread(head: bytes, rest: bytes) -> bytes:
    """A msgpack body with far arrays, which start at the next multiple of 64 bytes."""
    body = b"\x05" + len(head).to_bytes(4, "big") + head
    body += bytes(-(5 + len(body)) % 64) + rest
    return b"\xc9" + (len(body) - 1).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("dtype", "shape", "offset"),
    [
        ("<f8", [2], 0),  # beyond the end
        ("<f8", [1], 8),
        ("<f8", [1], -8),
        ("<f8", [-1], 0),
        ("<f8", [2**62, 2**62], 0),
        ("<f8", [0, 2**63], 0),
        ("<f8", [1] * 100, 0),
        ("<f8", 1, 0),
        ("<f8", [1.0], 0),
        ("|O", [1], 0),
        ("<V8", [1], 0),
        ("i4,f4", [1], 0),
        ("<M8[century]", [1], 0),
        ("<U999999999", [1], 0),
        (7, [1], 0),
        ("<f8", [1], None),
    ],
)
def test_hostile_arrays_are_refused(dtype, shape, offset):
    """The body of 8 bytes decides what there is, whatever the head says."""
    far = msgpack.packb(msgpack.ExtType(2, msgpack.packb([dtype, shape, offset])))
    with pytest.raises(SerializationError):
        codec("msgpack").decode(spread(far, bytes(8)))
    head = msgpack.packb([dtype, shape, b""])
    near = msgpack.ExtType(1, len(head).to_bytes(2, "big") + head + bytes(7))
    with pytest.raises(SerializationError):
        codec("msgpack").decode(msgpack.packb(near))


def test_far_arrays_outside_of_a_spread_body_are_refused():
    with pytest.raises(SerializationError, match="extension type 2"):
        codec("msgpack").decode(msgpack.packb(msgpack.ExtType(2, msgpack.packb(["<f8", [1], 0]))))


def test_large_integers_are_bounded():
    """As keys they could be chosen to collide, in quadratic time."""
    keys = {k * (2**61 - 1) << 10: None for k in range(10_000)}
    body = join(codec("msgpack").encode(keys))
    with pytest.raises(SerializationError, match="integers beyond 64 bits"):
        codec("msgpack").decode(body)


def test_claims_of_huge_lengths_cost_nothing():
    """A body of some bytes that says it has 2**32 items is refused before any is made."""
    for mark in (0xDD, 0xDF, 0xDB, 0xC6, 0xC9):
        with pytest.raises(SerializationError):
            codec("msgpack").decode(bytes((mark,)) + b"\xff" * 4 + b"\x01")
    for count in (1, 2**31):
        with pytest.raises(SerializationError):
            codec("pickle").decode(struct.pack("<IIQ", 1, count, 2**62) + bytes(64))


@pytest.mark.parametrize("body", [b"1e999", b'{"a": [-1E+400]}', b"1" + b"0" * 400 + b".0"])
def test_json_has_no_numbers_beyond_a_float(body):
    with pytest.raises(SerializationError, match="infinity"):
        codec("json").decode(body)


def test_json_keeps_long_numbers_and_texts_that_look_like_them():
    body = b'[1e308, "1e999", 1' + b"0" * 40 + b"]"
    assert codec("json").decode(body) == [1e308, "1e999", 10**40]
