"""Values that stay where they were made, as long as somebody here refers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.references import Descriptor, References


class Lease:
    """One held value; its holder is notified when nothing here refers to it any more.

    Attributes:
        descriptor: Where the value is.
        is_owner: This object notifies the holder; otherwise another one does.
    """

    __slots__ = ("__weakref__", "_references", "descriptor", "is_owner")

    def __init__(
        self, descriptor: Descriptor, references: References, *, is_owner: bool = True
    ) -> None:
        self.descriptor = descriptor
        self.is_owner = is_owner
        self._references = references

    async def fetch(self) -> object:
        """Return the value.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
        """
        return self._decoded(await self._references.fetch(self.descriptor))

    def fetch_blocking(self, timeout_s: float | None) -> object:
        """Return the value; for threads without a running loop."""
        return self._decoded(self._references.fetch_blocking(self.descriptor, timeout_s))

    def _decoded(self, body: bytes | bytearray | memoryview) -> object:
        from pyserve.serializers import codec

        return codec(self.descriptor.codec).decode(body)

    def end(self) -> None:
        """Notify the holder that nothing here refers to the value any more. Idempotent."""
        if self.is_owner:
            self.is_owner = False
            self._references.release(self.descriptor)

    def __del__(self) -> None:
        self.end()
