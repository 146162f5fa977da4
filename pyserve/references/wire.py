"""Messages on the side socket of a holder, and the proof of the mesh token. Pure.

The socket keeps the borders of messages (``SOCK_SEQPACKET``). A message is one byte for its kind
and what follows:

==============  ==============  ===================================================
kind            sent by         then
==============  ==============  ===================================================
``CHALLENGE``   holder          32 random bytes; the first message of a connection
``PROOF``       other process   32 bytes of HMAC of the challenge, 32 random bytes
``WELCOME``     holder          32 bytes of HMAC of the other's random bytes
``TAKE``        other process   number of the request (8 bytes), key
``TAKEN``       holder          that number, size (8 bytes); a descriptor comes along
``LOST``        holder          that number
``DROP``        other process   key: one mapping of it is gone
``FORGET``      other process   key: nobody will take it any more
==============  ==============  ===================================================

Both sides prove the token, each over random bytes of the other, with different contexts, so that
neither can be made to answer for the other.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import astuple, dataclass, fields

CHALLENGE, PROOF, WELCOME, TAKE, TAKEN, LOST, DROP, FORGET = range(1, 9)

NONCE_BYTES = 32
MESSAGE_BYTES_MAX = 4096
"""Longer messages are not of this protocol: keys have 32 characters."""

_NUMBER = struct.Struct(">Q")
_SIZE = struct.Struct(">QQ")
_OF_CLIENT = b"pyserve references client "
_OF_HOLDER = b"pyserve references holder "
_PROOF_BYTES = hashlib.sha256().digest_size


class WireError(ValueError):
    """A message does not belong to this protocol; the connection is closed."""


def challenge(nonce: bytes) -> bytes:
    """Return the first message of a holder."""
    return bytes((CHALLENGE,)) + nonce


def answer(token: bytes, message: bytes, nonce: bytes) -> bytes:
    """Return the proof that answers a challenge, with random bytes for the holder.

    Raises:
        WireError: ``message`` is no challenge.
    """
    if kind_of(message) != CHALLENGE or len(message) != 1 + NONCE_BYTES:
        raise WireError("the first message of a holder is no challenge")
    return bytes((PROOF,)) + _mac(token, _OF_CLIENT, message[1:]) + nonce


def welcome(token: bytes, nonce: bytes, message: bytes) -> bytes | None:
    """Return the answer to a proof over ``nonce``; ``None``: the proof is wrong or none."""
    length = 1 + _PROOF_BYTES + NONCE_BYTES
    if kind_of(message) != PROOF or len(message) != length:
        return None
    proof, theirs = message[1 : 1 + _PROOF_BYTES], message[1 + _PROOF_BYTES :]
    if not token or not hmac.compare_digest(proof, _mac(token, _OF_CLIENT, nonce)):
        return None
    return bytes((WELCOME,)) + _mac(token, _OF_HOLDER, theirs)


def is_welcome(token: bytes, nonce: bytes, message: bytes) -> bool:
    """Whether a holder has proven the token over ``nonce``."""
    if kind_of(message) != WELCOME:
        return False
    return hmac.compare_digest(message[1:], _mac(token, _OF_HOLDER, nonce))


def take(number: int, key: str) -> bytes:
    """Return the request for a value."""
    return bytes((TAKE,)) + _NUMBER.pack(number) + key.encode()


def taken(number: int, size_bytes: int) -> bytes:
    """Return the answer that comes with a descriptor."""
    return bytes((TAKEN,)) + _SIZE.pack(number, size_bytes)


def lost(number: int) -> bytes:
    """Return the answer for a value that is not there, or not any more."""
    return bytes((LOST,)) + _NUMBER.pack(number)


def note(kind: int, text: str) -> bytes:
    """Return a message that needs no answer: DROP or FORGET."""
    return bytes((kind,)) + text.encode()


def kind_of(message: bytes) -> int:
    """Return the kind of a message, 0 for an empty one."""
    return message[0] if message else 0


def read_take(message: bytes) -> tuple[int, str]:
    """Return number and key of a TAKE.

    Raises:
        WireError: It is cut off or garbled.
    """
    return _numbers(_NUMBER, message)[0], _text(message[1 + _NUMBER.size :])


def read_taken(message: bytes) -> tuple[int, int]:
    """Return number and size of a TAKEN.

    Raises:
        WireError: It is cut off.
    """
    number, size_bytes = _numbers(_SIZE, message)
    return number, size_bytes


def read_lost(message: bytes) -> int:
    """Return the number of a LOST.

    Raises:
        WireError: It is cut off.
    """
    return _numbers(_NUMBER, message)[0]


def read_note(message: bytes) -> str:
    """Return the text of a DROP or FORGET.

    Raises:
        WireError: It is no text.
    """
    return _text(message[1:])


def may_connect(peer_uid: int, own_uid: int) -> bool:
    """Whether a process of user ``peer_uid`` may speak to one of ``own_uid``: only the same."""
    return peer_uid == own_uid


def _mac(token: bytes, context: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, context + nonce, "sha256")


def _numbers(layout: struct.Struct, message: bytes) -> tuple[int, ...]:
    try:
        return layout.unpack_from(message, 1)
    except struct.error as error:
        raise WireError(f"a message of kind {message[0]} is cut off") from error


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a message has no text: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A value that a process of the mesh holds.

    Attributes:
        holder_id: Of the process: a replica's id, or one made for a driver.
        node: The machine of the holder.
        unix_path: Of the holder's socket on that machine; ``""``: it has none.
        key: Names the value at its holder; nobody can guess it.
        size_bytes: Of the body.
        codec: Name of the codec that reads the body.
        application: Of the deployment whose replica holds it; ``""``: no replica does.
        deployment: That deployment.
    """

    holder_id: str
    node: str
    unix_path: str
    key: str
    size_bytes: int
    codec: str
    application: str = ""
    deployment: str = ""

    def to_wire(self) -> list[object]:
        """Return the fields in order, for msgpack."""
        return list(astuple(self))

    @classmethod
    def from_wire(cls, wire: object) -> Descriptor:
        """Return the descriptor that ``to_wire`` was called on.

        Raises:
            ValueError: It is not what ``to_wire`` returns.
        """
        if not isinstance(wire, list | tuple) or len(wire) != len(_FIELDS):
            raise ValueError(f"a descriptor has {len(_FIELDS)} fields: {wire!r}")
        for name, value in zip(_FIELDS, wire, strict=True):
            if name == "size_bytes":
                is_right = type(value) is int and value >= 0
            else:
                is_right = isinstance(value, str)
            if not is_right:
                raise ValueError(f"a descriptor has the {name} {value!r}")
        return cls(**dict(zip(_FIELDS, wire, strict=True)))


_FIELDS = tuple(field.name for field in fields(Descriptor))
