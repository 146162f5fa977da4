"""A value arrives as it was sent."""

import datetime
import pickle
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyserve.serializers import codec, join, size_bytes
from pyserve.wire.v1.control_pb2 import StatusRequest
from pyserve.wire.v1.mesh_pb2 import Hello
from tests.unit.serializers.examples import (
    CARRIED,
    NAMES,
    Point,
    Reading,
    arrays,
    call_round_trip,
    round_trip,
    same_array,
)


@pytest.mark.parity("S-78")
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_values_arrive_as_they_were(name, data):
    value = data.draw(CARRIED[name])
    assert value == round_trip(name, value)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "raw"])
@given(data=st.data())
def test_calls_arrive_with_positions_and_names(name, data):
    args = data.draw(st.lists(CARRIED[name], max_size=3))
    kwargs = data.draw(st.dictionaries(st.text("abc_", min_size=1), CARRIED[name], max_size=3))
    assert (args, kwargs) == call_round_trip(name, *args, **kwargs)


@given(st.binary(max_size=500))
def test_raw_carries_one_argument(data):
    assert ([data], {}) == call_round_trip("raw", data)


@pytest.mark.parity("S-78")
@pytest.mark.parametrize("name", ["pickle", "cloudpickle", "msgpack"])
@given(array=arrays())
@settings(max_examples=60)
def test_arrays_arrive_with_type_shape_and_order_of_axes(name, array):
    received = round_trip(name, {"a": [array, 1], "b": array})
    if array.ndim == 0 and name == "msgpack":  # Documented: scalars.
        assert array == received["b"]
        return
    assert same_array(array, received["a"][0])
    assert same_array(array, received["b"])


@pytest.mark.parametrize("name", ["pickle", "cloudpickle", "msgpack"])
def test_large_arrays_are_read_only_views_of_the_body(name):
    """No copy on the way out either: the parts are the arrays themselves."""
    array = numpy.arange(100_000, dtype="f8")
    parts = codec(name).encode([array, b"between", array[:50_000]])
    addresses = [numpy.frombuffer(part, "u1").ctypes.data for part in parts]
    assert array.ctypes.data in addresses

    body = numpy.frombuffer(join(parts), "u1")
    received: Any = codec(name).decode(memoryview(body))  # type: ignore[arg-type]
    first, _, second = received
    for view in (first, second):
        assert numpy.shares_memory(view, body)
        assert not view.flags.writeable
        offset = view.ctypes.data - body.ctypes.data
        assert offset % 64 == 0


@pytest.mark.parametrize("name", ["pickle", "cloudpickle"])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_large_bytes_are_not_copied_while_they_are_pickled(name, kind):
    """They arrive as what they were, which takes one copy."""
    data = kind(b"0123456789" * 10_000)
    address = numpy.frombuffer(data, "u1").ctypes.data
    for parts in (codec(name).encode(data), codec(name).encode_call((data,), {"b": data})):
        assert address in [numpy.frombuffer(part, "u1").ctypes.data for part in parts]
    received = round_trip(name, data)
    assert (kind, data) == (type(received), received)
    assert ([data, 1], {"b": data}) == call_round_trip(name, data, 1, b=data)


def test_small_pieces_are_one_part():
    """Each part costs; only large ones are worth one of their own."""
    small = [numpy.arange(10)] * 20
    assert 1 == len(codec("pickle").encode(small))
    assert 1 == len(codec("msgpack").encode(small))


def test_the_size_of_parts_is_counted_in_bytes():
    array = numpy.arange(100_000, dtype="f8")
    parts = codec("pickle").encode(array)
    assert len(join(parts)) == size_bytes(parts)


@pytest.mark.parametrize("dtype", ["?", "i4", "f4", "c16"])
def test_scalars_of_numpy_arrive_as_they_were(dtype):
    """But `float64`, which is a Python float and arrives as one."""
    value = numpy.dtype(dtype).type(1)
    received = round_trip("msgpack", value)
    assert (type(value), value) == (type(received), received)


def test_dates_with_a_zone_arrive_in_utc():
    """msgpack's timestamp has no zone."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    for year in (1, 1960, 2026, 9999):
        moment = datetime.datetime(year, 5, 4, 3, 2, 1, 999_999, tzinfo=zone)
        received = round_trip("msgpack", moment)
        assert moment == received
        assert datetime.UTC == received.tzinfo


def test_json_turns_what_it_does_not_know_into_what_it_does():
    value = {
        "array": numpy.arange(4).reshape(2, 2).T,
        "scalar": numpy.float32(0.5),
        "dataclass": Reading("a", 1.5),
        "named": Point(1, 2),
        "tuple": (1, 2),
        "nan": float("nan"),
    }
    assert {
        "array": [[0, 2], [1, 3]],
        "scalar": 0.5,
        "dataclass": {"sensor": "a", "value": 1.5},
        "named": [1, 2],
        "tuple": [1, 2],
        "nan": None,
    } == round_trip("json", value)


def test_messages_arrive_as_their_own_class():
    hello = Hello(application="default", pid=7)
    assert hello == round_trip("proto", hello)
    args, kwargs = call_round_trip("proto", hello, 3, other=StatusRequest())
    assert [hello, 3] == args
    assert {"other": StatusRequest()} == kwargs


def test_what_plain_pickle_refuses_goes_by_value():
    """S-78: lambdas and local classes, with pickle as the chosen codec."""

    class Local:
        def __init__(self) -> None:
            self.double = lambda x: 2 * x

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Local())
    received = round_trip("pickle", Local())
    assert 4 == received.double(2)
    assert "Local" == type(received).__name__


@pytest.mark.slow
def test_classes_of_a_script_go_by_value():
    """``__main__`` of the reader is another module, so a reference would find nothing there."""
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from pyserve.serializers import codec, join\n"
        "class Mine:\n"
        "    def answer(self): return 42\n"
        "sys.stdout.buffer.write(join(codec('pickle').encode([Mine(), Mine])))\n"
    )
    body = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, timeout=30
    ).stdout
    received: Any = codec("pickle").decode(body)
    value, cls = received
    assert 42 == value.answer() == cls().answer()


def test_numpy_is_not_imported_by_the_codecs():
    """The package stands without numpy, and a process that sends no array does not load it."""
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from pyserve.serializers import codec, join, names\n"
        "for name in ('json', 'msgpack', 'pickle', 'proto'):\n"
        "    c = codec(name)\n"
        "    assert ([1], {}) == c.decode_call(join(c.encode_call((1,), {})))\n"
        "assert 'numpy' not in sys.modules\n"
        "assert 'cloudpickle' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_json_reads_whole_numbers_with_all_their_digits(kind):
    assert [2**64 + 1, 0.5] == codec("json").decode(kind(b"[18446744073709551617, 0.5]"))
