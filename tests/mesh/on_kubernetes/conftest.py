"""The cluster of these tests, a namespace for each, and a controller in the test's own process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from tests.mesh.launchers.world import Engine, World, standing
from tests.mesh.on_kubernetes.cluster import Cluster, find_cluster
from tests.unit.launch.kubernetes.streams import FOLDER, Stream, told, trimmed


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return find_cluster()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the cluster says of it."""
    report = yield
    if report.failed and call.when == "call":
        given = getattr(item, "funcargs", {})
        namespace = given["mesh"].namespace if "mesh" in given else given.get("namespace")
        if namespace is not None:
            report.sections.append(("cluster", given["cluster"].describe(namespace)))
        if "world" in given:
            report.sections.append(("output", "\n".join(given["world"].lines[-50:])))
    return report


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def recording(cluster: Cluster, namespace: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the cluster's events about the pods of a test, if asked to."""
    if "TEST_KUBERNETES_RECORD" not in os.environ:
        yield
        return
    path = f"/api/v1/namespaces/{namespace}/pods?watch=true"
    log = Path(request.getfixturevalue("tmp_path")) / "watch.jsonl"
    with log.open("w") as output:
        watch = subprocess.Popen(["kubectl", "get", "--raw", path], stdout=output)
        try:
            yield
        finally:
            watch.terminate()
            watch.wait(10)
    name = request.node.name.removeprefix("test_")
    events = trimmed(
        line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")
    )
    if events:
        Stream(name.replace("_", " "), told(events), events).write(FOLDER / f"{name}.json")


@pytest.fixture
async def world(cluster: Cluster, namespace: str, recording: None) -> AsyncIterator[World]:
    options = {"namespace": namespace, "image": cluster.image}
    engine = Engine("kubernetes", options=options, host=cluster.own_address())
    async with standing(engine) as world:
        yield world
