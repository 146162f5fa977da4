"""Errors that say no more than that the deadline of the call itself has passed."""

import grpc

LATE_DETAILS = "The deadline of the call has passed."


def is_late(error: BaseException, remaining_s: float | None) -> bool:
    """Tell whether a handler gave up because its call's deadline has passed.

    A handler often waits for something (a nested call, ``asyncio.timeout``) that has the same
    deadline as its own call. Either may expire first, and the caller must get the same status in
    both cases.

    Args:
        error: What the handler raised.
        remaining_s: What ``time_remaining()`` of its call says.
    """
    if remaining_s != 0:
        return False
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", None)
        return callable(code) and code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return isinstance(error, TimeoutError)
