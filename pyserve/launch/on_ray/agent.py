"""The process that connects a controller with a Ray cluster, run with ``python -m``.

Ray silently ends a process that is connected with a cluster when the cluster's head, or its node on
this machine, has gone. So the controller does not connect itself: it starts this process, and sees
it end. Calls to the cluster run in threads, and their results come as futures. One request to each
actor is always pending, and fails when the actor dies, also together with its node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.config.control import SHUTDOWN_GRACE_S
from pyserve.control.replicas.launching import Ended, Waiting
from pyserve.errors import MeshError
from pyserve.launch.on_ray.ingresses import is_ingress
from pyserve.launch.on_ray.messages import (
    Connected,
    EndStrays,
    Follow,
    Followed,
    Lost,
    Message,
    Nodes,
    OutputLines,
    Refused,
    Stop,
    receive,
    send,
)
from pyserve.launch.on_ray.resource_request import Node, Packing

_LOGGER = logging.getLogger(__name__)
# The first one whose actors take label_selector and fallback_strategy.
_VERSION_MIN = (2, 49)
# A start without an answer after this time counts as waiting for a place. Arbitrary.
_PLACED_WITHIN_S = 1.0
# The cluster kills a replica that was told to end at once and has not after this time.
_KILLED_WITHIN_S = 2.0
_AGAIN_S = 0.5
_LOOK_S = 2.0
# For disconnecting from a cluster that does not answer.
_DISCONNECTED_WITHIN_S = 3.0


@dataclass(slots=True)
class _Running:
    wanted: Follow
    actor: Any
    is_killed: bool = False
    # Requests without a waiter have to be referenced until they are answered.
    asked: list[object] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """A placement group, and the replicas in it."""

    handle: Any
    members: set[str] = field(default_factory=set)


class Agent:
    """Carries out what the controller asks for, from ``run`` until that ends.

    Args:
        reader, writer: to the controller.
        address: of the cluster.
        namespace: of the names of actors.
        tells_nodes: the controller wants to know of each change of the nodes.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        namespace: str,
        *,
        tells_nodes: bool,
    ) -> None:
        # Imported only here, after the check that Ray is installed and new enough.
        from pyserve.launch.on_ray import cluster

        self._cluster = cluster
        self._reader = reader
        self._writer = writer
        self._address = address
        self._namespace = namespace
        self._tells_nodes = tells_nodes
        self._running: dict[str, _Running] = {}
        # Those whose actors are being made, and the grace of those that are to end already.
        self._making: dict[str, float | None] = {}
        self._found: dict[str, Any] = {}
        self._groups: dict[str, _Group] = {}
        self._grouping = asyncio.Lock()
        self._packing, self._placing = Packing(), asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Connect, and follow replicas until the controller or the cluster is gone.

        Raises:
            MeshError: There is no cluster, or it refuses the connection.
        """
        send(self._writer, await asyncio.to_thread(self._connect))
        if self._tells_nodes:
            self._spawn(self._look())
        ways = [asyncio.ensure_future(each) for each in (self._obey(), self._lose())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()
        for task in (*ways, *self._tasks):
            task.cancel()

    def _connect(self) -> Connected:
        cluster = self._cluster
        cluster.connect(self._address, self._namespace)
        self._found = cluster.actors()
        groups = cluster.groups(f"{self._namespace}/")
        self._groups = {name: _Group(handle) for name, handle in groups.items()}
        return Connected(
            nodes=cluster.nodes(),
            own_node=cluster.own_node(),
            address=cluster.gcs_address(),
            actors=tuple(self._found),
        )

    async def _obey(self) -> None:
        while (message := await receive(self._reader)) is not None:
            match message:
                case Follow():
                    self._spawn(self._follow(message, self._claim(message)))
                case Stop(replica_id, grace_s):
                    self._stop(replica_id, grace_s)
                case EndStrays(but_ingresses):
                    self._spawn(self._end_strays(but_ingresses=but_ingresses))

    async def _lose(self) -> None:
        """Wait until the head is gone, and report it."""
        await self._cluster.until_lost()
        self._tell(Lost("its head has ended, or cannot be reached"))

    async def _look(self) -> None:
        """Report each change of the nodes. Ray does not announce changes, so it is polled."""
        told: frozenset[str] = frozenset()
        while True:
            nodes = await asyncio.to_thread(self._cluster.nodes)
            found = frozenset(each.id for each in nodes)
            if found != told:
                self._tell(Nodes(found))
                told = found
            await asyncio.sleep(_LOOK_S)

    def _tell(self, message: Message) -> None:
        send(self._writer, message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _claim(self, wanted: Follow) -> Any:
        """Return an existing actor, which is not a stray from now on; ``None`` without one."""
        group = self._groups.get(self._group_name(wanted))
        if group is not None:
            group.members.add(wanted.replica_id)
        self._making[wanted.replica_id] = None
        return self._found.pop(wanted.replica_id, None)

    async def _follow(self, wanted: Follow, found: Any) -> None:
        replica_id = wanted.replica_id
        try:
            actor = await self._made(wanted, found)
        except OSError as error:
            del self._making[replica_id]
            self._packing.leave(replica_id)
            await self._leave_group(wanted)
            self._tell(Followed(replica_id, str(error)))
            return
        running = self._running[replica_id] = _Running(wanted, actor)
        if (grace_s := self._making.pop(replica_id)) is not None:
            self._stop(replica_id, grace_s)
        self._tell(Followed(replica_id))
        summary = await self._until_end(running)
        await asyncio.to_thread(self._cluster.end, actor)
        self._packing.leave(replica_id)
        await self._leave_group(wanted)
        del self._running[replica_id]
        self._tell(Ended(replica_id, summary))

    async def _made(self, wanted: Follow, found: Any) -> Any:
        """Return the actor of a replica, which is made unless it is there."""
        if not wanted.is_new:
            if found is None:
                raise OSError("its actor has ended")
            return found
        node = await self._place(wanted)
        group = await self._group(wanted)
        from pyserve.launch.on_ray.actor import IngressActor, ReplicaActor

        kind = IngressActor if wanted.ingress_of else ReplicaActor
        return await asyncio.to_thread(
            self._cluster.make_actor,
            *(kind, wanted.replica_id, wanted.requested, group),
            is_detached=wanted.is_detached,
            node=node,
            may_differ=not wanted.ingress_of,
        )

    async def _place(self, wanted: Follow) -> str:
        """Return the node on which to place a replica; "": Ray chooses."""
        if wanted.ingress_of or not wanted.packs:
            await self._roomy_nodes(wanted)
            return wanted.ingress_of
        # One after the other, as they come: those that came last are mostly the first to end.
        async with self._placing:
            nodes = await self._roomy_nodes(wanted)
            free = await asyncio.to_thread(self._cluster.free)
            return self._packing.place(wanted.replica_id, wanted.requested, nodes, free)

    async def _roomy_nodes(self, wanted: Follow) -> Sequence[Node]:
        """Return the nodes, once it is known that some of them could hold the replica at all."""
        nodes = await asyncio.to_thread(self._cluster.nodes)
        if shortage := wanted.requested.shortage(nodes):
            raise OSError(shortage)
        return nodes

    async def _group(self, wanted: Follow) -> Any:
        """Return the placement group of a replica, ``None`` without one."""
        if not wanted.requested.bundles:
            return None
        name = self._group_name(wanted)
        async with self._grouping:
            group = self._groups.get(name)
            if group is None:
                handle = await asyncio.to_thread(
                    self._cluster.make_group, name, wanted.requested, is_detached=wanted.is_detached
                )
                group = self._groups[name] = _Group(handle)
            group.members.add(wanted.replica_id)
        return group.handle

    def _group_name(self, wanted: Follow) -> str:
        return f"{self._namespace}/{wanted.requested.gang or wanted.replica_id}"

    async def _leave_group(self, wanted: Follow) -> None:
        name = self._group_name(wanted)
        async with self._grouping:
            group = self._groups.get(name)
            if group is None:
                return
            group.members.discard(wanted.replica_id)
            if not group.members:
                del self._groups[name]
                await asyncio.to_thread(self._cluster.remove, group.handle)

    def _stop(self, replica_id: str, grace_s: float) -> None:
        running = self._running.get(replica_id)
        if running is None:
            if replica_id in self._making:
                self._making[replica_id] = grace_s
            return
        running.asked.append(running.actor.stop.remote(grace_s))
        if grace_s <= 0:
            running.is_killed = True
            # An actor that waits for a place gets no request, and one that hangs does not answer.
            asyncio.get_running_loop().call_later(_KILLED_WITHIN_S, self._kill, running)

    def _kill(self, running: _Running) -> None:
        if self._running.get(running.wanted.replica_id) is running:
            asyncio.get_running_loop().run_in_executor(None, self._cluster.end, running.actor)

    async def _end_strays(self, *, but_ingresses: bool) -> None:
        strays = [name for name in self._found if not (but_ingresses and is_ingress(name))]
        actors = [self._found.pop(name) for name in strays]
        await asyncio.gather(*(self._end_stray(actor) for actor in actors))
        async with self._grouping:
            for name in [name for name, each in self._groups.items() if not each.members]:
                await asyncio.to_thread(self._cluster.remove, self._groups.pop(name).handle)

    async def _end_stray(self, actor: Any) -> None:
        """Let it finish its calls if it answers; then kill it."""
        from ray.exceptions import RayError

        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_GRACE_S + _KILLED_WITHIN_S):
                await actor.stop.remote(SHUTDOWN_GRACE_S)
                while (await actor.news.remote()).end is None:
                    pass
        await asyncio.to_thread(self._cluster.end, actor)

    async def _until_end(self, running: _Running) -> str:
        """Return how a replica has ended."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return await self._live(running)
        except RayTaskError as error:
            return f"cannot be started: {error.cause}"
        except RayError as error:
            return "was killed" if running.is_killed else self._cluster.why_lost(error)
        except Exception as error:
            _LOGGER.exception("replica %s is followed no more", running.wanted.replica_id)
            return f"cannot be followed: {error}"

    async def _live(self, running: _Running) -> str:
        """Start the replica if need be, pass on its output, and return how it has ended."""
        from ray.exceptions import ActorUnavailableError

        replica_id = running.wanted.replica_id
        begun = asyncio.ensure_future(self._begin(running))
        done, _ = await asyncio.wait([begun], timeout=_PLACED_WITHIN_S)
        if not done:
            self._tell(Waiting(replica_id, running.wanted.requested.told()))
        await begun
        if not done:
            self._tell(Waiting(replica_id, ""))
        while True:
            try:
                news = await running.actor.news.remote()
            except ActorUnavailableError:
                # The connection to it is broken, maybe for a moment; its death is another error.
                await asyncio.sleep(_AGAIN_S)
                continue
            if news.lines:
                self._tell(OutputLines(replica_id, news.lines))
            if news.end is not None:
                return str(news.end)

    async def _begin(self, running: _Running) -> None:
        from ray.exceptions import ActorUnavailableError

        with contextlib.suppress(ActorUnavailableError):
            await running.actor.start.remote(running.wanted.beginning)


def check_ray() -> None:
    """Raise ``MeshError`` if Ray is not installed, or too old."""
    try:
        import ray
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise MeshError(
            "the launcher 'ray' needs Ray; install it with `pip install 'pyserve-mesh[ray]'`"
        ) from error
    if tuple(map(int, ray.__version__.split(".")[:2])) < _VERSION_MIN:
        needed = ".".join(map(str, _VERSION_MIN))
        raise MeshError(
            f"Ray {ray.__version__} is too old for the launcher 'ray'; install Ray {needed} or "
            f"later here and on the cluster"
        )


async def _serve(options: argparse.Namespace) -> None:
    way = socket.socket(fileno=options.descriptor)
    reader, writer = await asyncio.open_connection(sock=way)
    try:
        check_ray()
        where = (options.address, options.namespace)
        await Agent(reader, writer, *where, tells_nodes=options.tell_nodes).run()
    except MeshError as error:
        send(writer, Refused(str(error)))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
    else:
        # Disconnecting may wait for a cluster that is gone; nothing waits for this process.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCONNECTED_WITHIN_S):
                await asyncio.to_thread(_disconnect)
    os._exit(0)


def _disconnect() -> None:
    from pyserve.launch.on_ray import cluster

    cluster.disconnect()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until its controller ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--descriptor", type=int, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--tell-nodes", action="store_true")
    asyncio.run(_serve(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
