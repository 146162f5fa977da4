"""The models that this process has: the union of its caches, reported to subscribers.

Routers prefer a replica that has a model, so changes are reported at once: in the next turn of the
loop in which they happened, and once per turn however many models changed. An id is listed while
its model is loaded or loading; a load that fails removes it.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterable

Callback = Callable[[list[str]], object]


class Directory:
    """The models of some caches, each of which reports its own.

    Reports may come from the threads of several event loops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Caches end with the object that they belong to, without a report.
        self._ids_of: weakref.WeakKeyDictionary[object, tuple[str, ...]] = (
            weakref.WeakKeyDictionary()
        )
        self._subscribers: list[Callback] = []
        self._is_telling = False

    def models(self) -> list[str]:
        """Return the ids that are loaded or loading, sorted."""
        with self._lock:
            return sorted({model_id for ids in self._ids_of.values() for model_id in ids})

    def caches(self) -> list[object]:
        """Return the caches that have reported and live."""
        with self._lock:
            return list(self._ids_of)

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with ``models()`` after each change; return what ends that.

        It is called in the thread of the loop in which the change happened, and must not wait.
        """
        with self._lock:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def report(self, cache: object, model_ids: Iterable[str]) -> None:
        """Replace what ``cache`` has. Called in the thread of a running loop.

        Args:
            cache: Any object that can be weakly referenced; its ids go when it does.
            model_ids: Loaded or loading.
        """
        ids = tuple(model_ids)
        with self._lock:
            if self._ids_of.get(cache, ()) == ids:
                return
            self._ids_of[cache] = ids
            if self._is_telling or not self._subscribers:
                return
            self._is_telling = True
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        with self._lock:
            self._is_telling = False
            subscribers = tuple(self._subscribers)
        models = self.models()
        for callback in subscribers:
            callback(models)


PROCESS_DIRECTORY = Directory()
"""The directory of all caches in this process, global because decorators make the caches."""
