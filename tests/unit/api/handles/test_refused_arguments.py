"""The error of a codec that cannot carry a call names the argument that is the reason."""

import threading
from typing import Any

import pytest

import pyserve
from pyserve.api.handles.inputs import Use, encode_call
from pyserve.errors import SerializationError
from pyserve.serializers import ValueCodec

LOCK = threading.Lock()


class Together(ValueCodec):
    """Carries each value, but no call."""

    name = "together"

    def encode(self, value: object) -> list[Any]:
        if isinstance(value, list):
            raise SerializationError("too many at once")
        return [b""]

    def decode(self, body: object) -> object:
        return body


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "text"),
    [
        ("pickle", (LOCK,), {}, "argument 1: codec 'pickle' cannot carry this _thread.lock: "),
        ("pickle", (1, [LOCK]), {}, "argument 2: codec 'pickle' cannot carry this builtins.list: "),
        ("pickle", (1,), {"by": LOCK}, "argument 'by': codec 'pickle' cannot carry this _thread."),
        ("cloudpickle", (LOCK,), {}, "argument 1: codec 'cloudpickle' cannot carry"),
        ("json", (1, {2}), {}, "argument 2: codec 'json' cannot carry this builtins.set: "),
        ("msgpack", (), {"a": 1, "b": LOCK}, "argument 'b': codec 'msgpack' cannot carry"),
        ("proto", ("a", [1]), {}, "argument 2: codec 'proto' cannot carry this builtins.list: "),
        ("raw", (1,), {}, "argument 1: codec 'raw' cannot carry this builtins.int: "),
        ("raw", (b"", b""), {}, "codec 'raw' carries calls with one positional argument"),
    ],
)
@pytest.mark.parametrize("has_references", [False, True])
async def test_the_argument_is_named(
    handle: pyserve.DeploymentHandle,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    text: str,
    has_references: bool,
) -> None:
    monkeypatch.setattr(Use, "has_begun", has_references)
    with pytest.raises(SerializationError) as raised:
        handle.options(request_serialization=name).predict.remote(*args, **kwargs)
    assert str(raised.value).startswith(text)
    assert not isinstance(raised.value.__cause__, SerializationError)


def test_a_codec_that_can_carry_each_argument_says_why_itself() -> None:
    with pytest.raises(SerializationError, match=r"^too many at once$"):
        encode_call(Together(), (1, 2), {})
