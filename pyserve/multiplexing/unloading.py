"""Unloads a model, so that its memory is free before the next one loads.

The first of these that the model has is called: ``unload()``, ``aclose()``, an ``async def
__del__``. A coroutine is awaited; a plain function runs in a thread, because it may be slow.
Then the last reference of the cache is dropped. If the class has a ``__del__`` this happens in a
thread, where Python calls that method if there are no other references.

``finalize`` is also for the instances of deployments.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from pyserve.multiplexing.cache import Entry, Model
from pyserve.observe.failures import failure_logger

# A hook that hangs delays the load that needs its room by so long, and no longer (arbitrary).
HOOK_S_MAX = 30.0

# A model has gone, and no request has failed: once a minute is enough.
_log = failure_logger(__name__, lines=None)


async def let_go(entry: Entry[Model], label: str) -> None:
    """Call the hooks of an evicted model and drop it; failures are logged.

    Args:
        entry: Taken out of the cache; it holds nothing afterwards.
        label: The loader's name, for the log.
    """
    try:
        async with asyncio.timeout(HOOK_S_MAX):
            await _call_hook(entry.model)
    except TimeoutError:
        _log.warning("%s: unloading %r took more than %g s", label, entry.model_id, HOOK_S_MAX)
    except Exception:  # One model's clean-up must not fail the next one's load.
        _log.exception("%s: unloading %r raised", label, entry.model_id)
    disarm(entry.model)
    has_finalizer = hasattr(type(entry.model), "__del__")
    holder = [entry.model]
    del entry.model
    if has_finalizer:
        await asyncio.to_thread(holder.clear)


def has_async_finalizer(kind: type) -> bool:
    """Tell whether a class has an ``async def __del__``, which Python does not await."""
    return inspect.iscoroutinefunction(getattr(kind, "__del__", None))


async def finalize(instance: object) -> None:
    """Await the ``async def __del__`` of an instance, if its class has one; once.

    Raises:
        Exception: Whatever it raises.
    """
    if has_async_finalizer(type(instance)):
        try:
            await instance.__del__()  # type: ignore[attr-defined]  # as asked just now
        finally:
            disarm(instance)


def disarm(instance: object) -> None:
    """Keep Python from calling an ``async def __del__`` again, or for nothing.

    Python would drop the coroutine and warn that it was never awaited. The instance gets a class
    that differs only in that method. Where this is impossible, the warning appears.
    """
    if not has_async_finalizer(type(instance)):
        return
    kind: Any = type(instance)
    members = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    try:
        ended = type(kind)(kind.__name__, (kind,), {**members, "__del__": lambda _self: None})
        instance.__class__ = ended
    except Exception as error:  # A metaclass of its own, or an `__init_subclass__`.
        _log.debug("%s keeps its __del__: %r", kind.__qualname__, error)


async def _call_hook(model: object) -> None:
    for name in ("unload", "aclose", "__del__"):
        hook = getattr(model, name, None)
        if inspect.iscoroutinefunction(hook):
            await hook()
            return
        if callable(hook) and name != "__del__":
            result: object = await asyncio.to_thread(hook)
            if inspect.isawaitable(result):
                await result
            return
