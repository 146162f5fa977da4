"""The codec ``proto``: protobuf messages as arguments and results of plain methods.

A request is a ``pyserve.wire.v1.Call``, a response a ``google.protobuf.Any``; value.proto says
what is in them. A message arrives as its own class, so its ``_pb2`` module has to be imported
where it is read. (Methods of servicers have their own messages as bodies and no codec.)
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.struct_pb2 import Value
from google.protobuf.wrappers_pb2 import (
    BoolValue,
    BytesValue,
    DoubleValue,
    Int64Value,
    StringValue,
    UInt64Value,
)

from pyserve.errors import SerializationError
from pyserve.serializers.base import Buffer, Parts, garbled, refusal
from pyserve.wire.v1.value_pb2 import Call

MessageT = TypeVar("MessageT", bound=Message)

_URL = "type.googleapis.com/"
_INT64_END = 2**63
_UINT64_END = 2**64
_WRAPPERS = (BoolValue, BytesValue, DoubleValue, Int64Value, StringValue, UInt64Value)
_NULL = Value(null_value=0)  # type: ignore[arg-type]  # the stub wants the enum's name


class ProtoCodec:
    """Carries messages, ``None``, bool, int, float, str and bytes."""

    name = "proto"
    mesh_only = False

    def encode(self, value: object) -> Parts:
        """Return the body of one value; see ``Codec``."""
        return [_serialized(self.name, value, _packed(self.name, value))]

    def decode(self, body: Buffer) -> object:
        """Return the value of a body; see ``Codec``."""
        return _unpacked(self.name, _parsed(self.name, Any(), body))

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the body of a call's arguments; see ``Codec``."""
        call = Call(args=[_packed(self.name, value) for value in args])
        for name, value in kwargs.items():
            call.kwargs[name].CopyFrom(_packed(self.name, value))
        return [_serialized(self.name, args, call)]

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call's body; see ``Codec``."""
        call = _parsed(self.name, Call(), body)
        args = [_unpacked(self.name, value) for value in call.args]
        return args, {name: _unpacked(self.name, value) for name, value in call.kwargs.items()}


def _packed(codec: str, value: object) -> Any:
    try:
        message = value if isinstance(value, Message) else _wrapped(value)
        packed = Any(type_url=_URL + message.DESCRIPTOR.full_name)
        packed.value = message.SerializeToString()
    except (TypeError, ValueError, EncodeError) as error:
        raise refusal(codec, value, error) from error
    return packed


def _wrapped(value: object) -> Message:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return BoolValue(value=value)
    if isinstance(value, int):
        if -_INT64_END <= value < _INT64_END:
            return Int64Value(value=value)
        if 0 <= value < _UINT64_END:
            return UInt64Value(value=value)
        raise ValueError("it has more than 64 bits; use msgpack or pickle")
    if isinstance(value, float):
        return DoubleValue(value=value)
    if isinstance(value, str):
        return StringValue(value=value)
    if isinstance(value, bytes | bytearray | memoryview):
        return BytesValue(value=bytes(value))
    raise TypeError(
        "give it a protobuf message, None, a bool, int, float, str or bytes, or use another codec"
    )


def _unpacked(codec: str, packed: Any) -> object:
    name = packed.type_url.rpartition("/")[2]
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError as error:
        raise SerializationError(
            f"codec {codec!r}: the message type {name!r} is not known in this process; "
            "import the _pb2 module that defines it"
        ) from error
    message = message_factory.GetMessageClass(descriptor)()
    _parsed(codec, message, packed.value)
    if isinstance(message, _WRAPPERS):
        return message.value
    if isinstance(message, Value) and message.WhichOneof("kind") == "null_value":
        return None
    return message


def _parsed(codec: str, message: MessageT, body: Buffer) -> MessageT:
    try:
        message.ParseFromString(body if isinstance(body, bytes) else bytes(body))
    except (DecodeError, ValueError, RecursionError) as error:
        raise garbled(codec, body, error) from error
    return message


def _serialized(codec: str, value: object, message: Message) -> bytes:
    try:
        return message.SerializeToString()
    except (ValueError, EncodeError) as error:
        raise refusal(codec, value, error) from error
