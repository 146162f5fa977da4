"""Dynamic batching: the state machine, its asyncio driver, the decorator."""

from pyserve.batching.batcher import Batch, Batcher, BatchOptions, Reason
from pyserve.batching.decorator import Batched, batch

__all__ = ["Batch", "BatchOptions", "Batched", "Batcher", "Reason", "batch"]
