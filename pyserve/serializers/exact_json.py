"""Reads JSON that ``orjson`` does not read exactly, or refuses.

``orjson`` turns whole numbers beyond 64 bits into floats, and does not read UTF-16. It rightly
refuses numbers beyond a float and lone surrogates. Python's parser accepts these, so they are
refused here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

_SHOWN_MAX: Final = 40
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x9c": "deflate"}


def read_exactly(text: bytes | bytearray) -> Any:
    """Return the value of a JSON text in UTF-8, 16 or 32, by Python's parser.

    Raises:
        ValueError: It is not JSON, or has values that cannot be written as JSON again.
            ``json.JSONDecodeError`` if the place is known.
        RecursionError: It is nested too deeply.
    """
    encoding = _COMPRESSED.get(bytes(text[:2]))
    if encoding is not None:
        raise ValueError(f"it is compressed by {encoding}: send it without content-encoding")
    decoded = text.decode(json.detect_encoding(text))
    value = json.loads(decoded, parse_constant=_refuse_constant, parse_float=_finite)
    if _SURROGATE.search(decoded):
        _refuse_half_letters(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    """Python's parser takes these as its own, and no other one has to."""
    raise ValueError(f"{name} is not JSON (RFC 8259, 6): send null, or a text")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise ValueError(f"the number {shown} is beyond 1.8e308: send a smaller one, or a text")
    return value


def _refuse_half_letters(value: Any) -> None:
    """Refuse texts that no encoding has: of a pair of surrogates one is missing."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ValueError(
            f"a text has \\u{half:04x} alone, half of a letter: send both halves"
        ) from None
