"""The options as keywords, for editors and type checkers: what may be written, and of what type.

Values are checked where they are read (``options``, ``pyserve.api.handles.options``); a test
compares the names. Mappings stand for the objects of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from pyserve.config.deployment_keywords import DeploymentKeywords

__all__ = ["DeploymentKeywords", "HandleKeywords"]


class HandleKeywords(TypedDict, total=False):
    """What ``handle.options(...)`` takes; see there for the meanings and defaults."""

    stream: bool
    multiplexed_model_id: str
    session_id: str
    cache_keys: Sequence[bytes | str | int] | Callable[..., Sequence[bytes | str | int]]
    method_name: str
    timeout_s: float | None
    priority: int
    cost: float | None
    idempotent: bool
    detached: bool
    request_serialization: str | None
    response_serialization: str | None
    _by_reference: bool | None
    _prefer_local_routing: bool | Literal["zone"] | None
