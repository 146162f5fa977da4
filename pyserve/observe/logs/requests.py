"""The request that a record is about, found by the context variable that follows user code."""

from __future__ import annotations

import logging
import re
import sys

from pyserve.request import CURRENT, Source

# What a text line shows of an id: clients choose theirs. More than any common id has.
_SHOWN_MAX = 128
_NOT_SHOWN = re.compile(r"[^!-~]|[\[\]%]")
# version, trace id, parent id, flags (w3.org/TR/trace-context, "traceparent Header").
_TRACE_ID = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


class RequestFilter(logging.Filter):
    """Gives each record ``request_id`` and ``trace_id``, ``""`` outside of a request.

    It belongs to handlers, because those see the records of every logger, in the context of the
    code that logs. What a record has already by ``extra=`` stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record; every one is to be written."""
        known = vars(record)
        if "request_id" not in known or "trace_id" not in known:
            source = CURRENT.get()
            known.setdefault("request_id", "" if source is None else source.request().request_id)
            known.setdefault("trace_id", trace_id_of(source))
        return True


def trace_id_of(source: Source | None) -> str:
    """Return the id of the sampled trace that this code belongs to, ``""`` without one."""
    # Whoever traces has loaded it; for others it is not loaded.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        found = trace.get_current_span().get_span_context()
        if found.is_valid and found.trace_flags.sampled:
            return f"{found.trace_id:032x}"
    call = getattr(source, "call", None)
    sampled = _TRACE_ID.fullmatch(getattr(call, "traceparent", ""))
    return sampled[1] if sampled is not None and sampled[1] != _NO_TRACE else ""


def request_mark(record: logging.LogRecord) -> str:
    """Return what a text line says of the request, ``""`` for a record outside of one."""
    names = {"": "request_id", "trace=": "trace_id"}
    found = [
        f"{mark}{_shown(value)}"
        for mark, name in names.items()
        if (value := getattr(record, name, ""))
    ]
    return f" [{' '.join(found)}]" if found else ""


def _shown(value: object) -> str:
    return _NOT_SHOWN.sub(_escape, str(value)[:_SHOWN_MAX])


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
