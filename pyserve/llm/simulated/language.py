"""The language of the simulated engine: its tokens, its texts, its embeddings. Pure.

A token is one or two bytes of UTF-8 and a space that follows them, or a single space. Its number
encodes these bytes, so there is no vocabulary. A text that ends with a space has the same tokens
whatever follows it: if a later prompt contains an answer, the prefix cache has its tokens.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

_PIECE = re.compile(rb"[^ ]{1,2} ?| ")
_LENGTH_SHIFT = 24  # The low bits of a token hold its bytes, the high bits their count.
_LENGTH_MAX = 3
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_HASH_BYTES = 8


def tokens_of(text: str | bytes) -> list[int]:
    """Return the tokens of a text."""
    raw = text.encode() if isinstance(text, str) else text
    return [_number(piece) for piece in _PIECE.findall(raw)]


def _number(piece: bytes) -> int:
    return len(piece) << _LENGTH_SHIFT | int.from_bytes(piece, "big")


_SYLLABLES = tuple(_number(f"{c}{v} ".encode()) for c in _CONSONANTS for v in _VOWELS)


def bytes_of(token: int) -> bytes:
    """Return the bytes of a token; empty if the number is not a token."""
    length = token >> _LENGTH_SHIFT
    if not 1 <= length <= _LENGTH_MAX:
        return b""
    value = token & ((1 << _LENGTH_SHIFT) - 1)
    return value.to_bytes(_LENGTH_MAX, "big")[-length:]


def text_of(tokens: Iterable[int]) -> str:
    """Return the text of tokens; invalid UTF-8 is replaced."""
    return b"".join(map(bytes_of, tokens)).decode(errors="replace")


def babble(seed: bytes, count: int) -> list[int]:
    """Return ``count`` tokens of an answer, which depend only on the seed."""
    found: list[int] = []
    block = 0
    while len(found) < count:
        digest = blake2b(seed, salt=block.to_bytes(8, "big")).digest()
        found += [_SYLLABLES[each % len(_SYLLABLES)] for each in digest]
        block += 1
    return found[:count]


def block_hashes(tokens: Sequence[int], size: int) -> list[bytes]:
    """Return the hashes of the full blocks of a sequence; each stands for all before it too."""
    hashes: list[bytes] = []
    parent = b""
    for start in range(0, len(tokens) - size + 1, size):
        parent = block_hash(parent, tokens[start : start + size])
        hashes.append(parent)
    return hashes


def block_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return the hash of a block after another one; ``b""`` is before the first."""
    raw = struct.pack(f">{len(tokens)}I", *tokens)
    return blake2b(parent + raw, digest_size=_HASH_BYTES).digest()


def logprob_of(token: int, place: int) -> float:
    """Return the log probability of a token at its place, between -2 and 0."""
    digest = blake2b(f"{token} {place}".encode(), digest_size=2).digest()
    return -2.0 * int.from_bytes(digest, "big") / 65536


def embedding_of(text: str, dimensions: int) -> list[float]:
    """Return a vector of length 1; texts that share words have similar ones."""
    vector = [0.0] * dimensions
    for word in text.casefold().split() or [""]:
        digest = blake2b(word.encode(), digest_size=5).digest()
        place = int.from_bytes(digest[:4], "big") % dimensions
        vector[place] += 1.0 if digest[4] & 1 else -1.0
    length = math.hypot(*vector) or 1.0
    return [each / length for each in vector]


def instance_of(schema: Any) -> Any:
    """Return a value that fits a JSON schema, as far as its types and enumerations go.

    Clients may send values that are not schemas: these count as an empty schema.
    """
    if not isinstance(schema, dict):
        return "ba"
    if "const" in schema:
        return schema["const"]
    if schema.get("enum") and isinstance(schema["enum"], list):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields = schema.get("properties")
            fields = fields if isinstance(fields, dict) else {}
            return {name: instance_of(each) for name, each in fields.items()}
        case "array":
            return [instance_of(schema.get("items", {}))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
    return "ba"
