"""The interface of codecs, which turn values into the body of a message and back.

``pickle`` and ``msgpack`` share the form of a body with buffers behind a head. The head describes
the value and refers to the buffers, which follow it in order. Each begins at a multiple of 64 bytes
from the start of the body (a cache line, and what vector units want), so that arrays over a mapped
body are aligned. Nothing is copied in either direction, unless a buffer is small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard

from pyserve.errors import SerializationError

Buffer: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = list[Buffer]
"""A body in parts, sent one after the other; only large parts are worth one of their own."""

PART_BYTES_MIN = 64 * 1024
"""Smaller pieces of a body are joined: the native half borrows parts from this size on if they
cannot be written."""


class Codec(Protocol):
    """One way to carry values; its name is the gRPC content-subtype.

    Attributes:
        name: Lower case, as in ``application/grpc+<name>``.
        mesh_only: Decoding runs code of the sender, so it is honoured only between processes
            that have proven the mesh token.
    """

    name: str
    mesh_only: bool

    def encode(self, value: object) -> Parts:
        """Return the body of one value.

        Raises:
            SerializationError: The codec cannot carry it; the text names codec and type.
        """

    def decode(self, body: Buffer) -> object:
        """Return the value of a body; arrays may be views of ``body``.

        Raises:
            SerializationError: The body is not this codec's.
        """

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the body of a call's arguments, by default that of ``[args, kwargs]``."""

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call's body.

        Raises:
            SerializationError: The body is not that of a call.
        """


class ValueCodec(ABC):
    """A codec that can carry lists and dicts, so that a call is the value ``[args, kwargs]``.

    The base of ready codecs, and of users' own: ``name``, ``encode`` and ``decode`` are left.
    """

    name: str
    mesh_only: bool = False

    @abstractmethod
    def encode(self, value: object) -> Parts:
        """Return the body of one value; see ``Codec``."""

    @abstractmethod
    def decode(self, body: Buffer) -> object:
        """Return the value of a body; see ``Codec``."""

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the body of ``[args, kwargs]``."""
        return self.encode([args, kwargs])

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call's body; see ``Codec``."""
        value = self.decode(body)
        if _is_call(value):
            return list(value[0]), value[1]
        raise SerializationError(
            f"codec {self.name!r}: the body of a call is [[arguments], {{name: argument}}], "
            f"not {_outline(value)}"
        )


def refusal(codec: str, value: object, reason: object) -> SerializationError:
    """Return the error of a codec that cannot carry a value."""
    kind = type(value)
    return SerializationError(
        f"codec {codec!r} cannot carry this {kind.__module__}.{kind.__qualname__}: {reason}"
    )


def garbled(codec: str, body: Buffer, reason: object) -> SerializationError:
    """Return the error of a codec that cannot read a body."""
    size = memoryview(body).nbytes
    return SerializationError(f"codec {codec!r} cannot read a body of {size} bytes: {reason}")


def size_bytes(parts: Parts) -> int:
    """Return the length of a body."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


def join(parts: Parts) -> bytes:
    """Return a body in one piece; a copy unless it is one ``bytes`` already."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    return b"".join(parts)


def joined_small(parts: Parts) -> Parts:
    """Return the same body with neighbouring small parts joined."""
    result: Parts = []
    small: Parts = []
    for part in parts:
        if size_bytes([part]) < PART_BYTES_MIN:
            small.append(part)
            continue
        if small:
            result.append(join(small))
            small = []
        result.append(part)
    if small or not result:
        result.append(join(small))
    return result


def _is_call(value: object) -> TypeGuard[Sequence[Any]]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    args, kwargs = value
    are_arguments = isinstance(args, list | tuple) and isinstance(kwargs, dict)
    return are_arguments and all(isinstance(key, str) for key in kwargs)


def _outline(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


ALIGNMENT_BYTES = 64


def aligned(offset: int) -> int:
    """Return the first multiple of 64 that is not below ``offset``."""
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def lay_out(head: bytes, buffers: Sequence[memoryview]) -> Parts:
    """Return the body of a head and its buffers, which are ``bytes``-like views of one axis."""
    parts: Parts = [head]
    end = len(head)
    for buffer in buffers:
        start = aligned(end)
        if start > end:
            parts.append(bytes(start - end))
        parts.append(buffer)
        end = start + buffer.nbytes
    return joined_small(parts)


def cut(body: memoryview, head_end: int, sizes: Sequence[int]) -> list[memoryview]:
    """Return read-only views of the buffers behind a head that ends at ``head_end``.

    Raises:
        ValueError: They do not fit the body exactly.
    """
    views = []
    end = head_end
    for size in sizes:
        start = aligned(end)
        end = start + size
        views.append(body[start:end])
    if end != body.nbytes:
        raise ValueError(f"its buffers end at {end}")
    return views


def flat(body: Buffer) -> memoryview:
    """Return a read-only view of a body's bytes."""
    view = memoryview(body)
    if view.ndim != 1 or view.format != "B":
        view = view.cast("B")
    return view.toreadonly()


# The codec `raw`: the body is the value, bytes without any structure.


class RawCodec:
    """Carries one object with a contiguous buffer; what arrives is a read-only ``memoryview``.

    A call has one positional argument and none by name.
    """

    name = "raw"
    mesh_only = False

    def encode(self, value: object) -> Parts:
        """Return the bytes of ``value``, not copied.

        Raises:
            SerializationError: It has no contiguous buffer.
        """
        if isinstance(value, bytes):
            return [value]
        try:
            view = memoryview(value)  # type: ignore[arg-type]  # the call checks what it is
        except TypeError as error:
            raise refusal(self.name, value, "give it bytes, or use another codec") from error
        if not view.c_contiguous:
            raise refusal(self.name, value, "its bytes are not contiguous; copy it first")
        return [view.cast("B")]

    def decode(self, body: Buffer) -> memoryview:
        """Return the body."""
        return flat(body)

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the bytes of the only argument.

        Raises:
            SerializationError: There is another number of arguments, or it has no buffer.
        """
        if len(args) != 1 or kwargs:
            named = f" and {sorted(kwargs)}" if kwargs else ""
            raise SerializationError(
                f"codec 'raw' carries calls with one positional argument, not {len(args)}{named}; "
                "use msgpack or pickle"
            )
        return self.encode(args[0])

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the body as the only argument."""
        return [flat(body)], {}
