"""What a codec is. A codec turns values into the body of a message and back."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = list[Buffer]
"""A body in parts, sent one after the other; only large parts are worth one of their own."""


class Codec(Protocol):
    """One way to carry values; its name is the gRPC content-subtype.

    Attributes:
        name: Lower case, as in ``application/grpc+<name>``.
        mesh_only: Decoding runs code of the sender, so it is honoured only between processes
            that have proven the mesh token.
    """

    name: str
    mesh_only: bool

    def encode(self, value: object) -> Parts:
        """Return the body of one value.

        Raises:
            SerializationError: The codec cannot carry it; the text names codec and type.
        """

    def decode(self, body: Buffer) -> object:
        """Return the value of a body; arrays may be views of ``body``.

        Raises:
            SerializationError: The body is not this codec's.
        """

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the body of a call's arguments, by default that of ``[args, kwargs]``."""

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call's body.

        Raises:
            SerializationError: The body is not that of a call.
        """
