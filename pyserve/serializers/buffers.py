"""Bodies with buffers behind a head, which ``pickle`` and ``msgpack`` share, and raw ones.

The head describes the value and refers to the buffers, which follow it in order. Each begins at a
multiple of 64 bytes from the start of the body (a cache line, and what vector units want), so
that arrays over a mapped body are aligned. Nothing is copied in either direction, unless a buffer
is small.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyserve.errors import SerializationError
from pyserve.serializers.base import Buffer, Parts, joined_small, refusal

ALIGNMENT_BYTES = 64


def aligned(offset: int) -> int:
    """Return the first multiple of 64 that is not below ``offset``."""
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def spread_bytes(sizes: Sequence[int]) -> int:
    """Return the bytes that buffers of these sizes take, paddings between them included."""
    end = 0
    for size in sizes:
        end = aligned(end) + size
    return end


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
