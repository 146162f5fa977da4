"""The processes of a node are one page of numbers, and no process is on two pages."""

import tempfile
from pathlib import Path

import pytest

from pyserve.admin.gathering import NodeGathering, merged
from pyserve.observe.metrics import Family, ProcessMetrics, Sample, ScrapePoint

TOKEN = b"a token"


def family(name: str, kind: str, *samples: tuple[dict[str, str], float]) -> Family:
    return Family(name, kind, "text", [Sample("", labels, value) for labels, value in samples])


def test_samples_of_one_name_stand_together_in_the_order_of_names():
    found = merged(
        [
            [family("b", "gauge", ({"x": "1"}, 1))],
            [family("b", "gauge", ({"x": "2"}, 2)), family("a", "gauge", ({}, 3))],
        ]
    )
    assert [
        family("a", "gauge", ({}, 3)),
        family("b", "gauge", ({"x": "1"}, 1), ({"x": "2"}, 2)),
    ] == found


def test_equal_labels_are_added_up():
    one, two = family("a", "gauge", ({"x": "1", "y": "2"}, 1)), family("a", "gauge")
    two.samples = [Sample("", {"y": "2", "x": "1"}, 2, ("cafe", 1.0, 2.0))]
    (found,) = merged([[one], [two]])
    assert [Sample("", {"x": "1", "y": "2"}, 3, ("cafe", 1.0, 2.0))] == [
        Sample("", dict(each.labels), each.value, each.exemplar) for each in found.samples
    ]


def test_a_name_of_two_kinds_is_of_no_kind():
    (found,) = merged([[family("a", "gauge", ({}, 1))], [family("a", "counter", ({}, 1))]])
    assert "unknown" == found.kind


def roles(families: list[Family]) -> set[str]:
    (info,) = [each for each in families if each.name == "pyserve_info"]
    return {sample.labels["role"] for sample in info.samples}


@pytest.fixture
def home(folder):
    """A home with the run folder of a mesh, in which a replica answers."""
    (folder / "mesh-1").mkdir()
    point = ScrapePoint(ProcessMetrics("replica"), folder / "mesh-1", TOKEN)
    yield folder
    point.close()


@pytest.fixture
def folder():
    """A folder whose path leaves room for a socket's name, which pytest's own may not."""
    with tempfile.TemporaryDirectory(prefix="pyserve-", dir="/tmp") as path:
        yield Path(path)


async def test_one_process_of_a_node_asks_all_and_another_takes_its_place(home):
    first = NodeGathering(ProcessMetrics("ingress"), TOKEN, home)
    second = NodeGathering(ProcessMetrics("controller"), TOKEN, home)

    assert {"ingress", "replica"} == roles(await first.gather())
    assert {"controller"} == roles(await second.gather())
    first.close()
    assert {"controller", "replica"} == roles(await second.gather())
    second.close()


async def test_who_is_alone_asks_nobody(home):
    assert {"replica"} == roles(
        await NodeGathering(ProcessMetrics("replica"), TOKEN, None).gather()
    )


async def test_a_run_folder_elsewhere_is_asked_too(folder, home):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    point = ScrapePoint(ProcessMetrics("driver"), elsewhere, TOKEN)
    gathering = NodeGathering(ProcessMetrics("ingress"), TOKEN, home, elsewhere)
    try:
        assert {"ingress", "driver", "replica"} == roles(await gathering.gather())
    finally:
        gathering.close()
        point.close()
