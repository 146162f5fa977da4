"""Codecs of handle calls, by the name of their gRPC content-subtype."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from pyserve.errors import SerializationError, UsageError
from pyserve.serializers.base import Buffer, Codec, Parts, RawCodec, ValueCodec, join, size_bytes
from pyserve.serializers.json import JsonCodec
from pyserve.serializers.msgpack import MsgpackCodec
from pyserve.serializers.pickle import CloudpickleCodec, PickleCodec
from pyserve.serializers.proto import ProtoCodec

__all__ = [
    "Buffer",
    "Codec",
    "Parts",
    "ValueCodec",
    "codec",
    "join",
    "names",
    "register_codec",
    "size_bytes",
]


# What follows `application/grpc+` on the wire (RFC 6838's restricted names, in lower case).
_NAME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.-]{0,62}")

_BUILTIN: dict[str, Codec] = {
    "proto": ProtoCodec(),
    "raw": RawCodec(),
    "json": JsonCodec(),
    "msgpack": MsgpackCodec(),
    "pickle": PickleCodec(),
    "cloudpickle": CloudpickleCodec(),
}
_BUILTIN["orjson"] = _BUILTIN["json"]

# One registry a process, in a module: users register while their module is imported, which is
# before there is any object of ours that they could be given, in the driver and in each replica.
# Reading needs no lock: the dict is replaced, never changed.
_codecs: dict[str, Codec] = dict(_BUILTIN)
_writing = threading.Lock()


def codec(name: str) -> Codec:
    """Return the codec of a name.

    Raises:
        SerializationError: It is not known in this process; the text lists those that are.
    """
    try:
        return _codecs[name]
    except (KeyError, TypeError):
        raise SerializationError(
            f"codec {name!r} is not known in this process; known are {', '.join(names())}. "
            "pyserve.serializers.register_codec adds one, in the module of the deployment and "
            "in that of its callers"
        ) from None


def register_codec(codec: Codec, *, aliases: Sequence[str] = ()) -> None:
    """Make a codec known in this process, under its name and ``aliases``.

    To be called while a module is imported that both sides import. A second codec of the same
    class takes the place of the first, so that a module may be imported again.

    Raises:
        UsageError: A name is no content-subtype or is taken, or says pickle while the codec does
            not say ``mesh_only``.
    """
    global _codecs
    _check(codec)
    with _writing:
        for name in (codec.name, *aliases):
            _check_name(name, codec)
        _codecs = {**_codecs, **dict.fromkeys((codec.name, *aliases), codec)}


def names() -> tuple[str, ...]:
    """Return the known names and aliases, in order."""
    return tuple(sorted(_codecs))


def _check(codec: Codec) -> None:
    missing = [
        name
        for name in ("encode", "decode", "encode_call", "decode_call")
        if not callable(getattr(codec, name, None))
    ]
    missing += [name for name in ("name", "mesh_only") if not hasattr(codec, name)]
    if missing:
        raise UsageError(
            f"register_codec: {codec!r} lacks {', '.join(missing)}; derive its class from "
            "pyserve.serializers.ValueCodec"
        )


def _check_name(name: str, codec: Codec) -> None:
    given: object = name
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise UsageError(
            f"register_codec: {given!r} cannot follow application/grpc+; write lower case letters, "
            "digits and !#$&^_.-, at most 63"
        )
    if "pickle" in name and not codec.mesh_only:
        raise UsageError(
            f"register_codec: {name!r} says pickle, whose reader runs the sender's code; set "
            "mesh_only = True, or choose another name if it does not"
        )
    taken = _codecs.get(name)
    if name in _BUILTIN or (taken is not None and not _is_again(codec, taken)):
        raise UsageError(f"register_codec: the name {name!r} is taken by {taken!r}")


def _is_again(codec: Codec, taken: Codec) -> bool:
    new, old = type(codec), type(taken)
    return codec is taken or (new.__module__, new.__qualname__) == (
        old.__module__,
        old.__qualname__,
    )
