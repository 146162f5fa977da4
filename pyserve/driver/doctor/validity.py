"""From when until when certificates are valid, read from their PEM files.

The standard library reads that of a peer only, after a handshake that needs a valid one.
"""

from __future__ import annotations

import ssl
import time
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
# Tags of DER (ITU-T X.690), and the place of the validity in a certificate (RFC 5280, 4.1).
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_FIELDS_BEFORE = 3  # serial number, signature, issuer
# Years of two digits from 50 on are of the last century (RFC 5280, 4.1.2.5.1).
_CENTURY_FROM = 50


@dataclass(frozen=True, slots=True)
class Validity:
    """Both are Unix time, in seconds."""

    begins_at: float
    ends_at: float

    def begins(self) -> str:
        """Return the begin as people write it."""
        return _text(self.begins_at)

    def ends(self) -> str:
        """Return the end as people write it."""
        return _text(self.ends_at)


def validities(pem: bytes) -> Iterator[Validity]:
    """Yield that of each certificate of a file.

    Raises:
        ValueError: One is none.
    """
    for part in pem.split(_BEGIN)[1:]:
        body = part.partition(_END)[0].strip().decode("ascii")
        text = f"{_BEGIN.decode()}\n{body}\n{_END.decode()}\n"
        yield validity_of(ssl.PEM_cert_to_DER_cert(text))


def validity_of(certificate: bytes) -> Validity:
    """Return that of a certificate in DER.

    Raises:
        ValueError: It is none.
    """
    try:
        _, whole, _ = _element(certificate)
        _, signed, _ = _element(whole)
        tag, _, rest = _element(signed)
        if tag != _VERSION:
            rest = signed
        for _ in range(_FIELDS_BEFORE):
            _, _, rest = _element(rest)
        tag, times, _ = _element(rest)
        if tag != _SEQUENCE:
            raise ValueError("no validity")
        first, begin, rest = _element(times)
        second, end, _ = _element(rest)
        return Validity(_seconds(first, begin), _seconds(second, end))
    except (IndexError, ValueError) as error:
        raise ValueError(f"no certificate can be read: {error}") from error


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first element, and what follows it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("it is cut off")
    return tag, data[start : start + length], data[start + length :]


def _seconds(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY_FROM else '20'}{text}"
    elif tag != _GENERALIZED_TIME:
        raise ValueError("a time has another form")
    return float(timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))


def _text(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
