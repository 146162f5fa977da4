"""Whether code runs for a request that is traced, and what that request tells those it calls."""

from __future__ import annotations

from contextvars import ContextVar

OutgoingMetadata = tuple[tuple[str, str], ...]

IS_SAMPLED: ContextVar[bool] = ContextVar("pyserve_is_sampled", default=False)
"""Whether this code runs for a request that is traced; cheaper to look at than a span."""
