"""``@pyserve.multiplexed``: one replica serves many models and keeps some of them loaded.

The decorated loader takes a model id and returns the model; calling it gives the loaded one.
Each instance of a class, and each decorated method of it, has a cache of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, overload

from pyserve.errors import KindError, ModelIdMissing, OptionError, UsageError
from pyserve.multiplexing.cache import UNLIMITED, CacheOptions, CacheStats, Model
from pyserve.multiplexing.directory import PROCESS_DIRECTORY
from pyserve.multiplexing.loader import Loader, all_or_first_error
from pyserve.multiplexing.mistakes import tell_missing
from pyserve.request import get_multiplexed_model_id
from pyserve.signatures import read_signature

# Instances keep their caches under this and the name of the decorated method.
_ATTRIBUTE = "__pyserve_models_"


class Models(Generic[Model]):
    """A loader with its cache: what the decorated name is, on an instance or for a function.

    Calling it with a model id, or without one for the current request's, returns the model.
    It stays loaded at least until the current request ends.
    """

    def __init__(
        self,
        function: Callable[[str], Awaitable[Model]],
        *,
        label: str,
        options: CacheOptions,
        size_fn: Callable[[Any], int] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._label = label
        self._options = options
        self._size_fn = size_fn
        self._loader: Loader[Model] | None = None

    async def __call__(self, model_id: str | None = None) -> Model:
        """Return the model, loading it first if need be.

        Args:
            model_id: ``None`` or left out: the one that the current request names.

        Raises:
            ModelIdMissing: No id was given, and the request names none.
            ModelNotFound: The loader has said that there is no such model, now or a moment ago.
            ModelLoadFailed: It failed to load a moment ago, or nothing could make room for it.
            RequestTimeout: The request's deadline passed before it was loaded.
            Exception: What the decorated function raised, to all who waited for this load.
        """
        if model_id is None:
            model_id = get_multiplexed_model_id()
        return await self._current().get(self._checked(model_id))

    async def pin(self, model_id: str) -> None:
        """Load a model if need be, and keep it until ``unpin`` or ``unload``.

        Raises:
            Exception: As calling it.
        """
        await self._current().pin(self._checked(model_id))

    def unpin(self, model_id: str) -> None:
        """Let a pinned model be evicted again; nothing happens if it is not pinned."""
        self._current().unpin(self._checked(model_id))

    async def unload(self, model_id: str) -> None:
        """Take a model out, pinned or not; nothing happens if it is not loaded.

        One that requests use leaves when the last of them ends, and this does not wait for
        it; calls that come in between load the model anew.
        """
        await self._current().unload(self._checked(model_id))

    async def preload(self, model_ids: Sequence[str]) -> None:
        """Load these models side by side and wait for all of them.

        Raises:
            Exception: As calling it; the others are given up.
        """
        await self._current().preload([self._checked(model_id) for model_id in model_ids])

    async def close(self) -> None:
        """Cancel the loads and unload the models; those in use when their requests end."""
        loader, self._loader = self._loader, None
        if loader is not None and loader.loop is asyncio.get_running_loop():
            await loader.close()

    def stats(self) -> CacheStats:
        """Return what the cache did and holds; it may be called from any thread."""
        return CacheStats() if self._loader is None else self._loader.stats()

    def _current(self) -> Loader[Model]:
        """Return the loader of the running loop; a new loop begins with an empty cache."""
        loop = asyncio.get_running_loop()
        loader = self._loader
        if loader is None or loader.loop is not loop:
            if loader is not None and loader.loop.is_running():
                raise UsageError(
                    f"{self._label} is used by two event loops at once; models belong to the "
                    f"loop that loaded them: call it from one"
                )
            loader = self._loader = Loader(
                self._function,
                label=self._label,
                options=self._options,
                size_of=self._size_of,
                directory=PROCESS_DIRECTORY,
                loop=loop,
            )
        return loader

    def _size_of(self, model: Model) -> int:
        if self._options.max_bytes is None and self._size_fn is None:
            return 0
        return size_of(model, self._size_fn, self._label)

    def _checked(self, model_id: object) -> str:
        if not isinstance(model_id, str):
            raise UsageError(f"{self._label}: a model id is a str, not {model_id!r}")
        if not model_id:
            tell_missing(self._label)
            raise ModelIdMissing(
                "this request names no model, and needs one: send its id in the header "
                "serve_multiplexed_model_id (metadata multiplexed_model_id of gRPC, "
                "handle.options(multiplexed_model_id=...) of a handle)"
            )
        return model_id


class Multiplexed(Generic[Model]):
    """A decorated loader: as a class attribute it gives each instance its ``Models``."""

    def __init__(
        self,
        function: Callable[..., Awaitable[Model]],
        options: CacheOptions,
        *,
        size_fn: Callable[[Any], int] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        where = _where(function)
        self._takes_instance = _takes_instance(function, where)
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self.preload_ids = _checked_preload(preload, options, where)
        if self.preload_ids and not self._takes_instance:
            raise UsageError(
                f"{where}: preload= works on methods, whose replica loads the models before it "
                f"is announced; for a function write `await {function.__name__}.preload([...])`"
            )
        self._size_fn = size_fn
        self._attribute = _ATTRIBUTE + function.__qualname__
        self._models = None if self._takes_instance else self._made(function)

    @overload
    def __get__(self, instance: None, owner: type) -> Multiplexed[Model]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Models[Model]: ...
    def __get__(self, instance: object | None, owner: type) -> Multiplexed[Model] | Models[Model]:
        if instance is None or not self._takes_instance:
            return self
        # Under its own name, not the method's: an override may call the one that it overrides.
        attributes = instance.__dict__
        models: Models[Model] | None = attributes.get(self._attribute)
        if models is None:
            models = self._made(functools.partial(self.function, instance))
            attributes[self._attribute] = models
        return models

    async def __call__(self, model_id: str | None = None) -> Model:
        """Return a model of a decorated function; see ``Models``."""
        return await self._of_function()(model_id)

    def __getattr__(self, name: str) -> Any:
        # pin, unload, ... of a decorated function, which has no instance to ask.
        if name.startswith("_") or not hasattr(Models, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._of_function(), name)

    def _of_function(self) -> Models[Model]:
        if self._models is None:
            raise UsageError(
                f"{self.function.__qualname__} is a method; call it on an instance of its class"
            )
        return self._models

    def _made(self, function: Callable[[str], Awaitable[Model]]) -> Models[Model]:
        return Models(
            function,
            label=self.function.__qualname__,
            options=self.options,
            size_fn=self._size_fn,
        )


@overload
def multiplexed(function: Callable[..., Awaitable[Model]], /) -> Multiplexed[Model]: ...


@overload
def multiplexed(
    *,
    max_num_models_per_replica: int = 3,
    max_bytes: int | None = None,
    policy: str = "lru",
    preload: Sequence[str] = (),
    size_fn: Callable[[Any], int] | None = None,
) -> Callable[[Callable[..., Awaitable[Model]]], Multiplexed[Model]]: ...


def multiplexed(
    function: Callable[..., Awaitable[Model]] | None = None,
    /,
    *,
    max_num_models_per_replica: int = 3,
    max_bytes: int | None = None,
    policy: str = "lru",
    preload: Sequence[str] = (),
    size_fn: Callable[[Any], int] | None = None,
) -> Multiplexed[Model] | Callable[[Callable[..., Awaitable[Model]]], Multiplexed[Model]]:
    """Cache what an ``async def`` loader of one model id returns.

    A model is loaded once however many requests wait for it; different models load at the
    same time as far as the budget has room; one that a request uses is not evicted before the
    request ends. A load that failed is tried again after 1 s, 2 s, ... at most 60 s.

    Args:
        function: The loader, when the decorator is written without parentheses.
        max_num_models_per_replica: Models loaded or loading at once; -1: no limit.
        max_bytes: Sum of their sizes; ``None``: sizes do not matter.
        policy: ``"lru"`` evicts what was not used for longest; ``"gdsf"`` what is cheapest to
            miss: rarely used, quickly loaded, large.
        preload: Ids that every replica loads before it is announced.
        size_fn: Returns the size of a model in bytes; without it the model's ``size_bytes`` or
            ``nbytes`` counts.

    Raises:
        OptionError: A value is out of range.
        KindError: The function is no ``async def`` of one model id.
    """
    options = CacheOptions(
        max_num_models_per_replica=max_num_models_per_replica, max_bytes=max_bytes, policy=policy
    )

    def decorate(target: Callable[..., Awaitable[Model]]) -> Multiplexed[Model]:
        return Multiplexed(target, options, size_fn=size_fn, preload=preload)

    return decorate if function is None else decorate(function)


async def preload_all(instance: object) -> None:
    """Load what the decorated methods of an instance preload; before it is announced.

    Raises:
        Exception: What the first failing loader raised.
    """
    await all_or_first_error(
        method.__get__(instance, type(instance)).preload(method.preload_ids)
        for method in _methods(type(instance))
        if method.preload_ids
    )


async def close_all(instance: object) -> None:
    """Unload what the decorated methods of an instance have loaded; when its replica stops."""
    for name, models in tuple(getattr(instance, "__dict__", {}).items()):
        if name.startswith(_ATTRIBUTE) and isinstance(models, Models):
            await models.close()


def _methods(owner: type) -> Iterator[Multiplexed[Any]]:
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        if isinstance(found, Multiplexed):
            yield found


def _where(function: object) -> str:
    name = getattr(function, "__qualname__", repr(function))
    try:
        code = inspect.unwrap(function).__code__  # type: ignore[arg-type]
    except (AttributeError, ValueError):
        return f"@pyserve.multiplexed on {name}"
    return f"@pyserve.multiplexed on {name} ({code.co_filename}:{code.co_firstlineno})"


def _takes_instance(function: Callable[..., object], where: str) -> bool:
    """Return whether a loader is a method; refuse a function that is not a loader."""
    if not inspect.iscoroutinefunction(function):
        raise KindError(
            f"{where}: it is not an `async def`; write `async def {_name(function)}(self, "
            f"model_id: str)` that returns the model"
        )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(read_signature(function).parameters.values())
    count = len(parameters)
    if count not in (1, 2) or any(p.kind not in kinds for p in parameters):
        raise KindError(
            f"{where}: it takes ({', '.join(map(str, parameters))}); write one model id: "
            f"`async def {_name(function)}(self, model_id: str)`, or without self for a function"
        )
    return count == 2


def _name(function: object) -> str:
    return getattr(function, "__name__", "get_model")


def _checked_preload(preload: Sequence[str], options: CacheOptions, where: str) -> tuple[str, ...]:
    ids = tuple(preload)
    given: tuple[object, ...] = (preload, *ids)
    if isinstance(given[0], str) or not all(isinstance(i, str) and i for i in given[1:]):
        raise OptionError(f"{where}: preload={preload!r}; write a list of model ids, like ['a']")
    limit = options.max_num_models_per_replica
    if limit != UNLIMITED and len(set(ids)) > limit:
        raise OptionError(
            f"{where}: preload names {len(set(ids))} models and max_num_models_per_replica is "
            f"{limit}; name at most {limit}"
        )
    return ids


# How many bytes a loaded model counts for, where `max_bytes` limits them.


def size_of(model: object, size_fn: Callable[[object], int] | None, label: str) -> int:
    """Return the size of ``model`` in bytes.

    It is what ``size_fn`` returns, else the model's ``size_bytes`` or ``nbytes`` (attribute or
    method without arguments), else the length of ``bytes``.

    Raises:
        OptionError: It has no size, or none that is a whole number of at least 0.
    """
    size: Any
    if size_fn is not None:
        size = size_fn(model)
    elif isinstance(model, bytes | bytearray):
        size = len(model)
    else:
        size = getattr(model, "size_bytes", None)
        if size is None:
            size = getattr(model, "nbytes", None)
        if size is None:
            raise OptionError(
                f"{label}: max_bytes is set, and {type(model).__name__} does not say its size; "
                f"give it an attribute or method size_bytes, or write "
                f"@pyserve.multiplexed(max_bytes=..., size_fn=lambda model: ...)"
            )
        size = size() if callable(size) else size
    if not hasattr(size, "__index__") or int(size) < 0:
        raise OptionError(f"{label}: {size!r} is no size; a whole number of bytes is wanted")
    return int(size)
