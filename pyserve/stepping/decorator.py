"""``@pyserve.continuous``: requests join and leave a batch between its steps.

The decorated class gives ``admit`` and ``step``, and what else it wants of the methods that the
decorator names; its replica then answers requests by them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar, overload

from pyserve.errors import KindError, WrongMoment
from pyserve.request import CURRENT
from pyserve.signatures import read_signature
from pyserve.stepping.calls import Call
from pyserve.stepping.checks import check_class
from pyserve.stepping.drivers import Driver, LoopDriver, ThreadDriver
from pyserve.stepping.entries import Load
from pyserve.stepping.measures import Tell
from pyserve.stepping.moving import Elsewhere, Moved
from pyserve.stepping.options import ContinuousOptions, Reserve, StepIn, check_names
from pyserve.stepping.process_driver import ProcessDriver
from pyserve.stepping.stream_driver import StreamDriver
from pyserve.stepping.streams import batches_itself

Class = TypeVar("Class", bound=type)

_OPTIONS = "__pyserve_continuous__"
_DRIVER = "__pyserve_steps__"
_TELL = "__pyserve_costs__"
_TELL_FAILURE = "__pyserve_failed__"
_CALL = "__call__"
_IS_STEPPED = "__pyserve_is_stepped__"


class Answer:
    """The values of one request: ``await`` it for the last, or iterate it with ``async for``.

    The request begins with the first of these. Cancelling the one, or leaving the other by
    ``aclose``, ends it before the next step.
    """

    __slots__ = ("_call", "_instance", "_request")

    def __init__(self, instance: Any, request: Any) -> None:
        self._instance = instance
        self._request = request
        self._call: Call | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._begun(wants_each=False).wait_last().__await__()

    async def wait_admitted(self, *, wants_each: bool) -> bool:
        """Begin the request and wait until it has a state.

        Args:
            wants_each: Whether it is iterated afterwards, and not awaited.

        Returns:
            Whether it had one before it ended.
        """
        return await self._begun(wants_each=wants_each).wait_admitted()

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Any:
        return await self._begun(wants_each=True).__anext__()

    async def aclose(self) -> None:
        """End the request, if it has not ended."""
        if self._call is not None:
            self._call.close()

    def _begun(self, *, wants_each: bool) -> Call:
        call = self._call
        if call is None:
            return self._begin(wants_each=wants_each)
        if call.wants_each is not wants_each:
            raise WrongMoment("await the answer of a request, or iterate it, not both")
        return call

    def _begin(self, *, wants_each: bool) -> Call:
        driver = driver_of(self._instance)
        moved = self._request if isinstance(self._request, Moved) else None
        request = self._request if moved is None else moved.request
        client, priority = driver.client_of, driver.priority_of
        source = CURRENT.get()
        deadline = None if source is None else source.model_and_deadline()[1]
        call = self._call = Call(
            request,
            driver,
            wants_each=wants_each,
            client="" if client is None else str(client(request)),
            priority=0 if priority is None else int(priority(request)),
            deadline=math.inf if deadline is None else deadline,
            trace=None if driver.traces is None else driver.traces.call(),
            moved=moved,
        )
        driver.submit(call)
        return call


class Stepped:
    """A method that is answered by the steps of its class; as an attribute of an instance, a call.

    Args:
        admit: The class's ``admit``, whose signature it has.
    """

    def __init__(self, admit: Callable[..., Any]) -> None:
        functools.update_wrapper(self, admit)
        self.admit = admit

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self.bind(instance)

    def __call__(self, instance: object, request: Any) -> Answer:
        return Answer(instance, request)

    def bind(self, instance: object) -> Callable[..., Answer]:
        """Return the method of one instance."""
        admit: Any = getattr(instance, "admit")  # noqa: B009 (object has none for checkers)
        signature = read_signature(admit)
        # With an engine that calls back, `admit` has a second parameter, which callers do not give.
        signature = signature.replace(parameters=[*signature.parameters.values()][:1])

        @functools.wraps(admit)
        def call(*arguments: Any, **keywords: Any) -> Answer:
            if keywords or len(arguments) != 1:
                # Python's own error, or the one argument by its name.
                arguments = signature.bind(*arguments, **keywords).args
            return Answer(instance, arguments[0])

        call.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect` reads
        return call


class Steps:
    """Stands in a class for an RPC that its steps answer; see ``steps``."""

    def __init__(self, stream: bool | None) -> None:
        self.stream = stream


def steps(*, stream: bool | None = None) -> Any:
    """Let the steps of a continuously batched class answer one of its RPCs.

    ``Generate = pyserve.steps()`` in the class: ``admit`` gets the RPC's request, and values are
    its messages. An RPC that answers with a stream sends each value, one that answers with one
    message the last.

    Args:
        stream: Whether the RPC answers with a stream; ``None``: as its generated servicer says,
            which has to be a base of the class.
    """
    return Steps(stream)


def options_of(target: type) -> ContinuousOptions:
    """Return the options of a continuously batched class.

    Raises:
        KindError: It is none.
    """
    options = getattr(target, _OPTIONS, None)
    if not isinstance(options, ContinuousOptions):
        raise KindError(f"{target.__qualname__} has no @pyserve.continuous")
    return options


async def begin(answer: Answer, context: Any, *, wants_each: bool) -> None:
    """Begin a request, and tell the router when it has a state.

    Until the router has the head of the answer it may send the call to another replica, should
    this one be gone; see ``is_stepped``.

    Args:
        answer: Of the request.
        context: Of the call.
        wants_each: Whether the answer is iterated.
    """
    if await answer.wait_admitted(wants_each=wants_each):
        await context.send_initial_metadata(())


def is_stepped(method: object) -> bool:
    """Say whether steps answer a method, so that nothing has happened before its answer's head."""
    return isinstance(method, Stepped) or hasattr(method, _IS_STEPPED)


def is_continuous(target: object) -> bool:
    """Say whether a class, or the class of an instance, is batched continuously."""
    kind = target if isinstance(target, type) else type(target)
    return hasattr(kind, _OPTIONS)


def driver_of(instance: Any) -> Driver:
    """Return what steps an instance, on the running loop; made on first use.

    Raises:
        KindError: The instance has no ``__dict__`` to keep it in.
        WrongMoment: Another loop has used the instance.
    """
    driver = find_driver(instance)
    if driver is None:
        try:
            attributes = instance.__dict__
        except AttributeError:
            raise KindError(
                f"{type(instance).__qualname__} has __slots__, and its instances nowhere to keep "
                f"what steps them; add '__dict__' to them"
            ) from None
        driver = attributes[_DRIVER] = _make_driver(instance, options_of(type(instance)))
        if _TELL in attributes:
            driver.tell(attributes[_TELL])
        if _TELL_FAILURE in attributes:
            driver.tell_failure(attributes[_TELL_FAILURE])
    elif driver.loop is not asyncio.get_running_loop():
        raise WrongMoment(
            f"{type(instance).__qualname__} is stepped for another event loop; call it from that"
        )
    return driver


def _make_driver(model: Any, options: ContinuousOptions) -> Driver:
    if batches_itself(type(model)):
        return StreamDriver(model, options)
    if options.step_in == "process":
        return ProcessDriver(model, options)
    if options.step_in == "loop" or inspect.iscoroutinefunction(model.step):
        return LoopDriver(model, options)
    return ThreadDriver(model, options)


async def begin_steps(instance: object) -> None:
    """Start the process in which an instance steps, if it does, and wait until it can.

    Raises:
        Exception: What its ``setup`` has raised, or why the process has ended.
    """
    if is_continuous(instance) and options_of(type(instance)).step_in == "process":
        driver = driver_of(instance)
        assert isinstance(driver, ProcessDriver), "the option says so"
        await driver.wait_ready()


def tell_failure(instance: object, callback: Callable[[Exception], object]) -> None:
    """Call ``callback`` when the thread, task or process that steps an instance ends by itself."""
    attributes = getattr(instance, "__dict__", None)
    if attributes is None or not is_continuous(instance):
        return
    attributes[_TELL_FAILURE] = callback
    driver = find_driver(instance)
    if driver is not None:
        driver.tell_failure(callback)


def find_driver(instance: object) -> Driver | None:
    """Return what steps an instance, if anything does yet."""
    driver: Driver | None = getattr(instance, "__dict__", {}).get(_DRIVER)
    return driver


def tell_costs(instance: object, tell: Tell) -> None:
    """Report what an instance's requests cost, between its steps and when that has changed.

    Without effect for an instance that is not batched continuously, or whose class has no ``cost``.

    Args:
        instance: Whose requests.
        tell: Called on the thread that steps; see ``_router.Server.set_costs``.
    """
    attributes = getattr(instance, "__dict__", None)
    if attributes is None or not is_continuous(instance):
        return
    attributes[_TELL] = tell
    driver = find_driver(instance)
    if driver is not None:
        driver.tell(tell)


def load_of(instance: object) -> Load | None:
    """Return what an instance holds now; ``None`` before its first request."""
    driver = find_driver(instance)
    return None if driver is None else driver.load()


async def drain(instance: object, elsewhere: Elsewhere | None = None) -> None:
    """Refuse requests that have not been admitted; return when all others have ended.

    Args:
        instance: Of a continuously batched class, or another one.
        elsewhere: Where those that have been admitted go on, with ``resume_elsewhere``.
    """
    driver = find_driver(instance)
    if driver is not None:
        await driver.drain(elsewhere)


async def close(instance: object) -> None:
    """End all requests of an instance and release their states, after the step that runs."""
    driver = find_driver(instance)
    if driver is not None:
        await driver.close()


@overload
def continuous(target: Class, /) -> Class: ...
@overload
def continuous(
    *,
    max_running: int = 32,
    budget: float | None = None,
    max_waiting: int = 1000,
    step_ms: float | None = None,
    reserve: Reserve = "bound",
    isolate: bool = False,
    max_keys: int = 8,
    slack: int = 64,
    park_s: float | None = 10.0,
    max_preempts: int = 3,
    step_in: StepIn = "thread",
    resume_elsewhere: bool = False,
) -> Callable[[Class], Class]: ...
def continuous(target: Any = None, /, **options: Any) -> Any:
    """Answer the requests of a class by steps that it makes for many of them at once.

    Between two steps requests are admitted, and those that are done leave. The class has:

    - ``admit(request)``: returns the state of one request; may be ``async``.
    - ``step(states)``: makes one step for all of these and returns a list with an ``Emit``, a
      ``Done``, a ``Failed`` or ``None`` for each. A class whose own engine batches has none; its
      ``admit`` is an ``async def`` that yields the values of the request, or takes
      ``(request, emit)`` and has ``emit`` called with an ``Emit``, a ``Done`` or a ``Failed``, from
      any thread; ``emit`` returns whether more is wanted.
    - ``release(state)``, optional: called once for each state that ``admit`` or ``resume`` has
      returned, when its request is done, cancelled, failed or preempted.
    - ``cost(what)``, optional: what a request, a state or a snapshot takes of ``budget``; 1
      without it. ``bound(request)``, optional: what that request may come to cost.
    - ``key(request)``, optional: only states with equal keys share a step.
    - ``client(request)``, ``priority(request)``, optional: whose turn it is, and whether it comes
      before others (higher ones do).
    - ``setup()``, optional: called in the process that steps, before all others; see ``step_in``.
    - ``preempt(state)``, optional: returns a snapshot to go on from, or ``None`` to begin anew.
      ``resume(snapshot)``: returns a state again; may be ``async``.

    ``handle.remote(request)`` gets the last value, ``handle.options(stream=True).remote(request)``
    each. By plain HTTP the request is the JSON body; a client that accepts ``text/event-stream``
    gets each value as an event, others the last one. ``pyserve.steps`` lets an RPC be answered.

    Args:
        target: The class, when the decorator is written without parentheses.
        options: See ``pyserve.stepping.options.ContinuousOptions``.

    Raises:
        OptionError: A limit is out of range, or an option has a wrong name.
        KindError: The class lacks ``admit`` or ``step``, has a ``__call__`` of its own, or has no
            ``step`` and something that is about steps.
    """
    check_names(options)
    limits = ContinuousOptions(**options)

    def decorate(found: Any) -> Any:
        check_class(found, options)
        _check_call(found)
        # What an engine holds is for itself to preempt.
        own = replace(limits, park_s=None) if batches_itself(found) else limits
        setattr(found, _OPTIONS, own)
        for name, marker in tuple(vars(found).items()):
            if isinstance(marker, Steps):
                setattr(found, name, _rpc(found, name, marker))
        if _CALL not in vars(found):
            setattr(found, _CALL, Stepped(found.admit))
        return found

    return decorate if target is None else decorate(target)


def _check_call(target: type) -> None:
    name = target.__qualname__
    # Not by getattr: every class has the __call__ of its metaclass.
    own = next((vars(each)[_CALL] for each in target.__mro__ if _CALL in vars(each)), None)
    if own is not None and not isinstance(own, Stepped):
        raise KindError(
            f"@pyserve.continuous on {name}: it has a __call__ of its own, which its steps would "
            f"answer; name that method otherwise"
        )


def _rpc(target: type, name: str, marker: Steps) -> Callable[..., Any]:
    """Return the method of an RPC."""
    is_stream = marker.stream
    if is_stream is None:
        is_stream = _answers_with_stream(target, name)

    async def unary(self: Any, request: Any, context: Any) -> Any:
        answer = Answer(self, request)
        try:
            await begin(answer, context, wants_each=False)
            return await answer
        finally:
            await answer.aclose()

    async def stream(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        answer = Answer(self, request)
        try:
            await begin(answer, context, wants_each=True)
            async for value in answer:
                yield value
        finally:
            await answer.aclose()

    made: Any = stream if is_stream else unary
    made.__name__, made.__qualname__ = name, f"{target.__qualname__}.{name}"
    made.__module__ = target.__module__
    setattr(made, _IS_STEPPED, True)
    return made  # type: ignore[no-any-return]  # one of two functions


def _answers_with_stream(target: type, name: str) -> bool:
    kinds = _Kinds()
    for base in target.__mro__[1:]:
        module = sys.modules.get(base.__module__)
        stub: Any = getattr(module, f"{base.__name__.removesuffix('Servicer')}Stub", None)
        if name in vars(base) and stub is not None:
            stub(kinds)
            break
    kind = kinds.found.get(name)
    if kind is None:
        known = ", ".join(kinds.found) or "none"
        raise KindError(
            f"{target.__qualname__}.{name} = pyserve.steps(): no generated servicer among its "
            f"bases has an RPC of that name (it has {known}); add the servicer to the bases, or "
            f"say whether it answers with a stream: pyserve.steps(stream=True)"
        )
    if kind.startswith("stream"):
        raise KindError(
            f"{target.__qualname__}.{name} = pyserve.steps(): the RPC takes a stream of requests; "
            f"only RPCs with one request can be answered by steps"
        )
    return kind == "unary_stream"


class _Kinds:
    """Stands in for a channel, and notes the RPCs that a generated stub makes of it."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def __getattr__(self, kind: str) -> Callable[..., object]:
        def note(path: str, *_arguments: object, **_keywords: object) -> object:
            self.found[path.rpartition("/")[2]] = kind
            return None

        return note
