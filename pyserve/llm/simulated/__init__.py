"""An engine without a model: answers that depend on the request alone, at given rates.

For tests, for load tests of what stands in front of an engine, and for routing: it has continuous
batching, KV blocks, and a prefix cache that publishes its events.
"""

from pyserve.llm.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
