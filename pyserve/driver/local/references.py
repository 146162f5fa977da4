"""Held values of local testing mode: kept in this process, with the rules of a mesh."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyserve.driver.local.calls import joined
from pyserve.errors import BackPressure, ReferenceLost

if TYPE_CHECKING:
    from pyserve.references import Descriptor
    from pyserve.serializers import Buffer, Parts

HELD_BYTES_MAX = 1024**3
"""As much as a replica may hold: api.md section 2."""


class LocalReferences:
    """Holds encoded results until nobody refers to them; for any thread."""

    holder_id = "local"

    def __init__(self) -> None:
        self.held_bytes = 0
        self._lock = threading.Lock()
        self._values: dict[str, tuple[bytes, str]] = {}  # by key: the body, and the root request
        self._made = 0

    @property
    def held_count(self) -> int:
        """How many values are held."""
        return len(self._values)

    def hold(self, body: Parts, codec: str, *, root_id: str) -> Descriptor:
        """Keep one encoded value.

        Raises:
            BackPressure: There is no room.
        """
        from pyserve.references import Descriptor

        value = joined(body)
        with self._lock:
            if self.held_bytes + len(value) > HELD_BYTES_MAX:
                raise BackPressure(
                    f"{self.held_bytes} bytes of results are held already, so {len(value)} more "
                    f"do not fit into {HELD_BYTES_MAX}"
                )
            key = str(self._made)
            self._made += 1
            self.held_bytes += len(value)
            self._values[key] = value, root_id
        return Descriptor(
            holder_id=self.holder_id,
            node="",
            unix_path="",
            key=key,
            size_bytes=len(value),
            codec=codec,
            application="",
            deployment="",
        )

    async def fetch(self, descriptor: Descriptor) -> Buffer:
        """Return the body of a held value.

        Raises:
            ReferenceLost: It was freed.
        """
        return self._body(descriptor)

    def fetch_blocking(self, descriptor: Descriptor, timeout_s: float | None) -> Buffer:  # noqa: ARG002  # nothing to wait for
        """Return the body of a held value.

        Raises:
            ReferenceLost: It was freed.
        """
        return self._body(descriptor)

    def release(self, descriptor: Descriptor) -> None:
        """Free a value. Without effect when it is free."""
        with self._lock:
            self._free(descriptor.key)

    def end_root(self, root_id: str) -> None:
        """Free what was held for a tree of requests that has ended."""
        with self._lock:
            for key in [key for key, (_, root) in self._values.items() if root == root_id]:
                self._free(key)

    def close(self) -> None:
        """Free everything."""
        with self._lock:
            self._values.clear()
            self.held_bytes = 0

    def _body(self, descriptor: Descriptor) -> bytes:
        try:
            return self._values[descriptor.key][0]
        except KeyError:
            raise ReferenceLost(
                f"the value {descriptor.key!r} was freed: keep the response or the ObjectRef as "
                f"long as the value is needed"
            ) from None

    def _free(self, key: str) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self.held_bytes -= len(found[0])
