"""Codecs of handle calls, by the name of their gRPC content-subtype."""

from pyserve.serializers.base import Buffer, Codec, Parts, ValueCodec, join, size_bytes
from pyserve.serializers.registry import codec, names, register_codec

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
