"""Values by reference in one process: it holds its own and fetches those of other processes."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import logging
import os
import secrets
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyserve.errors import ReferenceLost, RequestTimeout, RuntimeForked
from pyserve.loop_thread import run_until_stopped
from pyserve.references import wire
from pyserve.references.client import Connections, UnreachableError
from pyserve.references.holding import IS_SUPPORTED, Holding
from pyserve.references.server import SideServer
from pyserve.references.store import Limits
from pyserve.references.wire import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from pyserve.serializers import Buffer, Parts


_LOGGER = logging.getLogger(__name__)


class Remote(Protocol):
    """The way to holders on other machines. Everything runs on the loop of references."""

    async def fetch(self, descriptor: Descriptor) -> Buffer:
        """Return the bytes of a value.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
        """

    async def forget(self, descriptor: Descriptor) -> None:
        """Notify the holder that nobody will fetch the value any more."""


class References:
    """The values by reference of one process. Nothing runs before the first hold or fetch.

    Every method may be called from any thread, ``release`` by finalizers too.

    Args:
        node: This machine; only processes of the same one share memory.
        token: The mesh token.
        holder_id: Of this process; a replica's id. Made up when empty.
        application: Of the deployment that this process is a replica of, for fetches from other
            machines; ``""``: it is not a replica.
        deployment: That deployment.
        run_dir: Where the socket goes; ``None``: the temporary folder.
        remote: The way to other machines; ``None`` without one.
        limits: Bounds of what is held.
        listens: Whether other processes may fetch; without it there is no socket.
    """

    def __init__(
        self,
        *,
        node: str,
        token: bytes,
        holder_id: str = "",
        application: str = "",
        deployment: str = "",
        run_dir: Path | None = None,
        remote: Remote | None = None,
        limits: Limits | None = None,
        listens: bool = True,
    ) -> None:
        self._listens = listens
        self.holder_id = holder_id or f"process-{secrets.token_hex(8)}"
        self._node = node
        self._application = application
        self._deployment = deployment
        self._remote = remote
        self._loop = PrivateLoop()
        self._holding = Holding(self._loop, limits or Limits())
        self._connections = Connections(self._loop, token)
        self._server = SideServer(self._holding, token, run_dir)
        self._opening = threading.Lock()
        self._is_open = False
        _close_in_forks_of(self)

    @property
    def held_bytes(self) -> int:
        """Bytes of the values held by this process."""
        return self._holding.held_bytes

    @property
    def held_count(self) -> int:
        """How many values this process holds."""
        return self._holding.held_count

    def hold(self, body: Parts, codec: str) -> Descriptor:
        """Keep a body here until it is released, or nobody uses it for long.

        Args:
            body: Copied, so it may change afterwards.
            codec: Name of the codec that reads it.

        Raises:
            BackPressure: There is no room for it.
            ReferenceLost: ``close`` was called.
            RuntimeForked: This process is a fork of the one that this was made for.
        """
        self._loop.check()
        self._open()
        key, size_bytes = self._holding.hold(body)
        return Descriptor(
            holder_id=self.holder_id,
            node=self._node,
            unix_path=self._server.path,
            key=key,
            size_bytes=size_bytes,
            codec=codec,
            application=self._application,
            deployment=self._deployment,
        )

    async def fetch(self, descriptor: Descriptor) -> Buffer:
        """Return the bytes of a value; on the holder's machine a read-only view of its memory.

        The holder keeps the value until the view, and all that was made of it, is gone. Has no
        deadline of its own: it is that of the request which needs the value. May be cancelled.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
        """
        if descriptor.holder_id == self.holder_id:
            return self._own(descriptor)
        if self._is_near(descriptor):
            try:
                return await asyncio.wrap_future(self._connections.take(descriptor))
            except UnreachableError as error:
                unreachable = error
                return await asyncio.wrap_future(self._far(descriptor, unreachable))
        return await asyncio.wrap_future(self._far(descriptor, None))

    def fetch_blocking(self, descriptor: Descriptor, timeout_s: float | None = None) -> Buffer:
        """Do what ``fetch`` does, in a thread that may wait.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
            RequestTimeout: ``timeout_s`` seconds have passed.
        """
        if descriptor.holder_id == self.holder_id:
            return self._own(descriptor)
        if self._is_near(descriptor):
            try:
                return _result(self._connections.take(descriptor), descriptor, timeout_s)
            except UnreachableError as error:
                unreachable = error
                return _result(self._far(descriptor, unreachable), descriptor, timeout_s)
        return _result(self._far(descriptor, None), descriptor, timeout_s)

    def release(self, descriptor: Descriptor) -> None:
        """Notify the holder that nobody will fetch the value any more. Present users keep it."""
        if descriptor.holder_id == self.holder_id:
            if self._loop.has_started:
                self._loop.call(self._holding.forget, descriptor.key)
        elif self._is_near(descriptor):
            self._connections.note(descriptor, wire.FORGET, descriptor.key)
        elif self._remote is not None:
            self._loop.call(self._forget_far, descriptor)

    def read(self, key: str) -> Buffer | None:
        """Return an own value by its key, ``None`` when it was freed; for ``remote.py``."""
        return self._holding.view(key)

    def forget(self, key: str) -> None:
        """Release an own value by its key; for ``remote.py``."""
        self._holding.forget(key)

    async def drain(self, grace_s: float) -> bool:
        """Wait until nothing is held, at most ``grace_s`` seconds; return whether that is so."""
        drained = asyncio.wrap_future(self._holding.drained())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(drained, grace_s)
        return self.held_count == 0

    def close(self) -> None:
        """Free everything and close the sockets. Views that were fetched stay. Idempotent."""
        self._loop.close(self._close_on_loop)
        self._holding.clear()

    def _close_on_loop(self) -> None:
        self._server.close()
        self._connections.close()

    def _open(self) -> None:
        """Open the side socket once; without one, values are fetched as from other machines."""
        if self._is_open:
            return
        with self._opening:
            if self._is_open:
                return
            if IS_SUPPORTED and self._listens:
                self._server.open()
                self._loop.call(self._server.start)
            self._is_open = True

    def _is_near(self, descriptor: Descriptor) -> bool:
        return IS_SUPPORTED and descriptor.node == self._node and descriptor.unix_path != ""

    def _own(self, descriptor: Descriptor) -> Buffer:
        view = self._holding.view(descriptor.key)
        if view is None:
            raise ReferenceLost("the value was freed by this process, which held it")
        return view

    def _far(
        self, descriptor: Descriptor, unreachable: UnreachableError | None
    ) -> concurrent.futures.Future[Buffer]:
        if self._remote is None or not descriptor.application:
            raise ReferenceLost(
                f"the process {descriptor.holder_id} on {descriptor.node} that held the value "
                f"cannot be reached from {self._node}" + (f": {unreachable}" if unreachable else "")
            ) from unreachable
        self._loop.check()  # Before there is a coroutine that nobody would await.
        return self._loop.run(self._remote.fetch(descriptor))

    def _forget_far(self, descriptor: Descriptor) -> None:
        assert self._remote is not None
        task = asyncio.get_running_loop().create_task(self._remote.forget(descriptor))
        task.add_done_callback(_log_failure)

    def close_after_fork(self) -> None:
        """Close the descriptors in a forked child, where nothing of this works."""
        self._server.close_after_fork()
        self._connections.close_after_fork()
        self._holding.close_after_fork()


def _result(
    future: concurrent.futures.Future[Buffer] | concurrent.futures.Future[memoryview],
    descriptor: Descriptor,
    timeout_s: float | None,
) -> Buffer:
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise RequestTimeout(
            f"the process {descriptor.holder_id} did not give the value within {timeout_s:g} s"
        ) from None


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        # The holder frees it by itself after a while.
        _LOGGER.debug("a holder could not be told of a value that is not needed: %s", error)


def _close_in_forks_of(references: References) -> None:
    found = weakref.ref(references)
    pid = os.getpid()

    def close() -> None:
        if os.getpid() != pid and (alive := found()) is not None:
            alive.close_after_fork()

    os.register_at_fork(after_in_child=close)


T = TypeVar("T")


_CLOSE_TIMEOUT_S = 10.0  # arbitrary; the loop does nothing that takes long


class PrivateLoop:
    """Runs callbacks and coroutines in its own thread; any thread may hand them over."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.RLock()
        self._ended = threading.Event()
        self._ident = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def has_started(self) -> bool:
        """Whether there is a thread."""
        return self._loop is not None

    @property
    def is_usable(self) -> bool:
        """Neither closed nor in a forked process, where the thread does not exist."""
        return self._pid == os.getpid() and not self._closed

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` in the loop's thread soon; nothing happens once it is closed.

        Finalizers come here, from any thread and in the middle of anything, so this takes no
        lock that somebody else could hold.
        """
        if not self.is_usable:
            return
        try:
            self._running().call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed meanwhile, or the interpreter is shutting down and starts no
            # threads any more. Either way the end of the process frees everything.
            if not sys.is_finalizing() and self.is_usable:
                raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``coroutine`` in the loop; cancelling the future cancels it.

        Raises:
            RuntimeForked: This process is a fork of the one that made the loop.
            ReferenceLost: The loop is closed.
        """
        self.check()
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def check(self) -> None:
        """Refuse to go on where nothing would ever happen.

        Raises:
            RuntimeForked: This process is a fork of the one that made the loop.
            ReferenceLost: The loop is closed.
        """
        if self._pid != os.getpid():
            raise RuntimeForked(
                f"references belong to process {self._pid}, of which this is a fork; start it "
                "with multiprocessing's 'spawn' method"
            )
        if self._closed:
            raise ReferenceLost("this process has let go of its mesh, and of all values with it")

    def close(self, last: Callable[[], object]) -> None:
        """Call ``last`` in the thread, if there is one, and end it. Idempotent."""
        loop, usable = self._loop, self.is_usable
        self._closed = True
        if loop is None or not usable:
            return

        def stop() -> None:
            try:
                last()
            finally:
                loop.stop()

        loop.call_soon_threadsafe(stop)
        if _thread.get_ident() != self._ident and not self._ended.wait(_CLOSE_TIMEOUT_S):
            _LOGGER.warning("the thread of references did not end within %g s", _CLOSE_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._starting:
            loop = asyncio.SelectorEventLoop()
            if self._loop is not None:  # A finalizer has come here in between.
                loop.close()
                return self._loop
            self._loop = loop
            # Not `threading.Thread`, whose start takes locks that the interrupted code may hold.
            self._ident = _thread.start_new_thread(self._run, (loop,))
            return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.current_thread().name = "pyserve-references"
        try:
            run_until_stopped(loop, waits_for_threads=True)
        finally:
            self._ended.set()
