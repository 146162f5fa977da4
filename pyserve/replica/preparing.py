"""The steps between the constructor of a replica and its first call, and what they make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyserve.observe.failures import describe, format_from_user_code
from pyserve.replica.asgi import AsgiApplication
from pyserve.replica.loading import (
    Loaded,
    LoadError,
    check_first,
    initialize,
    metadata_json,
    reconfigure,
    start_application,
    warm_up,
)
from pyserve.stepping.decorator import begin_steps

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Constructed:
    """The user's object, and what belongs to it.

    Attributes:
        loaded: The class, its options and services.
        instance: The user's object.
        application: The ASGI application of an ingress; None: it has none.
        metadata_json: What the user's code says of this replica.
    """

    loaded: Loaded
    instance: object
    application: AsgiApplication | None
    metadata_json: str


class Run(Protocol):
    """Awaits one step, or ends it early by an exception of its own."""

    def __call__(self, step: Coroutine[Any, Any, Value], /) -> Awaitable[Value]:
        """Return what the step returns."""


class Preparation:
    """Does the steps, once.

    Args:
        loaded: The class and its options.
        instance: What its constructor has made.
        middlewares: Import path of what stands before a web application; None: nothing does.

    Attributes:
        is_initialized: An ``async def __init__`` has ended, if there is one.
        application: The ASGI application, once it has started.
    """

    def __init__(self, loaded: Loaded, instance: object, middlewares: str | None) -> None:
        self._loaded = loaded
        self._instance = instance
        self._middlewares = middlewares
        self.is_initialized = False
        self.application: AsgiApplication | None = None

    async def run(self, run: Run, enter: Callable[[], object]) -> Constructed:
        """Do all steps, in order.

        Args:
            run: Awaits each.
            enter: Called when the instance is whole: its code may ask for it from now on.

        Raises:
            LoadError: User code raised.
        """
        loaded, instance, options = self._loaded, self._instance, self._loaded.options
        await run(initialize(loaded, instance))
        self.is_initialized = True
        enter()
        startup_s = options.startup_timeout_s
        await run(reconfigure(instance, options.user_config, timeout_s=startup_s))
        await run(_begin_steps(instance))
        await run(warm_up(instance))
        metadata = await run(metadata_json(instance))
        self.application = await run(start_application(loaded.target, self._middlewares))
        await run(check_first(instance, options.health_check_timeout_s))
        return Constructed(loaded, instance, self.application, metadata)


async def _begin_steps(instance: object) -> None:
    """Start the process in which a continuously batched class steps, if it does."""
    try:
        await begin_steps(instance)
    except Exception as error:
        label = f"the process that steps {type(instance).__qualname__} could not begin"
        trace = "\n".join([format_from_user_code(error), *getattr(error, "__notes__", ())])
        raise LoadError(f"{label}: {describe(error)}", trace, user_code=True) from error
