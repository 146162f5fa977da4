"""The codec ``raw``: the body is the value, bytes without any structure."""

from __future__ import annotations

from pyserve.errors import SerializationError
from pyserve.serializers.base import Buffer, Parts, refusal
from pyserve.serializers.buffers import flat


class RawCodec:
    """Carries one object with a contiguous buffer; what arrives is a read-only ``memoryview``.

    A call has one positional argument and none by name.
    """

    name = "raw"
    mesh_only = False

    def encode(self, value: object) -> Parts:
        """Return the bytes of ``value``, not copied.

        Raises:
            SerializationError: It has no contiguous buffer.
        """
        if isinstance(value, bytes):
            return [value]
        try:
            view = memoryview(value)  # type: ignore[arg-type]  # the call checks what it is
        except TypeError as error:
            raise refusal(self.name, value, "give it bytes, or use another codec") from error
        if not view.c_contiguous:
            raise refusal(self.name, value, "its bytes are not contiguous; copy it first")
        return [view.cast("B")]

    def decode(self, body: Buffer) -> memoryview:
        """Return the body."""
        return flat(body)

    def encode_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
        """Return the bytes of the only argument.

        Raises:
            SerializationError: There is another number of arguments, or it has no buffer.
        """
        if len(args) != 1 or kwargs:
            named = f" and {sorted(kwargs)}" if kwargs else ""
            raise SerializationError(
                f"codec 'raw' carries calls with one positional argument, not {len(args)}{named}; "
                "use msgpack or pickle"
            )
        return self.encode(args[0])

    def decode_call(self, body: Buffer) -> tuple[list[object], dict[str, object]]:
        """Return the body as the only argument."""
        return [flat(body)], {}
