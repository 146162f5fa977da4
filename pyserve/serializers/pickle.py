"""The codecs ``pickle`` and ``cloudpickle``: any Python value, inside one mesh only.

Reading a pickle runs code of its writer, so the native half accepts these bodies only over
connections that have proven the mesh token (design 12).

A body is a pickle of protocol 5. With out-of-band buffers (arrays) it is instead a head and the
buffers behind it (see ``base.py``); the head is: ``1`` (4 bytes, little-endian as all of it),
the number of buffers (4), the pickle's length (8), the buffers' lengths (8 each), the pickle. A
pickle begins with ``0x80``, which distinguishes the two.
"""

from __future__ import annotations

import pickle
import struct

from pyserve.serializers.base import (
    PART_BYTES_MIN,
    Buffer,
    Parts,
    ValueCodec,
    cut,
    flat,
    garbled,
    lay_out,
    refusal,
)

_PROTOCOL = 5
_WITH_BUFFERS = 1
_HEAD = struct.Struct("<IIQ")
_LENGTH_BYTES = 8

# A class of the driver's script would be looked for in the `__main__` of another process. The
# text in a value's own data costs one needless cloudpickle, nothing else.
_MAIN = b"__main__"


class _Apart:
    """Large bytes to be sent as a separate buffer, which pickle itself does only for arrays."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data

    def __reduce__(self) -> tuple[object, ...]:
        return type(self._data), (pickle.PickleBuffer(self._data),)


def _apart(value: object) -> object:
    if (type(value) is bytes or type(value) is bytearray) and len(value) >= PART_BYTES_MIN:
        return _Apart(value)
    return value


class _PickleBase(ValueCodec):
    """The common part of both codecs: the layout, and reading it."""

    mesh_only = True

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the body of ``[args, kwargs]``; large bytes among them are not copied."""
        named = {name: _apart(value) for name, value in kwargs.items()} if kwargs else kwargs
        return self._encoded([[_apart(value) for value in args], named])

    def encode(self, value: object) -> Parts:
        """Return the body of ``value``; see ``Codec``. Arrays and large bytes are not copied."""
        return self._encoded(_apart(value))

    def _encoded(self, value: object) -> Parts:
        raise NotImplementedError

    def decode(self, body: Buffer) -> object:
        """Return the value of a body; see ``Codec``. Arrays are read-only views of it."""
        try:
            return _read(body)
        # Reading a pickle calls what it names, which may raise anything.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise garbled(self.name, body, reason) from error


class PickleCodec(_PickleBase):
    """Carries what pickle can, and by cloudpickle what it cannot.

    That is lambdas, classes of scripts, and temporary files with their content.
    """

    name = "pickle"

    def _encoded(self, value: object) -> Parts:
        buffers: list[pickle.PickleBuffer] = []
        try:
            head = pickle.dumps(value, _PROTOCOL, buffer_callback=buffers.append)
        except Exception:  # Reducers of users raise anything, and cloudpickle knows more kinds.
            return _by_cloudpickle(self.name, value)
        if _MAIN in head:
            return _by_cloudpickle(self.name, value)
        return _body(head, buffers) if buffers else [head]


class CloudpickleCodec(_PickleBase):
    """Carries what cloudpickle can: functions and classes by value where nobody can import them."""

    name = "cloudpickle"

    def _encoded(self, value: object) -> Parts:
        return _by_cloudpickle(self.name, value)


def _by_cloudpickle(codec: str, value: object) -> Parts:
    # 20 ms that most processes never need
    from pyserve.serializers.temporary_files import dumps

    buffers: list[pickle.PickleBuffer] = []
    try:
        head = dumps(value, _PROTOCOL, buffers.append)
    except Exception as error:  # See above.
        reason = f"{type(error).__name__}: {error}"
        raise refusal(codec, value, reason) from error
    return _body(head, buffers) if buffers else [head]


def _body(pickled: bytes, buffers: list[pickle.PickleBuffer]) -> Parts:
    views = [buffer.raw() for buffer in buffers]
    lengths = struct.pack(f"<{len(views)}Q", *(view.nbytes for view in views))
    head = _HEAD.pack(_WITH_BUFFERS, len(views), len(pickled)) + lengths + pickled
    return lay_out(head, views)


def _read(body: Buffer) -> object:
    if body[:1] == b"\x80":
        return pickle.loads(body)  # noqa: S301  # design 12: from the mesh only
    view = flat(body)
    if view.nbytes < _HEAD.size:
        raise ValueError("it is cut off")
    mark, count, pickle_bytes = _HEAD.unpack_from(view)
    start = _HEAD.size + count * _LENGTH_BYTES
    end = start + pickle_bytes
    if mark != _WITH_BUFFERS or end > view.nbytes:
        raise ValueError("it does not begin as a pickle does")
    lengths = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    buffers = cut(view, end, lengths)
    return pickle.loads(view[start:end], buffers=buffers)  # noqa: S301  # as above
