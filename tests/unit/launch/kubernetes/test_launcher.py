"""The launcher before a server that breaks, forgets and refuses; its pods run nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pyserve.errors import MeshError
from pyserve.launch import Ended, Event, Placed, Site, Waiting
from pyserve.launch.on_kubernetes import launcher as driving
from pyserve.launch.on_kubernetes.launcher import KubernetesLauncher
from pyserve.types import ReplicaId
from tests.support.kubernetes_api import FakeCluster, serving_cluster
from tests.support.waiting import eventually
from tests.unit.launch.kubernetes.objects import terminated, waiting
from tests.unit.launch.orders import ECHO, order

pytestmark = pytest.mark.parity("G-69")
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "replica", "state": {"running": {}}}]}


async def nowhere() -> str:
    return "unix:/nowhere"


class Under:
    """A launcher with its cluster, and what it has said."""

    def __init__(self, cluster: FakeCluster, file: Path) -> None:
        self.cluster = cluster
        self.file = file
        self.lines: list[str] = []
        self.launcher = self.make()

    def make(self, **options: Any) -> KubernetesLauncher:
        given = {"kubeconfig": str(self.file), "image": "echo:1", "logs": False, **options}
        return KubernetesLauncher(
            Site(
                controller=nowhere,
                controller_tcp=lambda: "127.0.0.1:7000",
                token_file=self.file,
                token=b"token",
                run_dir=self.file.parent,
                home=self.file.parent,
                options=given,
                on_line=self.lines.append,
            )
        )

    async def start(self, name: str = ECHO) -> str:
        """Start a replica; return the name of its pod."""
        await self.launcher.start(order(name))
        return str(self.cluster.created[-1]["metadata"]["name"])

    async def next(self) -> Event:
        return await asyncio.wait_for(anext(self.launcher.watch()), 5)

    async def hear(self, name: str) -> None:
        """Wait until the launcher has received all events of the cluster about a pod."""
        await self.cluster.change(name, state(waiting("ImagePullBackOff", "said last")))
        assert isinstance(await self.next(), Waiting)


def state(found: dict[str, Any], phase: str = "Pending") -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [{"name": "replica", "state": found}]}


@pytest.fixture
async def under(tmp_path: Path) -> AsyncIterator[Under]:
    async with serving_cluster(tmp_path) as (cluster, file):
        cluster.runs = False
        under = Under(cluster, file)
        await under.launcher.open()
        yield under
        await under.launcher.close()
        assert ({}, {}) == (cluster.pods, cluster.secrets)


async def test_what_the_cluster_tells_becomes_events(under: Under) -> None:
    name = await under.start()

    await under.cluster.change(name, state(waiting("ErrImagePull")))
    assert Waiting(ECHO, "its image echo:1: ErrImagePull") == await under.next()
    under.cluster.pods[name]["spec"]["nodeName"] = "node-b"
    await under.cluster.change(name, RUNNING)
    assert [Waiting(ECHO, ""), Placed(ECHO, "zone-b")] == [await under.next(), await under.next()]
    await under.cluster.change(name, state(terminated(137, "OOMKilled"), "Failed"))
    event = await under.next()

    assert isinstance(event, Ended)
    assert "OOMKilled" in event.summary
    await eventually(lambda: not under.cluster.pods)


async def test_a_watch_that_breaks_goes_on_where_it_was(under: Under) -> None:
    name = await under.start()
    await under.hear(name)

    under.cluster.break_watches()
    await under.cluster.change(name, state(waiting("ErrImagePull", "meanwhile")))

    assert "meanwhile" in str(await under.next())


async def test_versions_that_the_server_has_forgotten_begin_a_new_list(under: Under) -> None:
    """Of two pods one has ended, and one was deleted, while nobody could be told."""
    first, second = await under.start("Echo#first"), await under.start("Echo#secnd")
    third = await under.start("Echo#third")
    await under.hear(third)

    under.cluster.break_watches()
    await under.cluster.change(first, state(terminated(3), "Failed"))
    await under.cluster.remove(second)
    under.cluster.forget()

    events = {str(event.replica_id): event for event in [await under.next(), await under.next()]}
    assert Ended(ReplicaId("Echo#first"), "ended with exit code 3") == events["Echo#first"]
    gone = events["Echo#secnd"]
    assert isinstance(gone, Ended)
    assert f"its pod {second} was deleted" in gone.summary
    await eventually(lambda: [third] == list(under.cluster.pods))


async def test_a_pod_that_is_refused_fails_its_start_with_the_words_of_the_cluster(
    under: Under,
) -> None:
    under.cluster.refuse = lambda _: (403, "Forbidden", "exceeded quota: small")

    with pytest.raises(OSError, match="the cluster refuses its pod: exceeded quota: small"):
        await under.start()

    assert [] == under.cluster.created


async def test_a_server_that_is_busy_is_asked_again(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_AGAIN_S", 0.01)
    answers = iter([(429, "TooManyRequests", "later"), (409, "Conflict", "quota changes")])
    under.cluster.refuse = lambda _: next(answers, None)

    await under.start()

    assert 1 == len(under.cluster.pods)


async def test_a_pod_of_that_name_which_is_another_ones_is_refused(under: Under) -> None:
    under.cluster.refuse = lambda _: (409, "AlreadyExists", "pods already exists")

    with pytest.raises(OSError, match="already exists"):
        await under.start()


async def test_grace_is_that_of_the_pod_and_a_kill_leaves_a_second(under: Under) -> None:
    """With none at all the API server would forget it before its node has heard of it."""
    one, other = await under.start("Echo#aaaaa"), await under.start("Echo#bbbbb")

    under.launcher.stop(ReplicaId("Echo#aaaaa"), 12.2)
    under.launcher.stop(ReplicaId("Echo#bbbbb"), 0)
    under.launcher.stop(ReplicaId("Echo#zzzzz"), 0)
    ends = {str(await under.next()) for _ in range(2)}

    assert 2 == len(ends)
    assert {(one, 13), (other, 1)} == set(under.cluster.deleted)


async def test_an_end_that_is_asked_for_while_the_pod_is_made_is_not_forgotten(
    under: Under,
) -> None:
    held = asyncio.Event()

    def refuse(_: Any) -> None:
        under.launcher.stop(ECHO, 0)
        held.set()

    under.cluster.refuse = refuse
    name = await under.start()

    assert held.is_set()
    event = await under.next()
    assert isinstance(event, Ended)
    assert (name, 1) in under.cluster.deleted


async def test_a_pod_whose_node_is_silent_is_taken_out_of_the_cluster(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_KILLED_WITHIN_S", 0.1)
    name = await under.start()
    under.cluster.pods[name]["spec"]["nodeName"] = "node-gone"
    await under.cluster.change(name, RUNNING)
    under.cluster.keeps = {name}

    under.launcher.stop(ECHO, 0)

    assert Ended(ECHO, "was lost with its node node-gone: it is no more") == await under.next()
    await eventually(lambda: [(name, 1), (name, 0)] == under.cluster.deleted)


async def test_an_ended_pod_does_not_wait_for_its_node_to_confirm_it(under: Under) -> None:
    name = await under.start()
    under.cluster.keeps = {name}

    under.launcher.stop(ECHO, 1.0)
    await eventually(lambda: [(name, 1)] == under.cluster.deleted)
    await under.cluster.change(name, state(terminated(0), "Succeeded"))
    assert isinstance(await under.next(), Ended)
    await under.launcher.close()

    assert {} == under.cluster.pods


async def test_a_pod_that_was_given_to_a_lost_node_is_given_up(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that lives may take its time, as for a large image."""
    monkeypatch.setattr(driving, "_LOOK_PERIOD_S", 0.05)
    waits, lost = await under.start("Echo#waits"), await under.start("Echo#lost")
    under.cluster.pods[waits]["spec"]["nodeName"] = "node-b"
    under.cluster.pods[lost]["spec"]["nodeName"] = "node-gone"
    for name in (waits, lost):
        await under.cluster.change(name, state(waiting("ContainerCreating")))

    placed = Placed(ReplicaId("Echo#waits"), "zone-b")
    ended = Ended(ReplicaId("Echo#lost"), "was lost with its node node-gone: it is no more")
    assert [placed, ended] == [await under.next(), await under.next()]
    await eventually(lambda: [waits] == list(under.cluster.pods))


async def test_pods_of_a_launcher_before_are_found_or_ended(under: Under) -> None:
    found, stray = await under.start("Echo#found"), await under.start("Echo#stray")
    await under.hear(stray)
    under.launcher.let_go()
    await under.launcher.close()
    assert {found, stray} == set(under.cluster.pods)

    under.launcher = under.make()
    await under.launcher.open()
    assert 0 == under.launcher.adopt(order("Echo#found"), found)
    assert None is under.launcher.adopt(order("Echo#never"), "")
    under.launcher.end_strays()

    await eventually(lambda: [found] == list(under.cluster.pods))
    assert found == under.launcher.memo(ReplicaId("Echo#found"))


async def test_one_that_ended_while_no_launcher_was_there_tells_how(under: Under) -> None:
    name = await under.start()
    await under.hear(name)
    under.launcher.let_go()
    await under.launcher.close()
    await under.cluster.change(name, state(terminated(7), "Failed"))

    under.launcher = under.make()
    await under.launcher.open()
    assert 0 == under.launcher.adopt(order(), name)

    assert Ended(ECHO, "ended with exit code 7") == await under.next()


async def test_certificates_without_a_name_to_check_are_refused(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods are dialled by addresses, which no certificate of a Secret has."""
    with pytest.raises(MeshError, match="set PYSERVE_MESH_TLS_NAMES to a name that it does have"):
        await under.make(tls_secret="mesh-tls").open()
    monkeypatch.setenv("PYSERVE_MESH_TLS_NAMES", "controller.serving.svc")
    other = under.make(tls_secret="mesh-tls")
    await other.open()
    await other.start(order(ECHO))
    [container] = under.cluster.created[-1]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    await other.close()

    assert "controller.serving.svc" == variables["PYSERVE_MESH_TLS_NAMES"]


async def test_a_secret_that_somebody_else_has_made_is_left(under: Under) -> None:
    other = under.make(token_secret="theirs")
    under.cluster.rights = {"create secrets", "delete secrets"}
    before = dict(under.cluster.secrets)
    await other.open()
    await other.close()

    assert before == under.cluster.secrets
    with pytest.raises(MeshError, match="may not create secrets, delete secrets in namespace"):
        await under.make().open()


PRIVILEGED = {"spec": {"hostNetwork": True}}


async def test_a_template_that_asks_for_rights_is_refused_where_it_is_deployed(
    under: Under,
) -> None:
    wanted = order(pod_template=PRIVILEGED)
    assert wanted.options is not None

    assert "spec.hostNetwork" in under.launcher.capabilities.refusal(wanted.options)
    opened = under.make(open_pod_templates=True)
    assert "" == opened.capabilities.refusal(wanted.options)


async def test_a_template_of_an_earlier_deploy_is_refused_where_it_starts(under: Under) -> None:
    """A controller remembers what was deployed when its launcher took more."""
    with pytest.raises(OSError, match=r"refuses its pod: it does not take spec\.hostNetwork"):
        await under.launcher.start(order(pod_template=PRIVILEGED))

    assert [] == under.cluster.created
