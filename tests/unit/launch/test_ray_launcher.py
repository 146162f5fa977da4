"""The launcher `ray` before an agent of the test: what it orders, and what it makes of news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.errors import MeshError, OptionError
from pyserve.launch import Ended, Event, ReplicaOrder, Site, Waiting, notices_of
from pyserve.launch.on_ray import launcher as module
from pyserve.launch.on_ray.launcher import RayLauncher
from pyserve.launch.on_ray.messages import (
    Connected,
    EndStrays,
    Follow,
    Followed,
    Lost,
    Message,
    OutputLines,
    Stop,
)
from pyserve.launch.on_ray.resource_request import Node
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from tests.support.waiting import eventually

ONE, OTHER = ReplicaId("Echo#aaaaa"), ReplicaId("Echo#bbbbb")


class FakeLink:
    """An agent whose words the test says."""

    def __init__(self, connected: Connected) -> None:
        self.connected = connected
        self.sent: list[Message] = []
        self._words: asyncio.Queue[Message | None] = asyncio.Queue()

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def says(self, *messages: Message | None) -> None:
        for each in messages:
            self._words.put_nowait(each)

    async def receive(self) -> Message | None:
        return await self._words.get()

    def let_go(self) -> None:
        self._words.put_nowait(None)

    async def close(self) -> None:
        self.let_go()

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.sent if isinstance(each, kind)]


class Cluster:
    """What agents find, one after the other."""

    def __init__(self) -> None:
        self.actors: Sequence[str] = ()
        self.nodes = [Node("n", "10.0.0.1", {"CPU": 2.0})]
        self.absence: str = ""
        self.links: list[FakeLink] = []

    async def open(self, address: str, namespace: str, *, tells_nodes: bool) -> FakeLink:
        assert not tells_nodes
        if self.absence:
            raise MeshError(self.absence)
        self.links.append(
            FakeLink(
                Connected(
                    nodes=self.nodes, own_node="n", address="10.0.0.1:6379", actors=self.actors
                )
            )
        )
        return self.links[-1]

    @property
    def link(self) -> FakeLink:
        return self.links[-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "Link", made)
    monkeypatch.setattr(module, "_TRY_AGAIN_S", 0.01)
    return made


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
async def launcher(
    cluster: Cluster, tmp_path: Path, lines: list[str]
) -> AsyncIterator[RayLauncher]:
    made = RayLauncher(site(tmp_path, lines))
    await made.open()
    yield made
    made.let_go()
    await made.close()


def site(folder: Path, lines: list[str], *, is_lasting: bool = True) -> Site:
    async def controller() -> str:
        return "unix:/c.sock"

    return Site(
        controller=controller,
        token_file=folder / "token",
        token=b"token",
        run_dir=folder,
        home=folder,
        node="here",
        is_lasting=is_lasting,
        options={"address": "10.0.0.1:6379"},
        on_line=lines.append,
    )


def order(replica_id: ReplicaId = ONE) -> ReplicaOrder:
    options = DeploymentOptions()
    return ReplicaOrder(
        replica_id=replica_id,
        key=DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
        sys_path=(),
        working_directory="/driver",
        environment={},
        resources=options.resources,
        options=options,
    )


async def started(launcher: RayLauncher, cluster: Cluster, replica_id: ReplicaId = ONE) -> None:
    """Start a replica, which the cluster takes."""
    before = len(cluster.link.of(Follow))
    starting = asyncio.create_task(launcher.start(order(replica_id)))
    await eventually(lambda: len(cluster.link.of(Follow)) > before)
    cluster.link.says(Followed(replica_id))
    assert 0 == await starting


async def event(launcher: RayLauncher) -> Event:
    async with asyncio.timeout(5):
        return await anext(launcher.watch())


async def test_an_order_becomes_an_actor_with_the_name_of_the_replica(
    launcher: RayLauncher, cluster: Cluster
) -> None:
    starting = asyncio.create_task(launcher.start(order()))
    await eventually(lambda: cluster.link.of(Follow))
    assert not starting.done()
    cluster.link.says(Followed(ONE))

    assert 0 == await starting
    (follow,) = cluster.link.of(Follow)
    assert (ONE, True, True) == (follow.replica_id, follow.is_new, follow.is_detached)
    assert "unix:/c.sock" in follow.beginning.arguments
    assert "/driver" == follow.beginning.working_directory
    assert {"n": "here"} == follow.beginning.names
    assert "10.0.0.1:6379" == follow.beginning.environment["RAY_ADDRESS"]
    assert ONE == launcher.memo(ONE)


async def test_what_ray_refuses_fails_the_start(launcher: RayLauncher, cluster: Cluster) -> None:
    starting = asyncio.create_task(launcher.start(order()))
    await eventually(lambda: cluster.link.of(Follow))
    cluster.link.says(Followed(ONE, "Ray refuses it: no such resource"))

    with pytest.raises(OSError, match="no such resource"):
        await starting

    assert "" == launcher.memo(ONE)


async def test_news_become_events_and_lines(
    launcher: RayLauncher, cluster: Cluster, lines: list[str]
) -> None:
    await started(launcher, cluster)

    cluster.link.says(
        Waiting(ONE, "a node"), OutputLines(ONE, ["hello"]), Ended(ONE, "was killed by SIGKILL")
    )

    assert Waiting(ONE, "a node") == await event(launcher)
    assert Ended(ONE, "was killed by SIGKILL") == await event(launcher)
    assert "hello" in lines[0]


async def test_while_the_cluster_is_lost_it_says_so_and_starts_none(
    launcher: RayLauncher, cluster: Cluster
) -> None:
    await started(launcher, cluster)
    cluster.absence = "nobody listens"

    cluster.link.says(Lost("its head has ended"))
    await eventually(lambda: notices_of(launcher))

    assert 0 == launcher.room().starts_max
    said = "the Ray cluster at '10.0.0.1:6379' is lost: its head has ended"
    await eventually(lambda: [f"{said}; nobody listens"] == list(notices_of(launcher)))
    assert launcher.room().why.startswith(said)
    starting = asyncio.create_task(launcher.start(order(OTHER)))
    lost = "the Ray cluster at '10.0.0.1:6379', which is lost"
    assert Waiting(OTHER, lost) == await event(launcher)
    assert not starting.done()
    launcher.stop(OTHER, 0)
    with pytest.raises(OSError, match="was stopped before it began"):
        await starting


async def test_what_is_left_of_replicas_is_followed_again_and_the_others_have_ended(
    launcher: RayLauncher, cluster: Cluster
) -> None:
    for replica_id in (ONE, OTHER):
        await started(launcher, cluster, replica_id)
    cluster.actors = [ONE, "Echo#stray"]

    cluster.link.says(None)  # Ray has ended the agent.
    await eventually(lambda: 2 == len(cluster.links))
    await eventually(lambda: cluster.link.of(EndStrays))

    assert [] == list(notices_of(launcher))
    assert launcher.room().starts_max > 0
    (follow,) = cluster.link.of(Follow)
    assert (ONE, False) == (follow.replica_id, follow.is_new)
    assert cluster.link.sent.index(follow) < cluster.link.sent.index(EndStrays())
    ended = await event(launcher)
    assert isinstance(ended, Ended)
    assert (OTHER, True) == (ended.replica_id, "was lost with the Ray cluster" in ended.summary)
    cluster.link.says(Followed(ONE), Ended(ONE, "ended with exit code 0"))
    assert Ended(ONE, "ended with exit code 0") == await event(launcher)


async def test_those_that_do_not_outlive_the_agent_have_ended_with_it(
    cluster: Cluster, tmp_path: Path, lines: list[str]
) -> None:
    """Each once: the start of another one fails, which is its end."""
    launcher = RayLauncher(site(tmp_path, lines, is_lasting=False))
    await launcher.open()
    await started(launcher, cluster)
    starting = asyncio.create_task(launcher.start(order(OTHER)))
    await eventually(lambda: 2 == len(cluster.link.of(Follow)))

    cluster.link.says(None)  # Ray has ended the agent.

    ended = await event(launcher)
    assert isinstance(ended, Ended)
    assert (ONE, True) == (ended.replica_id, "was lost with the Ray cluster" in ended.summary)
    with pytest.raises(OSError, match="is lost: Ray has ended"):
        await starting
    await eventually(lambda: 2 == len(cluster.links))
    cluster.link.says(Waiting(OTHER, "nothing else"))
    assert Waiting(OTHER, "nothing else") == await event(launcher)
    launcher.let_go()
    await launcher.close()


async def test_one_that_is_to_end_without_a_cluster_has_ended(
    launcher: RayLauncher, cluster: Cluster
) -> None:
    await started(launcher, cluster)
    await started(launcher, cluster, OTHER)
    launcher.stop(OTHER, 0)
    assert [Stop(OTHER, 0)] == cluster.link.of(Stop)
    cluster.absence = "nobody listens"

    cluster.link.says(Lost("its head has ended"))

    assert Ended(OTHER, "was killed") == await event(launcher)
    launcher.stop(ONE, 20.0)
    launcher.stop(ONE, 0)
    ended = await event(launcher)
    assert isinstance(ended, Ended)
    assert ONE == ended.replica_id


async def test_those_of_a_controller_before_are_adopted_if_they_are_there(
    cluster: Cluster, tmp_path: Path, lines: list[str]
) -> None:
    cluster.actors = [ONE]
    launcher = RayLauncher(site(tmp_path, lines))
    await launcher.open()

    assert 0 == launcher.adopt(order(ONE), ONE)
    assert launcher.adopt(order(OTHER), OTHER) is None
    launcher.end_strays()

    await eventually(lambda: cluster.link.of(EndStrays))
    assert [ONE] == [each.replica_id for each in cluster.link.of(Follow)]
    assert isinstance(cluster.link.sent[0], Follow)
    launcher.let_go()
    await launcher.close()


async def test_nodes_elsewhere_need_a_controller_that_they_can_reach(
    cluster: Cluster, tmp_path: Path, lines: list[str]
) -> None:
    cluster.nodes.append(Node("m", "10.0.0.2", {}))

    with pytest.raises(MeshError, match=r"10\.0\.0\.2.*set PYSERVE_CONTROLLER"):
        await RayLauncher(site(tmp_path, lines)).open()


def test_an_option_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    made = site(tmp_path, [])

    with pytest.raises(
        MeshError, match="has no option adress; it has address, ingress_address, pack"
    ):
        RayLauncher(Site(**{**vars(made), "options": {"adress": "a:1"}}))


@pytest.mark.parametrize(
    ("given", "packs"), [({}, False), ({"pack": "true"}, True), ({"pack": False}, False)]
)
async def test_whether_replicas_are_packed_is_told_with_each(
    given: dict[str, object], packs: bool, cluster: Cluster, tmp_path: Path
) -> None:
    launcher = RayLauncher(Site(**{**vars(site(tmp_path, [])), "options": given}))
    await launcher.open()
    await started(launcher, cluster)

    assert [packs] == [each.packs for each in cluster.link.of(Follow)]
    launcher.let_go()
    await launcher.close()


def test_what_is_no_switch_is_refused(tmp_path: Path) -> None:
    made = site(tmp_path, [])

    with pytest.raises(OptionError, match=r"launcher\.pack='tight'.*true or false"):
        RayLauncher(Site(**{**vars(made), "options": {"pack": "tight"}}))
