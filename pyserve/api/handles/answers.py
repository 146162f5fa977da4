"""One answer of a stream as it came: a value, or the lease of one that stays where it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from pyserve.api.context import attached
from pyserve.api.handles.framing import REFERENCE, answer_body

if TYPE_CHECKING:
    from pyserve.api.handles.plan import Plan
    from pyserve.references import Descriptor, References


UNREAD: object = object()
"""The placeholder for a value that has not been read yet."""


class Answer:
    """A message of a replica; decoded on demand, and only once.

    Attributes:
        lease: Who holds the value; ``None``: it came with the message.
    """

    __slots__ = ("_plan", "_raw", "_value", "lease")

    def __init__(self, message: bytes, plan: Plan) -> None:
        self._raw: bytes | None = message
        self._plan = plan
        self._value: object = UNREAD
        self.lease: Lease | None = None
        if message and message[0] == REFERENCE:
            # Recognized at once: it must be given back even if the value is never read.
            self.lease = lease_of(message)

    @property
    def is_read(self) -> bool:
        """Whether the value is here, decoded."""
        return self._value is not UNREAD

    def value(self) -> object:
        """Return the value of a message that carries it, or that was fetched.

        Raises:
            SerializationError: It is not of the codec that it should be of.
        """
        if self._value is UNREAD:
            raw = self._raw
            assert raw is not None, "the value is held elsewhere"
            self._value = self._plan.response_codec.decode(answer_body(raw))
            self._raw = None
        return self._value

    async def fetch(self) -> object:
        """Return the value from where it is held.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
        """
        if self._value is UNREAD and self.lease is not None:
            self._value = await self.lease.fetch()
        return self._value

    def fetch_blocking(self, timeout_s: float | None) -> object:
        """Return the value from where it is held; for threads without a running loop."""
        if self._value is UNREAD and self.lease is not None:
            self._value = self.lease.fetch_blocking(timeout_s)
        return self._value

    def body(self) -> tuple[bytes, str] | None:
        """Return the undecoded value and its codec, while nobody has read it."""
        if self._raw is None or self.lease is not None:
            return None
        return bytes(answer_body(self._raw)), self._plan.response_codec.name


def lease_of(message: bytes) -> Lease:
    """Return the lease that a REFERENCE answer describes."""
    from pyserve.references import Descriptor

    wire = msgpack.unpackb(memoryview(message)[1:])
    return Lease(Descriptor.from_wire(wire), attached().references)


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
