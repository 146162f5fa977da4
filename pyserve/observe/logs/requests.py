"""The request that a record is about, found by the context variable that follows user code."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Container
from typing import Any

from pyserve.request import CURRENT, Source

# What a text line shows of an id: clients choose theirs. More than any common id has.
_SHOWN_MAX = 128
_NOT_SHOWN = re.compile(r"[^!-~]|[\[\]%]")
# version, trace id, parent id, flags (w3.org/TR/trace-context, "traceparent Header").
_TRACE_ID = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")
_NO_TRACE = "0" * 32


class _Known(str):
    """An id that the filter has found, as opposed to one that code gave by ``extra=``.

    A record passes the filters of several handlers, which may run in other contexts.
    """

    __slots__ = ()


class RequestFilter(logging.Filter):
    """Gives each record ``request_id`` and ``trace_id``, ``""`` outside of a request.

    It belongs to handlers, because those see the records of every logger, in the context of the
    code that logs. Values that a record has by ``extra=`` stay outside of a request; of a call's
    record they become ``extra_request_id`` and ``extra_trace_id``.

    Args:
        of_deployments_only: Requests that no deployment handles (between processes of a mesh) are
            no requests.
    """

    def __init__(self, *, of_deployments_only: bool = False) -> None:
        super().__init__()
        self._of_deployments_only = of_deployments_only

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record; every one is to be written."""
        known = vars(record)
        if not (_is_known(known, "request_id") and _is_known(known, "trace_id")):
            source = CURRENT.get()
            _complete(known, "request_id", self._request_id(source))
            _complete(known, "trace_id", trace_id_of(source))
        return True

    def _request_id(self, source: Source | None) -> str:
        if source is None:
            return ""
        request = source.request()
        return request.request_id if request.deployment or not self._of_deployments_only else ""


def _is_known(values: dict[str, Any], name: str) -> bool:
    return isinstance(values.get(name), _Known)


def _complete(values: dict[str, Any], name: str, found: str) -> None:
    if _is_known(values, name):
        return
    given = values.get(name, "")
    if found and not (isinstance(given, str) and given in ("", found)):
        values[other_name(name, values)] = given
    if found or name not in values:
        values[name] = _Known(found)


def other_name(name: str, taken: Container[str]) -> str:
    """Return the name under which a value of ``extra=`` stays where the mesh's has its own."""
    while name in taken:
        name = f"extra_{name}"
    return name


def trace_id_of(source: Source | None) -> str:
    """Return the id of the sampled trace that this code belongs to, ``""`` without one."""
    # A process that traces has imported it; in other processes it is not imported.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        found = trace.get_current_span().get_span_context()
        if found.is_valid and found.trace_flags.sampled:
            return f"{found.trace_id:032x}"
    call = getattr(source, "call", None)
    return trace_in(getattr(call, "traceparent", ""))


def trace_in(traceparent: str) -> str:
    """Return the id of the trace if it is sampled, ``""`` if not."""
    found = _TRACE_ID.fullmatch(traceparent)
    sampled = found is not None and int(found[2], 16) & 1 and found[1] != _NO_TRACE
    return found[1] if found is not None and sampled else ""


def request_mark(record: logging.LogRecord) -> str:
    """Return what a text line says of the request, ``""`` for a record outside of one."""
    names = {"": "request_id", "trace=": "trace_id"}
    found = [
        f"{mark}{shown_id(value)}"
        for mark, name in names.items()
        if (value := getattr(record, name, ""))
    ]
    return f" [{' '.join(found)}]" if found else ""


def shown_id(value: object) -> str:
    """Return an id as text lines have it, in which nothing can be taken for something else."""
    return _NOT_SHOWN.sub(_escape, str(value)[:_SHOWN_MAX])


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
