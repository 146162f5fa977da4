"""A deployment whose values are fetched as if from another machine."""

import numpy

import pyserve
from pyserve.api.context import attached
from pyserve.references import Descriptor, References
from pyserve.references.remote import CHUNK_BYTES

SIZE = 3 * CHUNK_BYTES + 12345


def elsewhere() -> References:
    """References of a process on another machine, with the way there that this one has."""
    return References(node="another", token=b"never used", remote=attached().references._remote)


@pyserve.deployment(max_ongoing_requests=1)
class Holder:
    """Holds values by hand, as results by reference are."""

    def hold(self) -> list[object]:
        body = numpy.arange(SIZE).astype("u1").tobytes()
        return attached().references.hold([body], "raw").to_wire()

    def counts(self) -> tuple[int, int]:
        references = attached().references
        return references.held_count, references.held_bytes

    def hold_and_fetch(self) -> int:
        """Keep the only place of this replica while its own value is fetched."""
        references = elsewhere()
        descriptor = Descriptor.from_wire(self.hold())
        try:
            return len(references.fetch_blocking(descriptor, 20.0))
        finally:
            attached().references.release(descriptor)
            references.close()
