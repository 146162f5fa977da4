"""Dynamic batching: the state machine, its asyncio driver, the decorator."""

from pyserve.batching.batcher import Batcher, BatchStats
from pyserve.batching.calls import BatchRequest
from pyserve.batching.decorator import Batched, batch, drain, flush, make_batched
from pyserve.batching.lanes import Batch, Drop, Reason
from pyserve.batching.options import BatchOptions, check_chain
from pyserve.batching.steps import PROCESS_ACTIVITY, StepState

__all__ = [
    "PROCESS_ACTIVITY",
    "Batch",
    "BatchOptions",
    "BatchRequest",
    "BatchStats",
    "Batched",
    "Batcher",
    "Drop",
    "Reason",
    "StepState",
    "batch",
    "check_chain",
    "drain",
    "flush",
    "make_batched",
]
