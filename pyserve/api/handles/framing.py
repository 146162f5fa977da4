"""How a handle and a replica frame messages of plain calls, inside the mesh only.

A foreign client sends the codec's body and nothing else. A handle says ``framed`` when it starts
the call (``_router.Channel.start_call``), and then

- its request is: flags (1 byte); with ``ID`` a request id of 16 ASCII characters, with ``HEADER``
  the header's length (4 bytes, big-endian) and the header (msgpack, see ``RequestHeader``), after
  either zeros up to a multiple of 16 bytes; then the body of ``[args, kwargs]``;
- every answer is: ``VALUE`` and the body of the result, or ``ALIGNED``, 15 zeros and that body, or
  ``REFERENCE`` and a descriptor (msgpack) of a value that the producer holds;
- the exception of user code travels in the trailer ``handle-error-bin`` (see ``failures.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from pyserve.serializers import Buffer, Parts

# Flags of a request.
HEADER = 1
STREAM = 2  # the caller reads a stream; without it the method must answer with one value
ID = 8  # nothing but a request id of the usual length is said: the cheap form of a header
HOLD = 4  # results of HELD_BYTES_MIN and more stay at the producer, a descriptor comes back
HOLD_BULKY = 16  # beside HOLD: only those of BULKY_BYTES_MIN and more

# Kinds of an answer.
VALUE = 0
REFERENCE = 1
ALIGNED = 2  # a large value: arrays of it are views of the message, which begins at such an address

BATCH_END = "pyserve-batch-end"
"""Metadata of a call to a batched method, anybody's: it is the last one for now, so that its batch
need not wait for more. Any value but ``0`` counts."""

FLUSH_METHOD = "pyserve-flush"
"""Every deployment has this method; no Python method can have this name. It starts the batches that
wait for more calls: those of the method whose name it is given, or of all methods."""

HELD_BYTES_MIN = 64 * 1024
"""Smaller values always go inline, as they cost less than a description of them."""

BULKY_BYTES_MIN = 8 * 1024 * 1024
"""Values of at least this size go by reference by default. A value that one call passes to another
is as fast either way at 4 MiB; by reference it takes 0.76 of the time at 8 MiB, and 1.2 to 2 times
as long below. A value that the caller itself reads is faster inline up to 32 MiB, and 3 to 4 times
as fast at 256 KiB (two cores, bytes)."""

ALIGNMENT_BYTES = 16  # what malloc gives, and the most that a message can keep
_LENGTH_BYTES = 4
ID_BYTES = 16
ID_END = 2 * ALIGNMENT_BYTES
"""Where the body begins in a request whose header has only the id."""
ID_PADDING = bytes(ID_END - ID_BYTES - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """What a request carries besides its arguments; most calls need only the id.

    Attributes:
        request_id: ``""``: the replica makes one.
        response_codec: ``""``: that of the request.
        references: For each referenced argument its position or name, and the descriptor; the
            body has ``None`` in its place.
    """

    request_id: str = ""
    response_codec: str = ""
    references: tuple[tuple[int | str, object], ...] = ()


_EMPTY = RequestHeader()


def held_bytes_min(flags: int) -> int | None:
    """Return from which size on a result stays at its producer; None: none does."""
    if not flags & HOLD:
        return None
    return BULKY_BYTES_MIN if flags & HOLD_BULKY else HELD_BYTES_MIN


def frame_request(body: Parts, flags: int, header: RequestHeader | None) -> Parts:
    """Return the parts of a framed request. ``flags`` come without ``HEADER`` and ``ID``."""
    if header is None or header == _EMPTY:
        return [bytes((flags,)), *body]
    packed = msgpack.packb((header.request_id, header.response_codec, header.references))
    prefix = bytes((flags | HEADER,)) + len(packed).to_bytes(_LENGTH_BYTES, "big") + packed
    return [prefix.ljust(_aligned(len(prefix)), b"\0"), *body]


def read_request(message: bytes) -> tuple[int, RequestHeader, Buffer]:
    """Return flags, header and body of a framed request.

    Raises:
        ValueError: The message is cut off or garbled.
    """
    if not message:
        raise ValueError("a framed request has at least one byte, none came")
    flags = message[0]
    view = memoryview(message)
    if flags & ID:
        if len(message) < ID_END:
            raise ValueError(f"a framed request ends in its id, after {len(message)} bytes")
        request_id = message[1 : 1 + ID_BYTES].decode("ascii", "replace")
        return flags, RequestHeader(request_id=request_id), view[ID_END:]
    if not flags & HEADER:
        return flags, _EMPTY, view[1:]
    start = 1 + _LENGTH_BYTES
    end = start + int.from_bytes(view[1:start], "big")
    body_start = _aligned(end)
    if body_start > len(message):
        raise ValueError(f"the header of a framed request ends at {end} of {len(message)} bytes")
    try:
        request_id, response_codec, references = msgpack.unpackb(view[start:end])
    except Exception as error:  # msgpack raises several kinds, all meaning the same.
        raise ValueError(f"the header of a framed request cannot be read: {error}") from error
    header = RequestHeader(
        request_id=request_id,
        response_codec=response_codec,
        references=tuple((where, descriptor) for where, descriptor in references),
    )
    return flags, header, view[body_start:]


def answer_body(message: bytes) -> memoryview:
    """Return the body of an answer that is not a reference."""
    start = ALIGNMENT_BYTES if message[0] == ALIGNED else 1
    return memoryview(message)[start:]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
