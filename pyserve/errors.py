"""The exceptions of pyserve: one tree, each class with its gRPC status and a retry decision.

::

    PyserveError
    ├── Abort                     raised by user code to answer with a status of its choice
    │   ├── RequestTooLarge       a request takes more than its replica has at all
    │   └── QueueFull             as many requests wait in a replica as may
    ├── UsageError                the caller of pyserve's API made a mistake
    │   ├── KindError             something is of another kind than it has to be (also a TypeError)
    │   ├── WrongMoment           it cannot be done here, or any more (also a RuntimeError)
    │   ├── OptionError           a deployment option has a wrong name, type or value
    │   │   └── OptionTypeError   its name or its type (also a TypeError)
    │   ├── ImportPathError       "module:attribute" cannot be parsed, imported or found
    │   ├── ServicerError         a class does not fit the services of its .proto
    │   ├── SerializationError    a codec is unknown, or cannot carry a value
    │   ├── ModelNotFound         there is no multiplexed model of that id (also a LookupError)
    │   │   └── ModelIdMissing    the request names none
    │   └── BatchError            a batched method broke its contract (also a TypeError)
    ├── RequestError              a call through a handle failed in the mesh
    │   ├── RequestCancelled      it was cancelled, by its caller or with its parent
    │   ├── RequestTimeout        its deadline passed (also a TimeoutError)
    │   ├── BackPressure          no replica had room, and the queue was full
    │   ├── DeploymentUnavailable no replica is there, or it went away during the call
    │   └── ReferenceLost         a referenced value was freed, or its holder is gone
    ├── RemoteError               user code raised something that cannot be rebuilt here
    ├── ModelLoadFailed           a multiplexed model could not be loaded a moment ago
    ├── DeploymentFailed          the mesh could not bring a deployment up (also a RuntimeError)
    ├── MeshError                 the control plane said no (also a RuntimeError)
    │   ├── MeshHeld              another mesh has, or another start takes, its directory
    │   ├── MeshNotFound          no mesh runs where one was looked for
    │   ├── MeshUnavailable       a mesh is known, but its controller does not answer
    │   └── VersionSkew           two processes differ by more than one minor release
    ├── NotInReplica              asked for the replica's context outside of a replica
    ├── UnfitPackages             packages have versions that do not fit (also an ImportError)
    ├── RuntimeForked             this process is a fork; the runtime lives in its parent
    └── NotYetSupported           named in the documentation for a later release

This module decides nothing and imports no other part of pyserve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from grpc import StatusCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    Metadata = Sequence[tuple[str, str | bytes]]


class PyserveError(Exception):
    """Base of everything that pyserve raises on purpose.

    Attributes:
        code: The gRPC status that this error becomes on the wire.
        retryable: Whether the same request may succeed when sent again unchanged.
    """

    code: StatusCode = StatusCode.INTERNAL
    retryable: ClassVar[bool] = False


class Abort(PyserveError):
    """Ends a call with a status chosen by user code.

    May be raised anywhere below a servicer method, or returned for one item of a batch.

    Args:
        code: Any status but ``OK``.
        details: Text for the caller; it is sent as it is, up to 6 KiB.
        trailing_metadata: Pairs of key and value; values of ``-bin`` keys are ``bytes``. A client
            of gRPC gets about 7.5 KiB of text and metadata: first the text is cut, with a note,
            then the largest pairs are left out, with a warning in the log.

    Raises:
        ValueError: ``code`` is ``OK``.
        TypeError: ``code`` is not a ``grpc.StatusCode``, or ``details`` is not a text.
    """

    http_status: ClassVar[int | None] = None
    """What plain HTTP is answered with; ``None``: what fits ``code``."""

    def __init__(
        self, code: StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> None:
        given: object = code
        if not isinstance(given, StatusCode):
            raise TypeError(f"Abort: code must be a grpc.StatusCode, not {given!r}")
        if code is StatusCode.OK:
            raise ValueError("Abort: code must not be OK; return the answer instead")
        given = details
        if not isinstance(given, str):
            kind = type(given).__name__
            raise TypeError(f"Abort: details must be a str, not {kind}; pass str(...) of it")
        super().__init__(code, details, trailing_metadata)
        self.code = code
        self.details = details
        self.trailing_metadata = tuple(trailing_metadata)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}"


class RequestTooLarge(Abort):
    """A request takes more than its replica has at all. By plain HTTP it is answered with 413.

    Args:
        details: Text for the caller; it is sent as it is.
    """

    http_status = 413

    def __init__(self, details: str) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, details)


class QueueFull(Abort):
    """As many requests wait in a replica as may. By plain HTTP it is answered with 503.

    Args:
        details: Text for the caller; it is sent as it is.
    """

    http_status = 503
    retryable = True

    def __init__(self, details: str) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, details, (("retry-after", "1"),))


class UsageError(PyserveError, ValueError):
    """A mistake in how pyserve's API was used; the text says what to write instead."""

    code = StatusCode.INVALID_ARGUMENT


class KindError(UsageError, TypeError):
    """Something is of the wrong kind: a stream, a value, a decorated function."""


class WrongMoment(UsageError, RuntimeError):
    """An operation is not possible here, or not any more."""


class OptionError(UsageError):
    """A deployment option has an unknown name, a wrong type or a value out of range."""


class OptionTypeError(OptionError, TypeError):
    """An option has an unknown name, or a value of a type that it never takes."""


class ImportPathError(UsageError):
    """A ``module:attribute`` path cannot be parsed, imported or found."""


class ServicerError(UsageError):
    """A class does not fit the services of its ``.proto``: name, kind or signature."""


class BatchError(UsageError, TypeError):
    """A batched method is not a coroutine function, or did not return a list."""

    code = StatusCode.INTERNAL


class SerializationError(UsageError):
    """A codec is unknown, or it cannot carry a value; the text names codec and type."""


class ModelNotFound(UsageError, LookupError):
    """The model id that a request names is unknown. The text is sent to clients.

    Loaders may raise it.
    """

    code = StatusCode.NOT_FOUND


class ModelIdMissing(ModelNotFound):
    """A request names no multiplexed model, and its handler needs one."""

    code = StatusCode.INVALID_ARGUMENT


class RequestError(PyserveError):
    """A call through a handle failed in the mesh, not in user code.

    Attributes:
        remote_traceback: Of the process where it failed, or "".
    """

    code = StatusCode.UNAVAILABLE
    remote_traceback = ""


class RequestCancelled(RequestError):
    """The call was cancelled: by its caller, or because the request that made it was."""

    code = StatusCode.CANCELLED


class RequestTimeout(RequestError, TimeoutError):
    """The deadline of the call has passed."""

    code = StatusCode.DEADLINE_EXCEEDED


class BackPressure(RequestError):
    """No replica had room, and as many calls as may wait were waiting.

    Attributes:
        status_code: What plain HTTP is answered with, 503 or 429, by the ``backpressure_config``
            of the deployment that was full.
        retry_after_s: When there may be room, in seconds; ``None``: unknown.
    """

    code = StatusCode.RESOURCE_EXHAUSTED
    status_code: int = 503
    retry_after_s: float | None = None
    retryable = True


class DeploymentUnavailable(RequestError):
    """The deployment has no replica, or the one that ran the call went away."""

    code = StatusCode.UNAVAILABLE
    retryable = True


class ReferenceLost(RequestError):
    """A referenced value was freed, or the process that held it is gone."""

    code = StatusCode.DATA_LOSS


class RemoteError(PyserveError):
    """User code raised an exception whose type cannot be rebuilt in this process.

    Args:
        type_name: ``module:qualname`` of the exception.
        message: Its text.
        remote_traceback: The traceback of the process where it was raised.
    """

    code = StatusCode.INTERNAL

    def __init__(self, type_name: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(type_name, message, remote_traceback)
        self.type_name = type_name
        self.message = message
        self.remote_traceback = remote_traceback

    def __repr__(self) -> str:
        # That of the exception which it stands for inside of another one, whose text has it.
        shown = self.__dict__.get("_pyserve_shown")
        return shown if isinstance(shown, str) else super().__repr__()

    def __str__(self) -> str:
        text = f"{self.type_name}: {self.message}" if self.message else self.type_name
        return f"{text}\n\n{self.remote_traceback}" if self.remote_traceback else text


class ModelLoadFailed(PyserveError):
    """A multiplexed model failed to load a moment ago; it is tried again after a pause."""

    code = StatusCode.UNAVAILABLE
    retryable = True


class DeploymentFailed(PyserveError, RuntimeError):
    """The mesh could not bring a deployment up.

    Args:
        deployment: Its name, or the application's where no single one is to blame.
        summary: One line: what was wrong, where, and what to do.
        remote_traceback: The traceback of the replica's process, or "".
    """

    code = StatusCode.FAILED_PRECONDITION

    def __init__(self, deployment: str, summary: str, remote_traceback: str = "") -> None:
        super().__init__(deployment, summary, remote_traceback)
        self.deployment = deployment
        self.summary = summary
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        text = f"deployment {self.deployment!r} failed: {self.summary}"
        return f"{text}\n\n{self.remote_traceback}" if self.remote_traceback else text


class MeshError(PyserveError, RuntimeError):
    """The control plane refused a request, or an ingress cannot listen."""

    code = StatusCode.FAILED_PRECONDITION


class MeshHeld(MeshError):
    """A mesh cannot start, because another one, which may just start or end, has its directory."""

    code = StatusCode.ALREADY_EXISTS


class MeshNotFound(MeshError):
    """No mesh runs where one was looked for."""

    code = StatusCode.NOT_FOUND


class MeshUnavailable(MeshError):
    """A mesh is known, but its controller does not answer."""

    code = StatusCode.UNAVAILABLE
    retryable = True


class VersionSkew(MeshError):
    """Two processes run releases that differ by more than one minor version."""


class NotInReplica(PyserveError, RuntimeError):
    """The replica's context was asked for outside of a replica."""

    code = StatusCode.FAILED_PRECONDITION


class UnfitPackages(PyserveError, ImportError):
    """Packages that pyserve needs are installed in versions that it cannot work with."""

    code = StatusCode.FAILED_PRECONDITION


class RuntimeForked(PyserveError, RuntimeError):
    """This process is a fork of the one that started the runtime, which stayed there."""

    code = StatusCode.FAILED_PRECONDITION


class NotYetSupported(PyserveError, NotImplementedError):
    """A documented feature that this release does not have."""

    code = StatusCode.UNIMPLEMENTED
