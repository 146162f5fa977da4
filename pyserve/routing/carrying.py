"""The metadata by which calls inside a mesh pass on properties of the request that makes them."""

from __future__ import annotations

from pyserve.observe.delays import PROCESS_DELAYS, asks
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.observe.traces.sampled import OutgoingMetadata
from pyserve.request import CURRENT

# If a client has asked for the explanation of a call, so do the calls that this call makes.
_ASKING = (("x-pyserve-explain", "1"),)


def outgoing() -> OutgoingMetadata:
    """Return the metadata of a call that this code makes: its trace, and that it is asked for."""
    spans = PROCESS_TRACING.spans
    metadata: OutgoingMetadata = () if spans is None else spans.outgoing()
    if PROCESS_DELAYS.is_on and asks(CURRENT.get()):
        metadata += _ASKING
    return metadata
