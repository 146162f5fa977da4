"""Each replica in an actor of a Ray cluster, which places it, and tells when it is lost.

Nothing of Ray's waits in the controller's loop: what asks the cluster runs in threads, and what the
cluster tells comes as futures. An actor that has died, also with its node, fails the question that
is always open to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from pyserve.config import inherited_environment
from pyserve.config.capabilities import BUNDLES, ENVIRONMENTS, LABELS, RESOURCES, Capabilities
from pyserve.control.reconcile.rationing import Room
from pyserve.control.replicas.launching import Ended, Events, ReplicaOrder, Waiting
from pyserve.errors import MeshError
from pyserve.launch.engines import Site
from pyserve.launch.on_ray import cluster
from pyserve.launch.on_ray.actor import Beginning, News
from pyserve.launch.on_ray.cluster import Held
from pyserve.launch.on_ray.wishes import Node, Wishes, wishes_of
from pyserve.types import ReplicaId

_LOGGER = logging.getLogger(__name__)
_NAMESPACE_LENGTH = 12
# What is about this machine or process, and not about all those of a mesh.
_OF_THIS_MACHINE = {
    f"PYSERVE_{name}"
    for name in (
        *("ADVERTISE_HOST", "BIND_HOST", "CONTROLLER", "HOME", "LAUNCHER", "LAUNCHER_OPTIONS"),
        *("NODE_ID", "RUN_DIR", "TOKEN_FILE", "ZONE"),
    )
}
# A start of which nothing is heard by then waits for a place. Arbitrary.
_PLACED_WITHIN_S = 1.0
# What is to end at once and has not by then is ended by the cluster.
_KILLED_WITHIN_S = 2.0
_AGAIN_S = 0.5
_CLOSED_WITHIN_S = 10.0
_STARTS_MAX = 64


@dataclass(slots=True)
class _Running:
    order: ReplicaOrder
    held: Held
    wishes: Wishes
    following: asyncio.Task[None] | None = None
    is_killed: bool = False
    # Questions that nobody waits for have to be kept until they are answered.
    asked: list[object] = field(default_factory=list)


class RayLauncher:
    """See ``LastingLauncher``; its replicas outlive it where those of the mesh shall.

    Args:
        site: the mesh; the option ``address`` says where the cluster is, by default on this
            machine.
    """

    name = "ray"
    capabilities = Capabilities(acts_on=RESOURCES | LABELS | BUNDLES | ENVIRONMENTS)

    def __init__(self, site: Site) -> None:
        unknown = sorted(site.options.keys() - {"address"})
        if unknown:
            raise MeshError(f"the launcher 'ray' has no option {', '.join(unknown)}, but 'address'")
        self._site = site
        self._address = str(site.options.get("address", "auto"))
        self._namespace = f"pyserve-{hashlib.sha256(site.token).hexdigest()[:_NAMESPACE_LENGTH]}"
        self._events = Events()
        self._running: dict[ReplicaId, _Running] = {}
        self._found: dict[str, Held] = {}
        self._own_node = ""
        self._variables: Mapping[str, str] = {}
        self._is_open = False

    async def open(self) -> None:
        """Connect with the cluster; see ``Launcher.open``."""
        await asyncio.to_thread(self._connect)

    def _connect(self) -> None:
        cluster.connect(self._address, self._namespace)
        self._is_open = True
        nodes = cluster.nodes()
        self._own_node = cluster.own_node()
        if not self._site.controller_tcp() and (others := _elsewhere(nodes, self._own_node)):
            raise MeshError(
                f"the Ray cluster has nodes on other machines ({', '.join(others)}), which cannot "
                f"reach this controller; set PYSERVE_CONTROLLER to the HOST:PORT where it shall "
                f"listen for them"
            )
        self._variables = {
            **{
                name: value
                for name, value in inherited_environment({}).items()
                if name.startswith("PYSERVE_") and name not in _OF_THIS_MACHINE
            },
            "RAY_ADDRESS": cluster.gcs_address(),
        }
        if self._site.is_lasting:
            self._found = cluster.actors()

    async def start(self, order: ReplicaOrder) -> int:
        """Make the actor of a replica; see ``Launcher.start``."""
        wishes = wishes_of(order)
        if shortage := wishes.shortage(await asyncio.to_thread(cluster.nodes)):
            raise OSError(shortage)
        held = await asyncio.to_thread(
            cluster.create, order.replica_id, wishes, is_detached=self._site.is_lasting
        )
        self._follow(_Running(order, held, wishes))
        return 0

    def memo(self, replica_id: ReplicaId) -> str:
        """Return the name of the actor; see ``LastingLauncher.memo``."""
        return replica_id if replica_id in self._running else ""

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:  # noqa: ARG002
        """Follow an actor that ``open`` has found; see ``LastingLauncher.adopt``."""
        held = self._found.pop(order.replica_id, None)
        if held is None:
            return None
        self._follow(_Running(order, held, wishes_of(order)))
        return 0

    def end_strays(self) -> None:
        """End the actors that nobody has adopted; see ``LastingLauncher.end_strays``."""
        for held in self._found.values():
            asyncio.get_running_loop().run_in_executor(None, cluster.release, held)
        self._found.clear()

    def let_go(self) -> None:
        """Follow no actor any more; see ``LastingLauncher.let_go``."""
        for running in self._running.values():
            if running.following is not None:
                running.following.cancel()
        self._running.clear()

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Have a replica end; see ``Launcher.stop``."""
        running = self._running.get(replica_id)
        if running is None:
            return
        running.asked.append(running.held.actor.stop.remote(grace_s))
        if grace_s <= 0:
            running.is_killed = True
            # One that waits for a place is never asked, and one that hangs does not answer.
            asyncio.get_running_loop().call_later(_KILLED_WITHIN_S, self._release, running)

    def room(self) -> Room:
        """Return that the cluster has room for many; see ``Launcher.room``."""
        return Room(starts_max=_STARTS_MAX, why=f"{_STARTS_MAX} start at a time")

    def watch(self) -> Events:
        """Return what becomes of replicas; see ``Launcher.watch``."""
        return self._events

    async def close(self) -> None:
        """End every actor of ours, and let go of the cluster; see ``Launcher.close``."""
        following = [each.following for each in self._running.values() if each.following]
        for replica_id in list(self._running):
            self.stop(replica_id, 0)
        if following:
            await asyncio.wait(following, timeout=_CLOSED_WITHIN_S)
        if self._is_open:
            self._is_open = False
            await asyncio.to_thread(cluster.disconnect)
        self._events.close()

    def _release(self, running: _Running) -> None:
        if self._running.get(running.order.replica_id) is running:
            asyncio.get_running_loop().run_in_executor(None, cluster.release, running.held)

    def _follow(self, running: _Running) -> None:
        self._running[running.order.replica_id] = running
        running.following = asyncio.get_running_loop().create_task(self._until_end(running))

    async def _until_end(self, running: _Running) -> None:
        replica_id = running.order.replica_id
        try:
            summary = await self._live(running)
        except RayTaskError as error:
            summary = f"cannot be started: {error.cause}"
        except RayError as error:
            summary = "was killed" if running.is_killed else cluster.why_lost(error)
        except Exception as error:
            _LOGGER.exception("replica %s is followed no more", replica_id)
            summary = f"cannot be followed: {error}"
        await asyncio.to_thread(cluster.release, running.held)
        self._running.pop(replica_id, None)
        self._events.put(Ended(replica_id, summary))

    async def _live(self, running: _Running) -> str:
        """Start the replica if it has not been, take what it says, and return how it has ended."""
        begun = asyncio.ensure_future(self._begin(running))
        done, _ = await asyncio.wait([begun], timeout=_PLACED_WITHIN_S)
        if not done:
            self._events.put(Waiting(running.order.replica_id, running.wishes.told()))
        await begun
        if not done:
            self._events.put(Waiting(running.order.replica_id, ""))
        while True:
            try:
                news: News = await running.held.actor.news.remote()
            except ActorUnavailableError:
                # The way to it is broken, which may be for a moment; its death is another error.
                await asyncio.sleep(_AGAIN_S)
                continue
            for line in news.lines:
                self._site.said(running.order, line)
            if news.end is not None:
                return news.end

    async def _begin(self, running: _Running) -> None:
        order = running.order
        controller = self._site.controller_tcp() or await self._site.controller()
        beginning = Beginning(
            arguments=order.arguments(controller),
            token=self._site.token,
            environment=self._variables,
            working_directory=order.working_directory,
            needs_directory=order.options is not None and order.options.working_dir is not None,
            names={self._own_node: self._site.node},
        )
        with contextlib.suppress(ActorUnavailableError):
            await running.held.actor.start.remote(beginning)


def _elsewhere(nodes: list[Node], own: str) -> list[str]:
    """Return the addresses of nodes that are not on this machine."""
    here = {each.address for each in nodes if each.id == own}
    return sorted({each.address for each in nodes} - here)
