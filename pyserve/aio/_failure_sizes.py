"""Shortens the end of a failed call to what clients take, so that its code arrives.

A client of grpcio replaces a status that comes with too much metadata by RESOURCE_EXHAUSTED: above
``grpc.max_metadata_size`` with a probability that grows with the size, and always above
``grpc.absolute_max_metadata_size``. The text of the status counts as metadata.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from pyserve.aio._metadata import BLOCK_BYTES_MAX, WireMetadata, fitting, size_bytes

# The default of grpc.max_metadata_size (GRPC_ARG_MAX_METADATA_SIZE in grpc's
# channel_arg_names.h).
CLIENT_METADATA_BYTES = 8 * 1024
# Room for the headers: `:status`, `content-type`, `grpc-status` and the name of `grpc-message` (190
# bytes together), and those that proxies on the way add. Arbitrary.
_OTHER_BYTES = 512
# Of the encoded text, whatever the metadata need. Arbitrary: a line or two.
_TEXT_BYTES_MIN = 256
# The native side cuts a text to that size (`MESSAGE_BYTES_MAX` in grpc/status.rs).
_TEXT_BYTES_MAX = 6 * 1024
# What travels as it is in `grpc-message`: printable ASCII but `%`.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class Fitted(NamedTuple):
    """The text of a status, and the metadata that go with it."""

    details: str
    trailers: WireMetadata


def fitting_failure(details: str, trailers: WireMetadata, client_bytes: int) -> Fitted:
    """Return what clients take of the text and the trailing metadata of a failure.

    The text is cut before metadata are left out, but to no less than 256 bytes. If more has to go,
    the largest metadata do.

    Args:
        details: The text, without surrogates.
        trailers: The metadata.
        client_bytes: What clients take in all, as HTTP/2 counts (RFC 9113, 6.5.2).
    """
    room = client_bytes - _OTHER_BYTES
    text_bytes = min(_encoded_bytes(details[: _TEXT_BYTES_MAX + 1]), _TEXT_BYTES_MAX)
    metadata_bytes = sum(map(size_bytes, trailers))
    if text_bytes + metadata_bytes <= room and metadata_bytes <= BLOCK_BYTES_MAX:
        return Fitted(details, trailers)
    kept = fitting(trailers, min(room - min(text_bytes, _TEXT_BYTES_MIN), BLOCK_BYTES_MAX))
    text_room = max(room - sum(map(size_bytes, kept)), _TEXT_BYTES_MIN)
    return Fitted(details if text_bytes <= text_room else _cut(details, text_room), kept)


def _cut(details: str, room: int) -> str:
    """Return as many whole characters as fit, with the note that the native side writes too."""
    end = f" ... (cut: {len(details.encode())} bytes)"
    left = room - len(end)
    kept = 0
    for character in details[:room]:
        left -= _encoded_bytes(character)
        if left < 0:
            break
        kept += 1
    return details[:kept] + end


def _encoded_bytes(text: str) -> int:
    return len(quote(text, safe=_PLAIN))
