"""A reference to a deployment that may be copied, pickled and passed to other deployments."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from pyserve.api.context import attached, expect_calls
from pyserve.api.handles.calls import Pinned
from pyserve.api.handles.choosing import BroadcastResponse, ReplicaSelection
from pyserve.api.handles.framing import FLUSH_METHOD
from pyserve.api.handles.options import Options, checked
from pyserve.api.handles.plan import Plan
from pyserve.api.handles.response import DeploymentResponse
from pyserve.api.handles.stream import DeploymentResponseGenerator, StreamCall
from pyserve.api.handles.typing import Deployed_co
from pyserve.errors import DeploymentUnavailable, KindError, WrongMoment
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Concatenate, Unpack

    import grpc.aio

    from pyserve.api.handles.typing import Arguments, MethodHandle, Remote, Result, Untyped
    from pyserve.config.keywords import HandleKeywords

# Each handle of this process has one of its own; taking one is atomic.
_NUMBERS = itertools.count(1)
# More names than a class has methods come from outside, and are not kept. Arbitrary.
_METHODS_MAX = 64


class DeploymentHandle(Generic[Deployed_co]):
    """Calls one deployment of the mesh that this process is in.

    ``handle.remote(...)`` calls ``__call__``, ``handle.name.remote(...)`` the method ``name``, and
    so does ``handle[Class.name].remote(...)``, which type checkers understand: the type parameter
    names the class. Making a handle or a copy costs next to nothing: the mesh is looked up when
    the handle is used, and all handles of a process share its routers.
    """

    __slots__ = ("_is_used", "_key", "_methods", "_number", "_options", "_plan")

    def __init__(self, deployment_name: str, app_name: str, **options: object) -> None:
        checked(options)
        self._key = DeploymentKey(ApplicationName(app_name), DeploymentName(deployment_name))
        self._options: Options = options
        # Copies share it: together they are one caller to the queues of routers.
        self._number = next(_NUMBERS)
        self._plan: Plan | None = None
        self._is_used = False  # There are copies, or it is one; calls have a plan.
        self._methods: dict[str, DeploymentHandle[Deployed_co]] | None = None
        expect_calls()

    @property
    def deployment_name(self) -> str:
        """The deployment's name, unique in its application."""
        return self._key.deployment

    @property
    def app_name(self) -> str:
        """The application's name."""
        return self._key.application

    # --- calls --------------------------------------------------------------------------------

    if TYPE_CHECKING:
        remote = Remote()
        """Call ``__call__``, or the function, and return at once; see ``RemoteCall``."""
    else:

        def remote(self, /, *args: Any, **kwargs: Any) -> Any:
            """Call the method and return at once.

            A ``DeploymentResponse`` or an ``ObjectRef`` that is an argument of its own is resolved
            before the call is sent, wherever its value is.

            Returns:
                A ``DeploymentResponse``, or with ``stream=True`` a ``DeploymentResponseGenerator``.

            Raises:
                MeshNotFound: This process is in no mesh.
                SerializationError: The codec cannot carry the arguments.
            """
            plan = self._plan
            return _started(self._own_plan() if plan is None else plan, args, kwargs)

    def options(self, **options: Unpack[HandleKeywords]) -> DeploymentHandle[Deployed_co]:
        """Return a copy in which the given options replace the present ones.

        Args:
            **options: With the defaults of a handle that nobody has changed:
                ``stream`` (False): the method yields, and its items are iterated over;
                ``method_name`` (``"__call__"``): what ``remote`` calls;
                ``multiplexed_model_id`` (``""``): the model that the call needs;
                ``session_id`` (``""``): equal ones go to the same replica, with the policy
                ``"consistent_hash"``;
                ``cache_keys`` (``()``): the cache entries that the call would like to find, of a
                chain in its order, or a function of the call's arguments that returns them (see
                ``pyserve.cache``);
                ``timeout_s`` (None): time limit of the call in seconds; None: what is left of the
                request that makes it;
                ``priority`` (0): from -128 to 127, higher ones leave the queue first;
                ``cost`` (None): what the call costs a continuously batched deployment, in the unit
                of its ``cost``; None: as calls like it;
                ``idempotent`` (False): it may be sent again after it has started;
                ``detached`` (False): it goes on when the request that makes it is cancelled;
                ``request_serialization``, ``response_serialization`` (None): names of codecs;
                None: the deployment's ``serializer``;
                ``_by_reference`` (None): whether large values stay where they were made; None: by
                their size;
                ``_prefer_local_routing`` (None): replicas of this node and zone first, ``"zone"``:
                of this zone; None: as the deployment's ``request_router_config`` says.

        Raises:
            OptionError: An option has an unknown name or a wrong value.
        """
        checked(options)
        self._is_used = True
        return self._copy({**self._options, **options})

    @asynccontextmanager
    async def choose_replica(
        self, *_args: object, **_kwargs: object
    ) -> AsyncIterator[ReplicaSelection]:
        """Take a place at a replica before it is known what will be called there.

        ``async with handle.choose_replica() as selection: ...``; the place is given back at the
        end of the block, unless ``dispatch`` has used it. Arguments are accepted for those who
        come from Ray Serve; the choice looks at the handle's options only.

        Raises:
            RequestError: There was none in time.
        """
        plan = self._own_plan()
        _, timeout_s = plan.inherited()
        caller = plan.caller()
        reservation = await caller.choose(plan.route, timeout_s)
        place = caller.place_of(reservation.replica_id)
        selection = ReplicaSelection(self._key, reservation, place)
        try:
            yield selection
        finally:
            selection.release()

    def dispatch(self, selection: ReplicaSelection, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method at the chosen replica; see ``remote``.

        Raises:
            UsageError: The selection was used already, or is another deployment's.
        """
        return _started(
            Plan(self._key, self._options, selection.take(self._key), number=self._number),
            args,
            kwargs,
        )

    def broadcast(self, method_name: str, *args: Any, **kwargs: Any) -> BroadcastResponse[Any]:
        """Call a method at every replica that is ready, whatever it has to do.

        Each answers with one value, also where the handle is one for streams.

        Raises:
            DeploymentUnavailable: There is none.
        """
        options = {**self._options, "method_name": method_name, "stream": False}
        checked({"method_name": method_name})
        return self._to_all(options, args, kwargs)

    def flush(self) -> BroadcastResponse[None]:
        """Let batches that wait for company run now, at every replica.

        Of one method with ``handle.method.flush()``, else of all. Returns at once; await the
        result to know that the batches have been closed.
        """
        method = self._options.get("method_name", "")
        options = {"method_name": FLUSH_METHOD, "timeout_s": self._options.get("timeout_s")}
        return self._to_all(options, (method,), {})

    def _to_all(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> BroadcastResponse[Any]:
        replicas = self._own_plan().caller().replicas()
        if not replicas:
            raise DeploymentUnavailable(f"{self._key} has no replica that is ready")
        places = [Pinned(ReplicaId(replica_id)) for replica_id, _, _ in replicas]
        return BroadcastResponse(
            {
                place.replica_id: Plan(self._key, options, place, number=self._number).start(
                    DeploymentResponse, args, kwargs
                )
                for place in places
            }
        )

    def _own_plan(self) -> Plan:
        plan = self._plan
        if plan is None:
            plan = self._plan = Plan(self._key, self._options, number=self._number)
        return plan

    @overload
    def __getitem__(self, method: Untyped, /) -> DeploymentHandle[Any]: ...
    @overload
    def __getitem__(  # type: ignore[overload-overlap]  # The more special ones come first.
        self, method: Callable[Concatenate[Deployed_co, Arguments], AsyncIterator[Result]], /
    ) -> MethodHandle[Arguments, DeploymentResponseGenerator[Result]]: ...
    @overload
    def __getitem__(  # type: ignore[overload-overlap]
        self, method: Callable[Concatenate[Deployed_co, Arguments], Iterator[Result]], /
    ) -> MethodHandle[Arguments, DeploymentResponseGenerator[Result]]: ...
    @overload
    def __getitem__(
        self, method: Callable[Concatenate[Deployed_co, Arguments], Awaitable[Result]], /
    ) -> MethodHandle[Arguments, DeploymentResponse[Result]]: ...
    @overload
    def __getitem__(
        self, method: Callable[Concatenate[Deployed_co, Arguments], Result], /
    ) -> MethodHandle[Arguments, DeploymentResponse[Result]]: ...
    def __getitem__(self, method: Any, /) -> Any:
        """Return the handle of a method that is named by itself, as in ``handle[Class.method]``.

        It is ``handle.method``, for a generator with ``stream=True``; type checkers know what it
        takes and returns.

        Raises:
            OptionError: It is no function with the name of a public method.
        """
        function = getattr(method, "function", method)  # of a batched one
        name = getattr(function, "__name__", None)
        checked({"method_name": name})
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            return self.options(method_name=str(name), stream=True)
        # ``__getattr__`` caches the handles of methods, but does not serve "__call__".
        return self.options(method_name=name) if name == "__call__" else getattr(self, str(name))

    if not TYPE_CHECKING:  # A checker says by itself that it can be neither called nor iterated.
        __iter__ = None  # Else Python would iterate with __getitem__ and numbers.

        def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
            called = self._options.get("method_name")
            method = f".{called}" if called else ""
            raise KindError(
                f"a handle is not called itself: write handle{method}.remote(...), which returns "
                f"at once, and await what it returns"
            )

    def __getattr__(self, name: str) -> DeploymentHandle[Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        # Kept with its plan: working that out costs more than the call.
        methods = self._methods
        if methods is None:
            methods = self._methods = {}
        found = methods.get(name)
        if found is None:
            found = self._copy({**self._options, "method_name": name})
            if len(methods) < _METHODS_MAX:
                found = methods.setdefault(name, found)
        return found

    def _init(self, **options: Any) -> None:
        """Set options of this very handle, once and before it is used, as in Ray Serve.

        Raises:
            OptionError: An option has an unknown name or a wrong value.
            WrongMoment: It was called already, or the handle has made calls or copies.
        """
        if self._is_used or self._plan is not None or self._methods is not None:
            raise WrongMoment(
                f"{self!r} is already initialized: _init() comes once, before the first call, "
                f"options() or method; write handle.options(...) for a copy with other options"
            )
        checked(options)
        self._options = {**self._options, **options}
        self._is_used = True

    def _copy(self, options: Options) -> DeploymentHandle[Deployed_co]:
        # Without the constructor, which would look at every option again.
        copy = type(self).__new__(type(self))
        copy._key = self._key  # noqa: SLF001  # of this class
        copy._number = self._number  # noqa: SLF001
        copy._options = options  # noqa: SLF001
        copy._is_used = True  # noqa: SLF001
        copy._plan = None  # noqa: SLF001
        copy._methods = None  # noqa: SLF001
        return copy

    # --- as in Ray Serve ----------------------------------------------------------------------

    def shutdown(self) -> None:
        """Do nothing: all handles of a process share its routers, which go with the process.

        Calls that it has made go on, and so does the handle. ``pyserve.shutdown()`` ends a mesh.
        """

    async def shutdown_async(self) -> None:
        """Do what ``shutdown`` does."""

    # --- stubs --------------------------------------------------------------------------------

    def channel(self) -> grpc.aio.Channel:
        """Return a channel for generated stubs, with the interface of ``grpc.aio.Channel``.

        Its calls take the way of the ingress, but in this process: pick a replica, wait for a
        free slot, send. Use it from one event loop, and close it when done.

        Raises:
            MeshNotFound: This process is in no mesh.
        """
        return attached().open_channel(self._key)

    # --- identity -----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeploymentHandle)
            and self._key == other._key
            and self._options == other._options
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._key.deployment, self._key.application, self._options)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"DeploymentHandle({self.deployment_name!r}, app_name={self.app_name!r}{options})"


def _started(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if plan.streaming:
        return DeploymentResponseGenerator(plan.start(StreamCall, args, kwargs))
    return plan.start(DeploymentResponse, args, kwargs)


def _unpickled(deployment: str, application: str, options: Options) -> DeploymentHandle[Any]:
    return DeploymentHandle(deployment, application, **options)
