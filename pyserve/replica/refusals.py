"""The answer to a client when a call that its handler made has failed in the mesh.

User code that lets such an error through does not choose an answer, and only some of these errors
are worth a retry. An ``Abort`` has its own status and text. The statuses are those of the ingress.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.aio import Status
from pyserve.bridge import http_status
from pyserve.errors import Abort, BackPressure, ModelLoadFailed, ModelNotFound, RequestError
from pyserve.observe.failures import failure_logger

if TYPE_CHECKING:
    from pyserve.errors import Metadata

_LOGGER = failure_logger(__name__)

CallFailure = RequestError | ModelLoadFailed | ModelNotFound
"""The exceptions of calls that failed in the mesh, and not in user code.

A model that does not exist needs no further text, and is logged where models are loaded.
"""


_RETRY_AFTER_S = 1  # As the router answers when it has no better estimate.
_TEXTS = {
    StatusCode.CANCELLED: "A call to a deployment behind this one was cancelled.",
    StatusCode.DEADLINE_EXCEEDED: "A deployment behind this one has not answered in time.",
    StatusCode.RESOURCE_EXHAUSTED: "A deployment behind this one has no room; come again later.",
    StatusCode.UNAVAILABLE: "A deployment behind this one cannot be reached; come again later.",
    StatusCode.DATA_LOSS: "A value of a deployment behind this one is lost.",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plain HTTP answer in place of the handler's.

    Attributes:
        status: Its status.
        text: For people; it reveals nothing about the mesh's internals.
        retry_after_s: Whole seconds; ``None``: a retry would not help.
        metadata: More headers; entries with bytes are left out.
    """

    status: int
    text: str
    retry_after_s: int | None
    metadata: Metadata = ()

    @property
    def body(self) -> bytes:
        """The text with a line end."""
        return f"{self.text}\n".encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the answer's headers without the length."""
        found = [(b"content-type", b"text/plain; charset=utf-8")]
        if self.retry_after_s is not None:
            found.append((b"retry-after", str(self.retry_after_s).encode()))
        for name, value in self.metadata:
            if isinstance(value, str):
                found.append((name.lower().encode(), value.encode()))
        return found


def refusal_of(error: BaseException) -> Refusal | None:
    """Return how to answer a request whose handler let ``error`` through.

    Returns:
        ``None``: It is neither a failure of a call in the mesh nor an ``Abort``.
    """
    if isinstance(error, Abort):
        text = error.details or error.code.name
        status = error.http_status or http_status(error.code.value[0])
        return Refusal(status, text, None, error.trailing_metadata)
    if not isinstance(error, CallFailure):
        return None
    status = http_status(error.code.value[0])
    after_s: float | None = None
    if isinstance(error, BackPressure):
        status, after_s = error.status_code, error.retry_after_s
    retry_after_s = None
    if status in (503, 429):
        retry_after_s = max(1, math.ceil(_RETRY_AFTER_S if after_s is None else after_s))
    of_mesh = _TEXTS.get(error.code, error.code.name)
    text = str(error) if isinstance(error, ModelNotFound) else of_mesh
    return Refusal(status, text, retry_after_s)


def status_of_refusal(error: BaseException, context: Any, *, development: bool) -> Status | None:
    """Return the status of a gRPC call whose handler let ``error`` through; log it.

    Args:
        error: What the handler raised.
        context: The call's ``ServicerContext``.
        development: Whether texts of exceptions may reach clients.

    Returns:
        ``None``: It is not a failure of a call in the mesh, or the handler has set a status itself.
    """
    if not isinstance(error, CallFailure) or (refusal := refusal_of(error)) is None:
        return None
    if context.code() is not None or context.cancel_reason is not None:
        return None
    if isinstance(error, ModelNotFound):
        return Status(error.code, refusal.text)
    path = context.method.path
    name = type(error).__name__
    _LOGGER.warning("%s in %s: %s", name, path, error, extra={"place": (path, name)})
    return Status(error.code, f"{name}: {error}" if development else refusal.text)
