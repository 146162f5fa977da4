"""Runs each replica in an actor of a Ray cluster, which places it and reports its loss.

Another process (``agent``) is connected with the cluster. When it ends, because the head or this
node of the cluster has ended, it is restarted until the cluster is back; replicas that are still
there are followed again, and the others count as ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyserve.config import check_address
from pyserve.config.capabilities import OF_LAUNCHERS, PODS, Capabilities
from pyserve.config.validation import check_switch
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import Ended, Events, ReplicaOrder, Waiting
from pyserve.errors import MeshError
from pyserve.launch.on_ray.ingresses import NodeIngresses, is_ingress
from pyserve.launch.on_ray.messages import (
    EndStrays,
    Follow,
    Followed,
    Link,
    Lost,
    Message,
    Nodes,
    OutputLines,
    ReplicaStart,
    Stop,
)
from pyserve.launch.on_ray.resource_request import Node, requested_of
from pyserve.launch.site import Site, mesh_variables
from pyserve.types import ReplicaId

_LOGGER = logging.getLogger(__name__)
_NAMESPACE_LENGTH = 12
# Nothing announces that a cluster is back, so it is polled. Each try is a process of its own.
_TRY_AGAIN_S = 1.0
_CLOSED_WITHIN_S = 10.0
_INGRESS_GRACE_S = 5.0
_STARTS_MAX = 64
_OPTIONS = dict.fromkeys(("address", "ingress_address", "pack"))
_LOST = "was lost with the Ray cluster that it was started in"


@dataclass(slots=True)
class _Running:
    order: ReplicaOrder
    is_killed: bool = False


class RayLauncher:
    """See ``LastingLauncher``. In a lasting mesh its replicas outlive it.

    Args:
        site: the mesh. The option ``address`` says where the cluster is, by default on this
            machine; ``ingress_address`` where an ingress listens on each of its other nodes, by
            default on none; ``pack`` places replicas on few nodes.
    """

    name = "ray"
    capabilities = Capabilities(acts_on=OF_LAUNCHERS - PODS)

    def __init__(self, site: Site) -> None:
        if unknown := sorted(site.options.keys() - _OPTIONS):
            known, wrong = ", ".join(_OPTIONS), ", ".join(unknown)
            raise MeshError(f"the launcher 'ray' has no option {wrong}; it has {known}")
        self._site = site
        self._address = str(site.options.get("address", "auto"))
        # For the names of actors, which can be found with the token of the mesh.
        self.namespace = f"pyserve-{hashlib.sha256(site.token).hexdigest()[:_NAMESPACE_LENGTH]}"
        self._events = Events()
        self._running: dict[ReplicaId, _Running] = {}
        self._asked: dict[ReplicaId, asyncio.Future[str]] = {}
        self._found: set[str] = set()
        self._link: Link | None = None
        self._is_there = asyncio.Event()
        self._absence = ""
        self._is_closing = False
        self._one_ended = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._adopting: set[asyncio.Task[None]] = set()
        self._ending_strays: asyncio.Task[None] | None = None
        self._variables: Mapping[str, str] = {}
        self._packs = check_switch("launcher.pack", site.options.get("pack", False))
        self._ingress_address = str(site.options.get("ingress_address", ""))
        if self._ingress_address:
            check_address("ingress_address of the launcher 'ray'", self._ingress_address)
        self._ingresses = NodeIngresses(
            self._begin_ingress, self._send, is_detached=site.is_lasting
        )

    async def open(self) -> None:
        """Connect with the cluster; see ``Launcher.open``."""
        link = await self._connect()
        if self._site.is_lasting:
            self._found = {each for each in link.connected.actors if not is_ingress(each)}
        self._keeping = asyncio.get_running_loop().create_task(self._keep(link))
        self._keeping.add_done_callback(_tell_failure)

    async def _connect(self) -> Link:
        wants_nodes = bool(self._ingress_address)
        link = await Link.open(self._address, self.namespace, tells_nodes=wants_nodes)
        own = link.connected.own_node
        others = _elsewhere(link.connected.nodes, own)
        if others and not self._site.controller_tcp():
            await link.close()
            raise MeshError(
                f"the Ray cluster has nodes on other machines ({', '.join(others)}), which cannot "
                f"reach this controller; set PYSERVE_CONTROLLER to the HOST:PORT where it shall "
                f"listen for them"
            )
        self._variables = {**mesh_variables(), "RAY_ADDRESS": link.connected.address}
        self._link = link
        self._absence = ""
        self._ingresses.on_connected(own, link.connected.actors)
        self._is_there.set()
        return link

    async def _keep(self, link: Link) -> None:
        """Handle the messages of agents, and replace each agent that ends."""
        while True:
            why = "Ray has ended the process that was connected with it, as it does with its node"
            while (message := await link.receive()) is not None:
                if isinstance(message, Lost):
                    why = message.why
                    break
                self._hear(message)
            if self._is_closing:
                return
            self._lose(why)
            await link.close()
            link = await self._connected_again()
            _LOGGER.warning("the Ray cluster at %r is there again", self._address)
            self._follow_again(link)

    async def _connected_again(self) -> Link:
        while True:
            try:
                return await self._connect()
            except (MeshError, OSError) as error:
                self._absence = f"{self._absence.partition('; ')[0]}; {error}"
                await asyncio.sleep(_TRY_AGAIN_S)

    def _lose(self, why: str) -> None:
        self._is_there.clear()
        self._one_ended.set()
        self._ingresses.forget()
        self._absence = f"the Ray cluster at {self._address!r} is lost: {why}"
        _LOGGER.error("%s; replicas start again when it is there again", self._absence)
        for replica_id, future in self._asked.items():
            if not future.done():
                # Its start fails, which is its end.
                self._running.pop(replica_id, None)
                future.set_result(self._absence)
        for replica_id, running in list(self._running.items()):
            if running.is_killed:
                self._end(replica_id, "was killed")
            elif not self._site.is_lasting:
                # Its actor was not detached.
                self._end(replica_id, _LOST)

    def _follow_again(self, link: Link) -> None:
        for replica_id, running in list(self._running.items()):
            if replica_id in link.connected.actors:
                self._adopt(running.order)
            else:
                self._end(replica_id, _LOST)
        self.end_strays()

    def notices(self) -> Sequence[str]:
        """Return notices about the cluster for users, a line each."""
        return [self._absence] if self._absence else []

    async def start(self, order: ReplicaOrder) -> int:
        """Make the actor of a replica; see ``Launcher.start``."""
        replica_id = order.replica_id
        asked = asyncio.get_running_loop().create_future()
        self._asked[replica_id] = asked
        try:
            await self._until_there(replica_id, asked)
            if not asked.done():
                self._running[replica_id] = _Running(order)
                await self._follow(order, is_new=True)
            if error := await asked:
                self._forget(replica_id)
                raise OSError(error)
        finally:
            del self._asked[replica_id]
        return 0

    async def _until_there(self, replica_id: ReplicaId, asked: asyncio.Future[str]) -> None:
        """Wait for the cluster, or until the replica is not wanted any more."""
        if self._is_there.is_set():
            return
        lost = f"the Ray cluster at {self._address!r}, which is lost"
        self._events.put(Waiting(replica_id, lost))
        there = asyncio.ensure_future(self._is_there.wait())
        waits: list[asyncio.Future[Any]] = [there, asked]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        self._events.put(Waiting(replica_id, ""))

    async def _beginning(self, order: ReplicaOrder) -> ReplicaStart:
        assert self._link is not None, "it is there"
        is_uploaded = order.options is not None and order.options.working_dir is not None
        return ReplicaStart(
            arguments=order.arguments(await self._controller()),
            token=self._site.token,
            environment=self._variables,
            working_directory="" if is_uploaded else order.working_directory,
            names={self._link.connected.own_node: self._site.node},
        )

    async def _begin_ingress(self) -> ReplicaStart:
        return ReplicaStart(
            arguments=("--address", self._ingress_address),
            token=self._site.token,
            environment={**self._variables, "PYSERVE_CONTROLLER": await self._controller()},
        )

    async def _controller(self) -> str:
        return self._site.controller_tcp() or await self._site.controller()

    def memo(self, replica_id: ReplicaId) -> str:
        """Return the name of the actor; see ``LastingLauncher.memo``."""
        return replica_id if replica_id in self._running else ""

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:  # noqa: ARG002
        """Follow an actor that ``open`` has found; see ``LastingLauncher.adopt``."""
        if order.replica_id not in self._found:
            return None
        self._found.discard(order.replica_id)
        self._running[order.replica_id] = _Running(order)
        self._adopt(order)
        return 0

    def _adopt(self, order: ReplicaOrder) -> None:
        # It is sent the same start as before, which an actor that has begun ignores.
        task = asyncio.get_running_loop().create_task(self._follow(order, is_new=False))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _follow(self, order: ReplicaOrder, *, is_new: bool) -> None:
        self._send(
            Follow(
                replica_id=order.replica_id,
                requested=requested_of(order),
                beginning=await self._beginning(order),
                is_new=is_new,
                is_detached=self._site.is_lasting,
                packs=self._packs,
            )
        )

    def count_strays(self) -> int:
        """Return how many actors have not been adopted; see ``CountsStrays``."""
        return len(self._found)

    def end_strays(self) -> None:
        """End the actors that have not been adopted; see ``LastingLauncher.end_strays``."""
        self._found.clear()
        self._ending_strays = asyncio.get_running_loop().create_task(self._end_strays())

    async def _end_strays(self) -> None:
        # Actors that are about to be followed are not strays.
        await asyncio.gather(*self._adopting, return_exceptions=True)
        self._send(EndStrays(bool(self._ingress_address)))

    def let_go(self) -> None:
        """Stop following all actors; see ``LastingLauncher.let_go``."""
        self._is_closing = True
        self._running.clear()
        self._ingresses.forget()
        if self._link is not None:
            self._link.let_go()

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Have a replica end; see ``Launcher.stop``."""
        asked, running = self._asked.get(replica_id), self._running.get(replica_id)
        if running is None:
            if asked is not None and grace_s <= 0 and not asked.done():
                asked.set_result("was stopped before it began")
            return
        running.is_killed |= grace_s <= 0
        if self._is_there.is_set():
            self._send(Stop(replica_id, grace_s))
        elif running.is_killed and asked is None:
            self._end(replica_id, _LOST)

    def room(self) -> Room:
        """Return that the cluster has room for many; see ``Launcher.room``."""
        if self._absence:
            return Room(starts_max=0, why=self._absence, is_short=True)
        return Room(starts_max=_STARTS_MAX, why=f"{_STARTS_MAX} start at a time")

    def watch(self) -> Events:
        """Return the events of replicas; see ``Launcher.watch``."""
        return self._events

    async def close(self) -> None:
        """End every actor of ours, and let go of the cluster; see ``Launcher.close``."""
        for replica_id in list(self._running):
            self.stop(replica_id, 0)
        for name in self._ingresses.end():
            self._send(Stop(name, _INGRESS_GRACE_S))
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                while left := {*self._running, *self._ingresses.names}:
                    if not self._is_there.is_set():
                        break
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            _LOGGER.error("these are not known to have ended: %s", ", ".join(left))
        self._is_closing = True
        if self._keeping is not None:
            if not self._is_there.is_set():
                self._keeping.cancel()
            elif self._link is not None:
                self._link.let_go()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        if self._link is not None:
            await self._link.close()
            self._link = None
        self._events.close()

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def _hear(self, message: Message) -> None:
        match message:
            case Followed(replica_id, error):
                self._on_followed(ReplicaId(replica_id), error)
            case OutputLines(replica_id, lines):
                self._on_said(ReplicaId(replica_id), lines)
            case Waiting():
                self._events.put(message)
            case Ended(replica_id, summary):
                self._ingresses.on_ended(replica_id, summary)
                self._end(replica_id, summary)
            case Nodes(ids):
                self._ingresses.on_nodes(ids)

    def _on_said(self, replica_id: ReplicaId, lines: Sequence[str]) -> None:
        if (running := self._running.get(replica_id)) is not None:
            for line in lines:
                self._site.said(running.order, line)

    def _on_followed(self, replica_id: ReplicaId, error: str) -> None:
        asked = self._asked.get(replica_id)
        if asked is not None:
            if not asked.done():
                asked.set_result(error)
        elif error:
            self._ingresses.on_ended(replica_id, error)
            self._end(replica_id, error)

    def _end(self, replica_id: ReplicaId, summary: str) -> None:
        if self._forget(replica_id):
            self._events.put(Ended(replica_id, summary))

    def _forget(self, replica_id: ReplicaId) -> bool:
        self._one_ended.set()
        return self._running.pop(replica_id, None) is not None


def _tell_failure(keeping: asyncio.Task[None]) -> None:
    if not keeping.cancelled() and (error := keeping.exception()) is not None:
        _LOGGER.critical("the launcher 'ray' follows nothing any more", exc_info=error)


def _elsewhere(nodes: Sequence[Node], own: str) -> list[str]:
    """Return the addresses of nodes that are not on this machine."""
    here = {each.address for each in nodes if each.id == own}
    return sorted({each.address for each in nodes} - here)
