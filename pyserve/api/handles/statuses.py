"""From the status of a call to the exception that its caller gets: the one table of handles."""

from __future__ import annotations

import grpc

from pyserve.api.handles.calls import Metadata, Route
from pyserve.api.handles.failures import FAILURE_KEY, is_abort, rebuild, rebuild_abort
from pyserve.errors import (
    Abort,
    BackPressure,
    DeploymentUnavailable,
    PyserveError,
    ReferenceLost,
    RemoteError,
    RequestCancelled,
    RequestTimeout,
    SerializationError,
    UsageError,
)

_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_ERROR_OF_CODE: dict[grpc.StatusCode, type[PyserveError]] = {
    grpc.StatusCode.CANCELLED: RequestCancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestTimeout,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BackPressure,
    grpc.StatusCode.UNAVAILABLE: DeploymentUnavailable,
    grpc.StatusCode.DATA_LOSS: ReferenceLost,
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    # User code reports missing methods itself; the native half refuses codecs.
    grpc.StatusCode.UNIMPLEMENTED: SerializationError,
}


def error_of(
    route: Route, number: int | None, details: str | None, trailers: Metadata | None
) -> Exception:
    """Return what awaiting a call raises that ended with another status than OK.

    A trailer with a failure comes from user code; without it the mesh itself has said no.
    """
    code = _CODE_BY_NUMBER.get(number or 0, grpc.StatusCode.UNKNOWN)
    text = details or ""
    failure = next((value for key, value in trailers or () if key == FAILURE_KEY), None)
    if isinstance(failure, bytes):
        if is_abort(failure):
            return rebuild_abort(failure, Abort(code, text, _of_user(trailers)))
        return rebuild(failure)
    where = f"{route.key} {route.path.rpartition('/')[2]}"
    kind = _ERROR_OF_CODE.get(code)
    if kind is not None:
        return kind(f"{where}: {text or _DEFAULT_TEXTS.get(code, code.name)}")
    if code is grpc.StatusCode.INTERNAL:
        return RemoteError("unknown", f"{where}: {text}")
    # No status of the mesh: a method has chosen it, e.g. through its context.
    return Abort(code, text, _of_user(trailers))


_DEFAULT_TEXTS = {
    grpc.StatusCode.CANCELLED: "the call was cancelled",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the deadline has passed",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "no replica has room",
    grpc.StatusCode.UNAVAILABLE: "no replica is there",
}


def _of_user(trailers: Metadata | None) -> Metadata:
    return tuple(
        (key, value)
        for key, value in trailers or ()
        if key != FAILURE_KEY and not key.startswith(("pyserve-", "grpc-"))
    )
