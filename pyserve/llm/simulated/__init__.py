"""An engine without a model: its answers depend only on the request, and come at given rates.

It is for tests, for load tests of everything in front of an engine, and for routing: it has
continuous batching, KV blocks, and a prefix cache that publishes its events.
"""

from pyserve.llm.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
