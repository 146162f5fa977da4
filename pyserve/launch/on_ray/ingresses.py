"""An ingress on each node of the cluster but our own, whose ingress is the mesh's.

Each lives in an actor that is bound to its node, and is started again when it ends while the node
lives. What it is, and where it listens, it tells the controller itself, as all ingresses do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from pyserve.launch.on_ray.messages import Follow, ReplicaStart
from pyserve.launch.on_ray.resource_request import ResourceRequest
from pyserve.launch.process import Restarts
from pyserve.types import ReplicaId

_LOGGER = logging.getLogger(__name__)
_PREFIX = "ingress:"
# As ``describe_end`` says it.
_IN_ORDER = "ended with exit code 0"


@dataclass(slots=True)
class _Ingress:
    node: str
    started_at: float = 0.0
    restarts: Restarts = field(default_factory=Restarts)
    starting: asyncio.TimerHandle | asyncio.Task[None] | None = None


def is_ingress(name: str) -> bool:
    """Tell whether an actor is that of an ingress."""
    return name.startswith(_PREFIX)


class NodeIngresses:
    """Those of one mesh, while the cluster is there.

    Args:
        begin: returns what an ingress is started with.
        send: asks the agent for an actor.
        is_detached: they outlive the agent.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[ReplicaStart]],
        send: Callable[[Follow], None],
        *,
        is_detached: bool,
    ) -> None:
        self._begin = begin
        self._send = send
        self._is_detached = is_detached
        self._own_node = ""
        self._there: set[str] = set()
        self._is_ending = False
        self._ingresses: dict[str, _Ingress] = {}

    @property
    def names(self) -> Collection[str]:
        """Those of the actors that are there, or are about to be."""
        return self._ingresses.keys()

    def on_connected(self, own_node: str, actors: Collection[str]) -> None:
        """Begin with a cluster, in which these actors are there already."""
        self.forget()
        self._own_node = own_node
        self._there = {each for each in actors if is_ingress(each)}

    def on_nodes(self, nodes: Collection[str]) -> None:
        """Have an ingress on each of these nodes."""
        for node in nodes:
            name = f"{_PREFIX}{node}"
            if node != self._own_node and name not in self._ingresses:
                self._ingresses[name] = _Ingress(node)
                self._start(name)
        for name, ingress in list(self._ingresses.items()):
            if ingress.node not in nodes:
                self._drop(name)

    def on_ended(self, name: str, summary: str) -> None:
        """Start one again that has ended, after a while where it does so again and again."""
        ingress = self._ingresses.get(name)
        if ingress is None:
            return
        if self._is_ending:
            self._drop(name)
            return
        if summary == _IN_ORDER:
            # With the mesh, or on request.
            ingress.starting = None
            return
        loop = asyncio.get_running_loop()
        delay_s = ingress.restarts.on_death(loop.time() - ingress.started_at)
        _LOGGER.warning("the ingress of node %s %s; another one starts", ingress.node, summary)
        ingress.starting = loop.call_later(delay_s, self._start, name)

    def end(self) -> Sequence[str]:
        """Start none any more; return the actors that are to be ended, which ``names`` has then."""
        self._is_ending = True
        for name, ingress in list(self._ingresses.items()):
            if not isinstance(ingress.starting, asyncio.Task):
                self._drop(name)
        return list(self._ingresses)

    def forget(self) -> None:
        """Start none any more."""
        for name in list(self._ingresses):
            self._drop(name)

    def _drop(self, name: str) -> None:
        starting = self._ingresses.pop(name).starting
        if starting is not None:
            starting.cancel()

    def _start(self, name: str) -> None:
        ingress = self._ingresses[name]
        loop = asyncio.get_running_loop()
        ingress.started_at = loop.time()
        ingress.starting = loop.create_task(self._follow(name, ingress))

    async def _follow(self, name: str, ingress: _Ingress) -> None:
        self._send(
            Follow(
                replica_id=ReplicaId(name),
                # It takes what is left. By default Ray would reserve a processor for it.
                requested=ResourceRequest(actor={"num_cpus": 0}),
                beginning=await self._begin(),
                is_new=name not in self._there,
                is_detached=self._is_detached,
                ingress_of=ingress.node,
            )
        )
        self._there.discard(name)
