"""The thread and the loop that local testing mode runs its applications on."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pyserve.errors import UsageError
from pyserve.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyserve.api.graph import PackedApplication
    from pyserve.driver.local.mesh import LocalMesh
    from pyserve.driver.local.server import LocalServer
    from pyserve.types import ApplicationName

Result = TypeVar("Result")


class LocalRuntime:
    """Runs a ``LocalMesh`` on a loop in a daemon thread of its own; its methods are for others.

    Attributes:
        mesh: What handles see.
    """

    def __init__(self, mesh: LocalMesh) -> None:
        self.mesh = mesh
        # Threads of user code are not waited for: they may take however long they like.
        self._thread = LoopThread("pyserve-local", waits_for_threads=False)

    def deploy(self, packed: PackedApplication, timeout_s: float | None = None) -> None:
        """Bring an application up; see ``LocalMesh.deploy``.

        Raises:
            DeploymentFailed: User code cannot be loaded, or raised.
            TimeoutError: It took longer than ``timeout_s``.
        """
        self._wait(self.mesh.deploy(packed), timeout_s)

    def delete(self, name: ApplicationName) -> None:
        """Drain and end one application.

        Raises:
            MeshNotFound: It does not run here.
        """
        self._wait(self.mesh.delete(name))

    def serve(self, name: ApplicationName, address: str) -> LocalServer:
        """Answer at an address what an application of this process answers; see ``serve``.

        Raises:
            DeploymentFailed: Its web application could not be started.
            UsageError: The address cannot be used.
        """
        # Others need no server.
        from pyserve.driver.local.server import serve

        return self._wait(serve(self.mesh.applications[name], [address]))

    def stop(self, server: LocalServer, grace_s: float) -> None:
        """End a server; what is in flight gets ``grace_s``."""
        self._wait(server.stop(grace_s))

    def close(self) -> None:
        """Drain and end all applications, and the thread. Idempotent."""
        if self._thread.is_running:
            self._wait(self.mesh.delete_all())
            self._thread.close()
        self.mesh.close()

    def _wait(self, step: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        if self._thread.is_current:
            step.close()
            raise UsageError(
                "a handler that is `async def` cannot wait for applications here, since they share "
                "its event loop; write `await asyncio.to_thread(pyserve.run, app)`, or `def`"
            )
        running = self._thread.run(step)
        try:
            return running.result(timeout_s)
        except concurrent.futures.TimeoutError:
            running.cancel()
            raise
