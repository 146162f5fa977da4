"""Checks metadata before it goes to the wire, and gives it grpc's types on the way back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import grpc

MetadataValue = str | bytes
MetadataLike = Iterable[tuple[str, MetadataValue]]
WireMetadata = tuple[tuple[str, MetadataValue], ...]

_KEY = re.compile(r"[0-9a-z_.\-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")

# What HTTP/2 forbids (RFC 9113, 8.2.2) or counts itself. A program that passes the headers of a
# request on has them in its metadata; the peer would take the whole head for malformed.
_OF_THE_CONNECTION = frozenset({
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
    return tuple([pair for pair in pairs if pair[0] not in _OF_THE_CONNECTION])


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
