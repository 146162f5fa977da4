"""Plain HTTP of an application in this process: what its first deployment answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyserve.api.context import enter_local_replica
from pyserve.config import read_settings
from pyserve.errors import DeploymentFailed
from pyserve.replica.http import plain_handler
from pyserve.replica.loading import (
    LoadError,
    front_of,
    start_application,
    stop_application,
)
from pyserve.replica.plain.methods import CALL

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHandler
    from pyserve.driver.local.replica import LocalReplica
    from pyserve.replica.asgi import AsgiApplication


class Web:
    """Answers plain HTTP by a deployment's web application, or by its ``__call__``.

    Made by ``start``.

    Attributes:
        handler: For a server on the replica's loop; ``None``: the deployment answers no HTTP.
    """

    def __init__(
        self,
        replica: LocalReplica,
        application: AsgiApplication | None,
        others: Sequence[LocalReplica],
    ) -> None:
        self._replica = replica
        self._application = application
        self.handler = self._make_handler()
        for each in others:
            if each.inference is not None:
                self.handler = _within(each, each.inference.in_front_of(self.handler))

    @classmethod
    async def start(cls, replica: LocalReplica, replicas: Sequence[LocalReplica] = ()) -> Web:
        """Run the startup of the web application, if there is one.

        Args:
            replica: Of the first deployment.
            replicas: Of all, of which some may answer inference.

        Raises:
            DeploymentFailed: It failed, or the middlewares cannot be made.
        """
        middlewares = read_settings().http_middlewares
        try:
            application = await replica.within(
                start_application(replica.loaded.target, middlewares)
            )
            return cls(replica, application, replicas)
        except LoadError as error:
            name = replica.context.deployment
            raise DeploymentFailed(name, error.summary, error.traceback) from error

    def drain(self) -> None:
        """Ask the clients of WebSockets to go."""
        if self._application is not None:
            self._application.drain()

    async def close(self) -> None:
        """Run the shutdown of the web application."""
        if self._application is not None:
            await self._replica.within(stop_application(self._application))

    def _make_handler(self) -> HttpHandler | None:
        handler: HttpHandler
        if self._application is not None:
            handler = self._application.handle
        elif (call := self._replica.dispatcher.methods.get(CALL)) is not None:
            front = front_of(read_settings().http_middlewares)
            handler = plain_handler(call) if front is None else front(plain_handler(call))
        else:
            return None
        return _within(self._replica, handler)


def _within(replica: LocalReplica, handler: HttpHandler) -> HttpHandler:
    """Return a handler whose code is that of a replica."""

    async def handle(http: HttpCall) -> None:
        # Each request has a task of its own, so nothing has to be put back.
        enter_local_replica(replica.context)
        await handler(http)

    return handle
