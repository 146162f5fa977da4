"""The asyncio end of a cache: one load per model however many wait, and holds that end.

A load runs in a task of its own, so that a caller who goes away takes nothing from the others;
when nobody waits any more the load is cancelled. Loads of different models run at the same
time, as far as the budget has room. A loader belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from pyserve.bridge import end_if_forked
from pyserve.errors import ModelLoadFailed, ModelNotFound, RequestTimeout, UsageError
from pyserve.interrupts import EXITS, raise_ctrl_c
from pyserve.multiplexing.cache import CacheOptions, CacheStats, Entry, Model, ModelCache, Start
from pyserve.multiplexing.directory import Directory
from pyserve.multiplexing.history import Failure
from pyserve.multiplexing.mistakes import answer_of, remembered, tell
from pyserve.multiplexing.unloading import let_go
from pyserve.observe.delays import MEMBERS_MAX, PROCESS_DELAYS, LoadDelay, wall_clock_from
from pyserve.observe.failures import text_of
from pyserve.observe.metrics.families import Tally
from pyserve.observe.separate import separate
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.request import CURRENT, Request, current_request

# How long a load waits for room when every model is in use and its caller has no deadline;
# then it fails instead of holding on for ever (arbitrary; the same as a hook's limit).
ROOM_WAIT_S_MAX = 30.0


@dataclass(slots=True, eq=False)
class _Load(Generic[Model]):
    """A model that somebody waits for; ``task`` is there from when there is room."""

    model_id: str
    request: Request
    waiters: list[asyncio.Future[Entry[Model]]] = field(default_factory=list)
    asked: list[tuple[str, float]] = field(default_factory=list)  # whose requests wait, since when
    begun_at: float = 0.0
    task: asyncio.Task[tuple[Model, int, float]] | None = None


class Loader(Generic[Model]):
    """Gives out the models of one loader function.

    Args:
        function: The user's loader, which takes a model id.
        label: What messages call it, e.g. ``Translate.get_model``.
        options: The budget.
        size_of: Returns a model's size in bytes; raises what fails the load.
        directory: Where the ids are reported.
        loop: The running loop.
    """

    def __init__(
        self,
        function: Callable[[str], Awaitable[Model]],
        *,
        label: str,
        options: CacheOptions,
        size_of: Callable[[Model], int],
        directory: Directory,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self._function = function
        self._label = label
        self._options = options
        self._size_of = size_of
        self._directory = directory
        self._cache: ModelCache[Model] = ModelCache(options)
        self._loads: dict[str, _Load[Model]] = {}
        self._held_by: weakref.WeakKeyDictionary[Request, dict[str, Entry[Model]]] = (
            weakref.WeakKeyDictionary()
        )
        self._tasks: set[asyncio.Task[None]] = set()  # The loop keeps weak references only.
        self.unload_times = Tally()
        self._traces = PROCESS_TRACING.loads(label)

    async def get(self, model_id: str) -> Model:
        """Return a model, loaded if need be, and keep it until the current request ends.

        Outside of a request nothing keeps it in the cache. Cancelling the call cancels the
        load only when nobody else waits for it.

        Raises:
            ModelLoadFailed: It failed to load a moment ago, or there was no room.
            RequestTimeout: The request's deadline passed.
            UsageError: The request itself uses every model that may be loaded.
            ModelNotFound: The loader has said that there is none, now or a moment ago.
            Exception: What the user's loader raised, to those who waited for it.
        """
        entry = self._cache.use(model_id)
        if entry is not None:
            self._cache.hold(entry)
        else:
            entry = await self._wait(model_id)
        model = entry.model
        self._keep_for_request(entry)
        return model

    async def pin(self, model_id: str) -> None:
        """Load a model if need be, and never evict it until ``unpin`` or ``unload``."""
        entry = self._cache.use(model_id)
        if entry is not None:
            self._cache.hold(entry)
        else:
            entry = await self._wait(model_id)
        self._cache.pin(model_id, pinned=True)
        self._release(entry)

    def unpin(self, model_id: str) -> None:
        """Let a pinned model be evicted again."""
        self._cache.pin(model_id, pinned=False)
        self._pump()

    async def unload(self, model_id: str) -> None:
        """Unload a model now, or with the end of the last request that uses it."""
        entry = self._cache.unload(model_id)
        self._report()
        if entry is not None:
            await self._let_go(entry)
        self._pump()

    async def preload(self, model_ids: Sequence[str]) -> None:
        """Load models side by side and wait for all of them.

        Raises:
            Exception: What the first failing load raised; the others are given up.
        """
        await all_or_first_error(self._preload_one(model_id) for model_id in set(model_ids))

    async def close(self) -> None:
        """Cancel every load and unload every model; one in use goes when its request ends."""
        for load in tuple(self._loads.values()):
            stopped = ModelLoadFailed(f"{self._label}: the replica stops")
            for future in load.waiters:
                if not future.done():
                    future.set_exception(stopped)
            if load.task is not None:
                load.request.cancel()
                load.task.cancel()
        running = [load.task for load in self._loads.values() if load.task is not None]
        if running:
            await asyncio.wait(running)
        for model_id in self._cache.loaded_ids():
            await self.unload(model_id)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def stats(self) -> CacheStats:
        """Return what the cache did and holds."""
        return self._cache.stats()

    def entries(self) -> list[Entry[Model]]:
        """Return the models that are loaded."""
        return self._cache.entries()

    @property
    def load_times(self) -> Tally:
        """The durations of the loads that succeeded."""
        return self._cache.load_times

    @property
    def models_max(self) -> int:
        """How many models there may be; ``UNLIMITED``."""
        return self._options.max_num_models_per_replica

    # Waiting for a load.

    async def _preload_one(self, model_id: str) -> None:
        entry = self._cache.use(model_id)
        if entry is None:
            self._release(await self._wait(model_id))

    async def _wait(self, model_id: str) -> Entry[Model]:
        """Return the entry of a model that is not loaded, once it is, with one hold on it."""
        failure = self._cache.request(model_id, self.loop.time())
        if failure is not None:
            raise self._refusal(model_id, failure)
        waiting = current_request()
        self._check_room_beside(waiting)
        load = self._loads.get(model_id)
        if load is None:
            load = self._loads[model_id] = _Load(model_id, _load_request(model_id, waiting))
        future: asyncio.Future[Entry[Model]] = self.loop.create_future()
        load.waiters.append(future)
        if waiting is not None and len(load.asked) < MEMBERS_MAX:
            load.asked.append((waiting.request_id, self.loop.time()))
        if self._traces is not None:
            self._traces.wait(model_id)
        self._pump()
        alarm = _Alarm(self, load, future, waiting)
        try:
            return await future
        except asyncio.CancelledError:
            # The model may have come in the very turn in which the caller went away.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            raise
        finally:
            alarm.cancel()
            self._leave(load, future)

    def _check_room_beside(self, request: Request | None) -> None:
        """Refuse a request that would wait for room that it occupies itself."""
        held = self._held_by.get(request) if request is not None else None
        limit = self._options.max_num_models_per_replica
        if held and len(held) == limit:
            raise UsageError(
                f"{self._label}: one request uses {len(held) + 1} models at once, and "
                f"max_num_models_per_replica={limit}; write at least {limit + 1}"
            )

    def _leave(self, load: _Load[Model], future: asyncio.Future[Entry[Model]]) -> None:
        if future in load.waiters:
            load.waiters.remove(future)
        if load.waiters or self._loads.get(load.model_id) is not load:
            return
        if load.task is None:
            del self._loads[load.model_id]
            self._cache.withdraw(load.model_id)
            if self._traces is not None:
                self._traces.give_up(load.model_id)
            self._pump()
        else:
            load.request.cancel()
            load.task.cancel()

    def is_waiting_for_room(self, model_id: str) -> bool:
        """Return whether a load has not started because every model is in use."""
        return self._cache.is_waiting(model_id)

    @property
    def label(self) -> str:
        """What messages call the loader."""
        return self._label

    # Running loads.

    def _pump(self) -> None:
        """Start every load that has room, and report what changed."""
        for start in self._cache.start_loads():
            load = self._loads[start.model_id]
            context = contextvars.copy_context()
            context.run(CURRENT.set, load.request)
            load.begun_at = self.loop.time()
            if self._traces is not None:
                self._traces.begin(start.model_id, context)
            load.task = self.loop.create_task(self._run(start), context=context)
            load.task.add_done_callback(functools.partial(self._on_done, load))
        self._report()

    def _report(self) -> None:
        self._directory.report(self, self._cache.model_ids())

    async def _run(self, start: Start[Model]) -> tuple[Model, int, float]:
        while start.evicted:  # Nothing here may keep a model whose memory the load needs.
            await self._let_go(start.evicted.pop())
        started_at = self.loop.time()
        try:
            model = await self._function(start.model_id)
        except EXITS as error:  # Raised in a task, it would end the loop.
            raise_ctrl_c(error)
            end_if_forked(error)
            raise ModelLoadFailed(
                f"{self._label}: the loader of model {start.model_id!r} raised "
                f"{type(error).__name__}: {text_of(error)}"
            ) from error
        return model, self._size_of(model), self.loop.time() - started_at

    def _on_done(self, load: _Load[Model], task: asyncio.Task[tuple[Model, int, float]]) -> None:
        now = self.loop.time()
        load.task = None
        load.request.end()
        self._tell_end(load, asyncio.CancelledError() if task.cancelled() else task.exception())
        if task.cancelled():
            self._on_cancelled(load)
        elif (error := task.exception()) is not None:
            cause = f"{type(error).__name__}: {text_of(error)}"
            answer = answer_of(error, self._function, load.model_id)
            self._cache.failed(load.model_id, cause, now, remembered(answer))
            if isinstance(answer, ModelNotFound):
                tell(self._label, load.model_id, cause)
            self._finish(load, answer)
        else:
            self._on_loaded(load, *task.result(), now=now)
        if not self.loop.is_closed():
            self._pump()

    def _tell_end(self, load: _Load[Model], error: BaseException | None) -> None:
        if self._traces is not None:
            self._traces.end(load.model_id, error)
        asked, load.asked = load.asked, []
        if not PROCESS_DELAYS.is_on:
            return
        now = self.loop.time()
        wall = wall_clock_from(now)
        PROCESS_DELAYS.add_load(
            LoadDelay(
                loader=self._label,
                model_id=load.model_id,
                begun_at=wall(load.begun_at),
                ended_at=wall(now),
                error="" if error is None else type(error).__qualname__,
                members=tuple((request_id, wall(since)) for request_id, since in asked),
            )
        )

    def _on_loaded(
        self, load: _Load[Model], model: Model, size_bytes: int, load_s: float, *, now: float
    ) -> None:
        loaded = self._cache.loaded(
            load.model_id, model, size_bytes=size_bytes, load_s=load_s, now=now
        )
        for entry in loaded.evicted:
            self._let_go_soon(entry)
        if loaded.stays:
            self._finish(load, loaded.entry)
            return
        self._let_go_soon(loaded.entry)
        if loaded.failure is not None:
            self._finish(load, self._refusal(load.model_id, loaded.failure))
        elif not load.waiters:
            self._cache.withdraw(load.model_id)
            del self._loads[load.model_id]

    def _on_cancelled(self, load: _Load[Model]) -> None:
        """A load ended by being cancelled: by us, or, if somebody waits, by its own code."""
        was_asked = load.request.is_cancelled
        if was_asked or not load.waiters:
            self._cache.cancelled(load.model_id)
        if was_asked and load.waiters:  # Somebody came while the old load was ending.
            load.request = _load_request(load.model_id, None)
            self._cache.request(load.model_id, self.loop.time())
        elif load.waiters:
            cause = "the loader cancelled itself"
            failure = self._cache.failed(load.model_id, cause, self.loop.time())
            self._finish(load, self._refusal(load.model_id, failure))
        else:
            del self._loads[load.model_id]

    def _finish(self, load: _Load[Model], result: Entry[Model] | BaseException) -> None:
        """Give every waiter the model, with a hold on it, or the error."""
        del self._loads[load.model_id]
        waiters, load.waiters = [each for each in load.waiters if not each.done()], []
        for future in waiters:
            if isinstance(result, BaseException):
                future.set_exception(separate(result))
            else:
                self._cache.hold(result)
                future.set_result(result)

    def _refusal(self, model_id: str, failure: Failure) -> Exception:
        if isinstance(failure.answer, ModelNotFound):
            tell(self._label, model_id, failure.cause)
        if failure.answer is not None:
            return separate(failure.answer).with_traceback(None)
        wait_s = max(0.0, failure.retry_at - self.loop.time())
        return ModelLoadFailed(
            f"{self._label}: model {model_id!r} failed to load: {failure.cause}; "
            f"it is tried again by the first request after {wait_s:.1f} s"
        )

    # Holds.

    def _keep_for_request(self, entry: Entry[Model]) -> None:
        """Turn the caller's hold into one of its request, or end it if there is no request."""
        request = current_request()
        if request is None:
            self._release(entry)
            return
        held = self._held_by.get(request)
        if held is None:
            held = self._held_by[request] = {}
            request.add_end_callback(lambda: self._on_request_end(held))
        if entry.model_id in held or request.is_ended:
            self._release(entry)
        else:
            held[entry.model_id] = entry

    def _on_request_end(self, held: dict[str, Entry[Model]]) -> None:
        """Called in any thread: requests also end where their last reference is dropped."""
        if not held or self.loop.is_closed():
            return
        if _running_loop() is self.loop:
            self._release_all(held)
        else:
            self.loop.call_soon_threadsafe(self._release_all, held)

    def _release_all(self, held: dict[str, Entry[Model]]) -> None:
        while held:
            self._release(held.popitem()[1])

    def _release(self, entry: Entry[Model]) -> None:
        leaving = self._cache.release(entry)
        if leaving is not None:
            self._let_go_soon(leaving)
        if self._loads:  # Somebody may wait for this room.
            self._pump()

    async def _let_go(self, entry: Entry[Model]) -> None:
        begun = self.loop.time()
        await let_go(entry, self._label)
        self.unload_times.add(self.loop.time() - begun)

    def _let_go_soon(self, entry: Entry[Model]) -> None:
        task = self.loop.create_task(self._let_go(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Alarm(Generic[Model]):
    """Fails one waiter at its deadline, or when there was no room for too long."""

    def __init__(
        self,
        loader: Loader[Model],
        load: _Load[Model],
        future: asyncio.Future[Entry[Model]],
        request: Request | None,
    ) -> None:
        self._loader = loader
        self._load = load
        self._future = future
        self._request = request
        self._timer: asyncio.TimerHandle | None = None
        self._set(ROOM_WAIT_S_MAX)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, limit_s: float | None) -> None:
        remaining_s = self._request.time_remaining() if self._request else None
        waits = [wait_s for wait_s in (remaining_s, limit_s) if wait_s is not None]
        self._timer = self._loader.loop.call_later(min(waits), self._ring) if waits else None

    def _ring(self) -> None:
        self._timer = None
        if self._future.done():
            return
        loader, model_id = self._loader, self._load.model_id
        is_late = self._request is not None and self._request.time_remaining() == 0.0
        has_no_room = loader.is_waiting_for_room(model_id)
        where = "waited for room: every loaded model is in use" if has_no_room else "was loading"
        if is_late:
            self._future.set_exception(
                RequestTimeout(
                    f"{loader.label}: the deadline passed while model {model_id!r} {where}"
                )
            )
        elif has_no_room:
            self._future.set_exception(
                ModelLoadFailed(
                    f"{loader.label}: model {model_id!r} {where} for {ROOM_WAIT_S_MAX:g} s; "
                    f"raise max_num_models_per_replica or max_bytes, or unpin a model"
                )
            )
        else:
            self._set(None)


async def all_or_first_error(coroutines: Iterable[Coroutine[object, object, None]]) -> None:
    """Run coroutines side by side; when one raises, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _load_request(model_id: str, waiting: Request | None) -> Request:
    """The request that a loader's own calls belong to: no single caller's, so no deadline."""
    if waiting is None:
        return Request(multiplexed_model_id=model_id)
    return Request(
        request_id=waiting.request_id,
        multiplexed_model_id=model_id,
        application=waiting.application,
        deployment=waiting.deployment,
        method=waiting.method,
    )
