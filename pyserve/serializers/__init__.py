"""Codecs of handle calls, by the name of their gRPC content-subtype."""

from pyserve.serializers.base import Buffer, Codec, Parts

__all__ = ["Buffer", "Codec", "Parts"]
