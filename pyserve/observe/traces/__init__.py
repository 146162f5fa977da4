"""Spans of OpenTelemetry: of calls, batches, model loads and child calls.

``pyserve.observe.traces.process`` and this module are imported by those who make spans; the rest
imports OpenTelemetry, and is loaded in processes that trace.
"""

from __future__ import annotations

from contextvars import ContextVar

OutgoingMetadata = tuple[tuple[str, str], ...]
"""The metadata by which a request that is traced tells those it calls of its trace."""

IS_SAMPLED: ContextVar[bool] = ContextVar("pyserve_is_sampled", default=False)
"""Whether this code runs for a request that is traced; cheaper to look at than a span."""
