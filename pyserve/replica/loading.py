"""From what the controller assigned to a constructed object, with errors a user can act on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import cloudpickle

from pyserve.api.code import Code, ShippedCode, prepare_interpreter, receive
from pyserve.config import DeploymentOptions
from pyserve.errors import ImportPathError, PyserveError, ServicerError
from pyserve.replica.checks import Method, check_class, where
from pyserve.replica.servicers import Service, find_services
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
# How long a user's aclose() may take after the last call has ended.
_CLOSE_TIMEOUT_S = 5.0
# This package, and the import system, through which user code is reached.
_NOT_USER_CODE = (f"{Path(__file__).parent.parent}{os.sep}", "<frozen ")

Value = TypeVar("Value")


class LoadError(PyserveError):
    """The deployment cannot be brought up.

    Args:
        summary: What was wrong, where, and what to do.
        details: The traceback.
        user_code: Raised by the user's module, class or constructor.
    """

    def __init__(self, summary: str, details: str, *, user_code: bool) -> None:
        super().__init__(summary)
        self.summary = summary
        self.traceback = details
        self.user_code = user_code


@dataclass(frozen=True, slots=True)
class Loaded:
    """A class or function that has been imported and checked, and what its constructor gets."""

    target: Code
    options: DeploymentOptions
    services: tuple[Service, ...]
    methods: Mapping[str, Method]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    interceptors: Sequence[object]


def load(spec: mesh_pb2.DeploymentSpec) -> Loaded:
    """Import and check what a deployment runs, and unpack the arguments of its constructor.

    Raises:
        LoadError: It cannot be imported, or does not fit its services.
    """
    code = ShippedCode(
        import_path=spec.code.import_path,
        pickled=spec.code.pickled,
        sys_path=tuple(spec.code.sys_path),
        working_directory=spec.code.working_directory,
    )
    what = code.import_path or f"the code of {spec.name!r}, which the driver sent"
    _attempt(f"the interpreter for {what} could not be prepared", lambda: prepare_interpreter(code))
    target = _attempt(f"importing {what} failed", lambda: receive(code))
    services: tuple[Service, ...] = ()
    methods: Mapping[str, Method] = {}
    if isinstance(target, type):
        services, methods = _check(target, what)
    args, kwargs = _attempt(
        f"the arguments of {target.__name__}.bind(...) could not be unpacked",
        lambda: cloudpickle.loads(spec.arguments) if spec.arguments else ((), {}),
    )
    interceptors = _attempt(
        f"the interceptors of {spec.name!r} could not be unpacked",
        lambda: cloudpickle.loads(spec.interceptors) if spec.interceptors else [],
    )
    options = DeploymentOptions.from_json(spec.options_json)
    return Loaded(target, options, services, methods, args, kwargs, interceptors)


def _check(target: type, what: str) -> tuple[tuple[Service, ...], Mapping[str, Method]]:
    services = _attempt(f"{what} cannot be served", lambda: find_services(target))
    methods, warnings = _attempt(
        f"{what} does not fit its .proto", lambda: check_class(target, services)
    )
    for warning in warnings:
        _LOGGER.warning("%s", warning)
    return services, methods


def construct(loaded: Loaded) -> object:
    """Call the constructor; a function is returned as it is.

    Runs in the event loop's thread, with the loop running.

    Raises:
        LoadError: It raised.
    """
    if not isinstance(loaded.target, type):
        return loaded.target
    constructor = where(inspect.getattr_static(loaded.target, "__init__"))
    return _attempt(
        f"the constructor of {loaded.target.__qualname__} ({constructor}) raised",
        lambda: loaded.target(*loaded.args, **loaded.kwargs),
    )


async def warm_up(instance: object) -> None:
    """Call the instance's ``warmup`` hook, if it has one.

    Raises:
        LoadError: It raised.
    """
    hook = getattr(instance, "warmup", None)
    if hook is None:
        return
    try:
        result = hook()
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        label = f"{type(instance).__qualname__}.warmup ({where(hook)}) raised"
        raise _load_error(label, error) from error


async def close(instance: object) -> None:
    """Call the instance's ``aclose``, if it has one; ``__del__`` follows its last reference.

    What it raises is logged: nobody is there any more who could act upon it.
    """
    hook = getattr(instance, "aclose", None)
    if hook is not None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                result = hook()
                if inspect.isawaitable(result):
                    await result
        except Exception:
            _LOGGER.exception("%s.aclose raised", type(instance).__qualname__)


class StopRequested(SystemExit):
    """The replica was told to stop while user code was being brought up: not a failure of it."""


def _attempt(label: str, step: Callable[[], Value]) -> Value:
    try:
        return step()
    except StopRequested:
        raise
    except (Exception, SystemExit) as error:
        # SystemExit too: a module or constructor that exits has failed, with a place to name.
        raise _load_error(label, error) from error


def _load_error(label: str, error: Exception | SystemExit) -> LoadError:
    details = _format(error)
    if isinstance(error, ServicerError | ImportPathError):
        return LoadError(str(error), details, user_code=True)
    place = _place(error.__traceback__)
    text = f"{label}: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
        text = f"{label}: {type(error).__name__}: {error.msg}"
    summary = f"{text} (at {place})" if place else text
    return LoadError(summary, details, user_code=True)


def _format(error: Exception | SystemExit) -> str:
    """Return the traceback from the first frame of user code on, or all of it without one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_USER_CODE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _place(trace: TracebackType | None) -> str:
    """Return ``file:line`` of the innermost frame outside of this package."""
    frames = [
        frame
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith(_NOT_USER_CODE)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
