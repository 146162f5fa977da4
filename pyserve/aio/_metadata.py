"""Checks metadata before it goes to the wire, and gives it grpc's types on the way back.

The end of a failed call is shortened to what clients take, so that its code arrives: a client of
grpcio replaces a status that comes with too much metadata by RESOURCE_EXHAUSTED, above
``grpc.max_metadata_size`` with a probability that grows with the size, and always above
``grpc.absolute_max_metadata_size``. The text of the status counts as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

import grpc

MetadataValue = str | bytes
MetadataLike = Iterable[tuple[str, MetadataValue]]
WireMetadata = tuple[tuple[str, MetadataValue], ...]

_KEY = re.compile(r"[0-9a-z_.\-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")

# What HTTP/2 forbids (RFC 9113, 8.2.2) or counts itself. A program that passes the headers of a
# request on has them in its metadata; the peer would take the whole head for malformed.
CONNECTION_HEADERS = frozenset({
    "connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding",
    "upgrade",
})  # fmt: skip

# The native side's limit on the metadata of one block (`METADATA_BYTES_MAX` in server/outlet.rs).
BLOCK_BYTES_MAX = 48 * 1024
# What HTTP/2 counts for a field beside its name and value (RFC 9113, 6.5.2).
_FIELD_BYTES = 32

CODE_BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class Metadatum(NamedTuple):
    """One pair of received metadata."""

    key: str
    value: MetadataValue


def to_wire(metadata: MetadataLike | None) -> WireMetadata:
    """Return ``metadata`` as checked pairs, without the headers of a single connection.

    Raises:
        TypeError: It is not a sequence of pairs of text and text or bytes.
        ValueError: A key or value holds characters that HTTP/2 cannot carry.
    """
    if not metadata:
        return ()
    pairs = map(_checked, metadata)
    return tuple([pair for pair in pairs if pair[0] not in CONNECTION_HEADERS])


def received(metadata: WireMetadata | None) -> tuple[Metadatum, ...]:
    """Return received pairs with names."""
    return tuple([Metadatum(key, value) for key, value in metadata or ()])


def text_of_status(details: object) -> str:
    """Return the details of a status, ``""`` for ``None``.

    Raises:
        TypeError: They are no text.
    """
    if isinstance(details, str | None):
        return details or ""
    raise TypeError(
        f"the details of a status are a str, not {type(details).__name__}; pass str(...) of it"
    )


def as_aio_metadata(metadata: Sequence[tuple[str, MetadataValue]] | None) -> grpc.aio.Metadata:
    """Return received pairs as the mapping that grpc.aio's client side gives."""
    return grpc.aio.Metadata(*(metadata or ()))


def fitting(pairs: WireMetadata, bytes_max: int = BLOCK_BYTES_MAX) -> WireMetadata:
    """Return the pairs without the largest ones if all together do not fit.

    Those of the mesh itself, which ``PlainDispatcher`` adds, stay.

    Args:
        pairs: The metadata.
        bytes_max: Their limit, as ``size_bytes`` counts; one block takes no more than the default.
    """
    excess = sum(map(size_bytes, pairs)) - bytes_max
    if excess <= 0:
        return pairs
    kept = list(pairs)
    for pair in sorted(pairs, key=size_bytes, reverse=True):
        if excess > 0 and not pair[0].startswith("pyserve-"):
            kept.remove(pair)
            excess -= size_bytes(pair)
    return tuple(kept)


def size_bytes(pair: tuple[str, MetadataValue]) -> int:
    """Return what a pair counts against limits of metadata (RFC 9113, 6.5.2)."""
    key, value = pair
    # Bytes travel as base64.
    value_bytes = len(value) if isinstance(value, str) else -(-len(value) // 3) * 4
    return len(key) + value_bytes + _FIELD_BYTES


def status_number(code: object) -> int:
    """Return the number of a status code; unknown kinds of codes count as UNKNOWN."""
    if isinstance(code, grpc.StatusCode):
        number: int = code.value[0]
        return number
    if isinstance(code, int) and code in CODE_BY_NUMBER:
        return code
    return 2


def _checked(pair: object) -> tuple[str, MetadataValue]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"metadata must be pairs of key and value, not {pair!r}")
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"the key of metadata must be str, not {key!r}")
    if _KEY.fullmatch(key) is None:
        raise ValueError(
            f"metadata key {key!r} is illegal: use lower-case letters, digits and '_', '-', '.'"
        )
    if key.endswith("-bin"):
        return key, _binary(key, value)
    return key, _text(key, value)


def _binary(key: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"metadata {key!r} must have a value of bytes or str, not {value!r}")


def _text(key: str, value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if not isinstance(value, str):
        raise TypeError(f"metadata {key!r} must have a value of str or bytes, not {value!r}")
    if _VALUE.fullmatch(value) is None:
        raise ValueError(
            f"metadata {key!r} has a value with characters other than printable ASCII; "
            "give the key the suffix '-bin' to send bytes"
        )
    return value


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
