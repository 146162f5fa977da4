"""How calls ended, as a label. Pure."""

from __future__ import annotations

# google.rpc.Code: the numbers of gRPC's codes are their places here.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)


def code_name(code: int | str) -> str:
    """Return the name of one of gRPC's codes, or a class of HTTP's statuses as it is."""
    if isinstance(code, str):
        return code
    # A peer may send any number.
    return _CODES[code] if 0 <= code < len(_CODES) else "UNKNOWN"
