"""Loads and constructs what the controller assigned, with errors that a user can act on."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from pyserve.api.code import Code, ShippedCode, prepare_interpreter, receive
from pyserve.api.context import get_replica_context
from pyserve.api.ingress import ingress_of
from pyserve.batching import Batched, drain
from pyserve.bridge import end_if_forked
from pyserve.config import DeploymentOptions
from pyserve.errors import ImportPathError, PyserveError, ServicerError
from pyserve.interrupts import raise_ctrl_c
from pyserve.multiplexing import close_all, preload_all
from pyserve.multiplexing.unloading import disarm, finalize, has_async_finalizer
from pyserve.observe.failures import (
    blames_user_code,
    describe,
    format_from_user_code,
    user_code_logger,
)
from pyserve.replica.asgi import AsgiApplication, LifespanFailed
from pyserve.replica.asgi.middlewares import read_middlewares, wrap
from pyserve.replica.asgi.refusals import answer_refusals
from pyserve.replica.batching_doors import batched_methods, with_batched_rpcs
from pyserve.replica.checks import Method, check_class, where
from pyserve.replica.handlers import find_by_name
from pyserve.replica.hooks import Hook, HookFailed, facts_json
from pyserve.replica.http import behind
from pyserve.replica.idempotence import idempotent_routes
from pyserve.replica.moving import values_elsewhere
from pyserve.replica.plain.methods import uncallable_text
from pyserve.replica.servicers import Service, find_services
from pyserve.signatures import read_signature
from pyserve.stepping import decorator as steps
from pyserve.types import MODEL_ATTRIBUTE, START_ATTRIBUTE
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    from pyserve.aio import HttpHandler
    from pyserve.inference import Model
    from pyserve.replica.inference import InferenceDoors
    from pyserve.replica.plain.methods import PlainMethod

_LOGGER = user_code_logger(__name__)
# The least time for each of a user's last hooks, even if the calls took all of the grace.
_CLOSE_TIMEOUT_S = 5.0

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
    """A class or function that was imported and checked, and the arguments of its constructor."""

    target: Code
    options: DeploymentOptions
    services: tuple[Service, ...]
    methods: Mapping[str, Method]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    interceptors: Sequence[object]
    batched: Mapping[str, Batched[Any]] = field(default_factory=dict)  # by batching_config

    @property
    def model(self) -> Model | None:
        """The model whose tensors the class declares (``pyserve.inference``), if it does.

        Classes without a model need not have numpy installed.
        """
        if not hasattr(self.target, MODEL_ATTRIBUTE):
            return None
        from pyserve.inference import model_of

        return model_of(self.target)


def load(
    spec: mesh_pb2.DeploymentSpec,
    functions: Sequence[str] = (),
    on_prepared: Callable[[], object] = lambda: None,
) -> Loaded:
    """Import and check what a deployment runs, and unpack the arguments of its constructor.

    Args:
        spec: Of the deployment.
        functions: The mesh's ``grpc_servicer_functions``.
        on_prepared: Called when modules of the deployment can be imported, and none of them is.

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
    options = DeploymentOptions.from_peer(spec.options_json)
    _attempt(
        f"the interpreter for {what} could not be prepared",
        lambda: prepare_interpreter(
            code, own_directory=bool(options.working_dir), own_packages=bool(options.pip)
        ),
    )
    on_prepared()
    target = _attempt(f"importing {what} failed", lambda: receive(code))
    services: tuple[Service, ...] = ()
    methods: Mapping[str, Method] = {}
    if isinstance(target, type):
        services, methods = _check(target, what, functions if spec.is_ingress else ())
    batched: Mapping[str, Batched[Any]] = {}
    if (config := options.batching_config) is not None:
        label = f"the batching_config of {spec.name!r} cannot be used"
        batched = _attempt(label, lambda: batched_methods(target, config))
        methods = _attempt(label, lambda: with_batched_rpcs(methods, batched))
    args, kwargs = _attempt(
        f"the arguments of {target.__name__}.bind(...) could not be unpacked",
        lambda: cloudpickle.loads(spec.arguments) if spec.arguments else ((), {}),
    )
    interceptors = _attempt(
        f"the interceptors of {spec.name!r} could not be unpacked",
        lambda: cloudpickle.loads(spec.interceptors) if spec.interceptors else [],
    )
    return Loaded(target, options, services, methods, args, kwargs, interceptors, batched)


def _check(
    target: type, what: str, functions: Sequence[str]
) -> tuple[tuple[Service, ...], Mapping[str, Method]]:
    inherited = _attempt(f"{what} cannot be served", lambda: find_services(target))
    methods, warnings = _attempt(
        f"{what} does not fit its .proto", lambda: check_class(target, inherited)
    )
    named, by_their_names, lines = _attempt(
        f"the grpc_servicer_functions cannot be used for {what}",
        lambda: find_by_name(target, functions, besides=inherited),
    )
    services, warnings = (*inherited, *named), [*warnings, *lines]
    if not services and ingress_of(target) is None and (text := uncallable_text(target)):
        warnings.append(text)
    for warning in warnings:
        _LOGGER.warning("%s", warning)
    return services, {**methods, **by_their_names}


def inference_doors(
    loaded: Loaded, methods: Mapping[str, PlainMethod], *, development: bool
) -> InferenceDoors | None:
    """Return the doors of the model that the class declares, ``None`` if it declares none."""
    if (model := loaded.model) is None:
        return None
    from pyserve.replica.inference import InferenceDoors

    return InferenceDoors(model, methods, development=development)


def construct(loaded: Loaded) -> object:
    """Call the constructor; a function is returned as it is.

    Runs in the event loop's thread, with the loop running. Of a class with an ``async def
    __init__`` the instance is empty until ``initialize`` has ended.

    Raises:
        LoadError: It raised.
        StopRequested: The replica is to end; it has what was made, where that needs the loop.
    """
    if not isinstance(loaded.target, type):
        return loaded.batched.get("__call__", loaded.target)
    return _make(loaded.target, loaded)


def _make(target: Any, loaded: Loaded) -> object:
    label, args, kwargs = _constructor(target), loaded.args, loaded.kwargs
    is_async = _async_constructor(target) is not None
    # Python itself calls a plain ``__del__``. A metaclass may make something else than an instance.
    is_split = has_async_finalizer(target) and type(target).__call__ is type.__call__
    if not is_async and not is_split:
        return _attempt(label, lambda: target(*args, **kwargs))
    instance = _attempt(label, lambda: target.__new__(target, *args, **kwargs))
    if is_async:
        return instance
    try:
        _attempt(label, lambda: target.__init__(instance, *args, **kwargs))
    except StopRequested as stop:
        stop.unfinished = instance
        stop.grace_s = loaded.options.graceful_shutdown_timeout_s
        raise
    except LoadError:
        disarm(instance)
        raise
    return instance


async def initialize(loaded: Loaded, instance: object) -> None:
    """Await an ``async def __init__``; any other has run when the instance was constructed.

    Raises:
        LoadError: It raised.
    """
    target = loaded.target
    initializer = _async_constructor(target) if isinstance(target, type) else None
    if initializer is None:
        return
    try:
        await initializer(instance, *loaded.args, **loaded.kwargs)
    except BaseException as error:
        _raise_end(error)
        disarm(instance)
        end_if_forked(error)
        raise _load_error(_constructor(target), error) from error


def _async_constructor(target: Any) -> Callable[..., Awaitable[None]] | None:
    return target.__init__ if inspect.iscoroutinefunction(target.__init__) else None


def _constructor(target: Any) -> str:
    place = where(inspect.getattr_static(target, "__init__"))
    return f"the constructor of {target.__qualname__} ({place}) raised"


async def reconfigure(instance: object, config: object, *, timeout_s: float) -> None:
    """Give the instance its ``user_config``; without one nothing is called.

    A parameter ``rank`` gets the ``ReplicaRank``, as in Ray Serve. A plain ``reconfigure`` runs in
    the event loop, as the constructor does: calls of ``async def`` methods never see half of it.

    Raises:
        LoadError: ``reconfigure`` raised or took longer than ``timeout_s``, or there is none.
    """
    if config is None:
        return
    name = f"{type(instance).__qualname__}.reconfigure"
    hook = _attempt(
        f"there is no {name} for the user_config", lambda: attrgetter("reconfigure")(instance)
    )
    late = asyncio.timeout(timeout_s)
    try:
        async with late:
            takes_rank = "rank" in read_signature(hook).parameters
            result = hook(config, rank=get_replica_context().rank) if takes_rank else hook(config)
            if inspect.isawaitable(result):
                await result
    except BaseException as error:
        _raise_end(error)
        end_if_forked(error)
        what = f"took longer than {timeout_s:g} s" if late.expired() else "raised"
        raise _load_error(f"{name} ({where(hook)}) {what}", error) from error


async def warm_up(instance: object) -> None:
    """Load the models that are needed from the start, then call ``start`` and ``warmup``.

    Raises:
        LoadError: A loader or a hook raised.
    """
    try:
        await preload_all(instance)
    except BaseException as error:
        _raise_end(error)
        end_if_forked(error)
        label = f"{type(instance).__qualname__} could not preload its models"
        raise _load_error(label, error) from error
    for name in (getattr(type(instance), START_ATTRIBUTE, ""), "warmup"):
        await _run_hook(instance, name)


async def _run_hook(instance: object, name: str) -> None:
    hook = getattr(instance, name, None) if name else None
    if hook is None:
        return
    try:
        result = hook()
        if inspect.isawaitable(result):
            await result
    except BaseException as error:
        _raise_end(error)
        end_if_forked(error)
        label = f"{type(instance).__qualname__}.{name} ({where(hook)}) raised"
        raise _load_error(label, error) from error


async def check_first(instance: object, timeout_s: float) -> None:
    """Ask ``check_health`` before calls come, so that a broken replica never takes one.

    Args:
        instance: The user's object.
        timeout_s: How long it may take.

    Raises:
        LoadError: It raised, or took longer.
    """
    method = getattr(instance, "check_health", None)
    if method is None:
        return
    try:
        await Hook(method, lambda _answer: None, timeout_s=timeout_s).ask()
    except HookFailed as error:
        cause = error.__cause__
        trace = format_from_user_code(cause) if isinstance(cause, Exception) else str(error)
        label = f"{type(instance).__qualname__}.check_health ({where(method)})"
        raise LoadError(f"{label} {error}", trace, user_code=True) from error


async def metadata_json(instance: object) -> str:
    """Return the result of ``record_replica_metadata``; ``""`` without that hook.

    Raises:
        LoadError: The hook raised, or its answer cannot travel.
    """
    hook = getattr(instance, "record_replica_metadata", None)
    if hook is None:
        return ""
    try:
        result = hook()
        return facts_json(await result if inspect.isawaitable(result) else result)
    except Exception as error:
        label = f"{type(instance).__qualname__}.record_replica_metadata ({where(hook)}) failed"
        raise _load_error(label, error) from error


async def start_application(target: Code, middlewares: str | None = None) -> AsgiApplication | None:
    """Build the ASGI application of a class with an ingress and run its startup.

    Args:
        target: The class.
        middlewares: Import path of a function that returns what stands before the application.

    Raises:
        LoadError: The function that builds it or that of the middlewares raised, or its startup
            failed.
    """
    ingress = ingress_of(target)
    if ingress is None or not isinstance(target, type):
        return None
    try:
        built = await ingress.build(target)
    except Exception as error:
        label = f"the application of {target.__qualname__} could not be built"
        raise _load_error(label, error) from error
    answer_refusals(built)
    routes = tuple(idempotent_routes(built))
    inner = built
    if middlewares is not None:
        path = middlewares
        label = f"the middlewares of {path} could not be made"
        built = _attempt(label, lambda: wrap(built, read_middlewares(path)))
    application = AsgiApplication(built, routes, inner)
    try:
        await application.startup()
    except LifespanFailed as error:
        text = f"the lifespan of the application of {target.__qualname__} failed at its startup"
        last_line = error.text.strip().rpartition("\n")[2]
        raise LoadError(f"{text}: {last_line}", error.text, user_code=True) from error
    return application


def front_of(path: str | None) -> Callable[[HttpHandler], HttpHandler] | None:
    """Return what puts the middlewares of an import path before a handler of plain HTTP.

    It raises ``LoadError`` where they cannot be made.
    """
    if path is None:
        return None
    label = f"the middlewares of {path} could not be made"

    def front(handler: HttpHandler) -> HttpHandler:
        return _attempt(label, lambda: behind(handler, read_middlewares(path)))

    return front


async def stop_application(application: AsgiApplication) -> None:
    """Run the shutdown of an application; what it raises is logged."""
    await _attempt_close("the shutdown of the application's lifespan", application.shutdown)


async def drain_batches(instance: object) -> None:
    """Release every batch without a wait from now on; return when no call waits in one.

    States of a continuously batched class that may move go on at another replica.
    """
    await steps.drain(instance, values_elsewhere)
    if isinstance(instance, Batched):
        await instance.drain()
    else:
        await drain(instance)


async def close(instance: object, ends_at: float) -> None:
    """Unload models, then call ``aclose`` and an ``async def __del__`` if they exist.

    A plain ``__del__`` runs with the last reference. Exceptions are only logged, since there is
    nothing left to act on them.

    Args:
        instance: The user's object.
        ends_at: The loop's time until which they may take; a few seconds each in any case.
    """
    name = type(instance).__qualname__
    await _attempt_close(f"releasing the states of {name}", steps.close, instance, ends_at=ends_at)
    await _attempt_close(f"unloading the models of {name}", close_all, instance, ends_at=ends_at)
    hook = getattr(instance, "aclose", None)
    if hook is not None:
        await _attempt_close(f"{name}.aclose", hook, ends_at=ends_at)
    await leave_unfinished(instance, ends_at)


async def leave_unfinished(instance: object, ends_at: float) -> None:
    """Await the ``async def __del__`` of an instance, finished or not; see ``close``."""
    what = f"{type(instance).__qualname__}.__del__"
    await _attempt_close(what, finalize, instance, ends_at=ends_at)


async def _attempt_close(
    what: str, step: Callable[..., object], *args: object, ends_at: float = 0.0
) -> None:
    at_least = asyncio.get_running_loop().time() + _CLOSE_TIMEOUT_S
    try:
        async with asyncio.timeout_at(max(ends_at, at_least)):
            result = step(*args)
            if inspect.isawaitable(result):
                await result
    except Exception:
        _LOGGER.exception("%s raised", what)


class StopRequested(SystemExit):
    """The replica was told to stop while user code was being brought up: not a failure of it.

    Attributes:
        unfinished: An instance whose constructor has begun, and whose ``__del__`` needs the loop.
        grace_s: How long its deployment gives it.
    """

    unfinished: object = None
    grace_s = 0.0


def _attempt(label: str, step: Callable[[], Value]) -> Value:
    try:
        return step()
    except BaseException as error:
        _raise_end(error)
        end_if_forked(error)
        raise _load_error(label, error) from error


def _raise_end(error: BaseException) -> None:
    """Raise what means the end of the load; anything else that user code raises is its failure.

    A module or constructor that exits has failed too, with a place to name.
    """
    raise_ctrl_c(error)
    if isinstance(error, StopRequested | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError):
        with contextlib.suppress(RuntimeError):  # No loop runs: nobody can have cancelled this.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise error


def _load_error(label: str, error: BaseException) -> LoadError:
    details = format_from_user_code(error)
    if isinstance(error, ServicerError | ImportPathError):
        # It says where to look. Frames that are all ours would only hide it.
        return LoadError(str(error), details if blames_user_code(error) else "", user_code=True)
    return LoadError(f"{label}: {describe(error)}", details, user_code=True)
