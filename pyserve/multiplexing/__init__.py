"""Many models in one replica: which stay loaded, who waits for a load, what routers are told."""

from pyserve.multiplexing.cache import CacheOptions, CacheStats, ModelCache
from pyserve.multiplexing.decorator import (
    Models,
    Multiplexed,
    close_all,
    multiplexed,
    preload_all,
)
from pyserve.multiplexing.directory import PROCESS_DIRECTORY, Directory

__all__ = [
    "PROCESS_DIRECTORY",
    "CacheOptions",
    "CacheStats",
    "Directory",
    "ModelCache",
    "Models",
    "Multiplexed",
    "close_all",
    "multiplexed",
    "preload_all",
]
