"""The last lines of replicas: bounded in lines, bytes and deployments, and found by name."""

import asyncio

import pytest

from pyserve.control.replicas.output import Output
from pyserve.errors import MeshNotFound, UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import control_pb2
from tests.support.waiting import eventually


def key(application: str, deployment: str = "Model") -> DeploymentKey:
    return DeploymentKey(ApplicationName(application), DeploymentName(deployment))


SHOP = key("shop")
REPLICA = ReplicaId("r")


async def lines(output: Output, of: DeploymentKey = SHOP, lines_max: int = 0) -> list[str]:
    found: list[str] = []

    async def write(line: control_pb2.LogLine) -> None:
        found.append(line.line)

    await output.send(of, write, lines_max=lines_max, follow=False)
    return found


async def test_the_last_thousand_lines_are_kept() -> None:
    output = Output()
    for number in range(1200):
        output.add(SHOP, REPLICA, str(number))

    assert [str(number) for number in range(200, 1200)] == await lines(output)
    assert ["1198", "1199"] == await lines(output, lines_max=2)


async def test_long_lines_leave_room_for_fewer() -> None:
    output = Output()
    for number in range(200):
        output.add(SHOP, REPLICA, f"{number}" + "x" * 16_000)

    assert 15 <= len(await lines(output)) <= 16


async def test_of_many_deployments_those_silent_for_longest_are_dropped() -> None:
    output = Output()
    output.add(SHOP, REPLICA, "first")
    for number in range(199):
        output.add(key(f"a{number}"), REPLICA, "x")
    output.add(SHOP, REPLICA, "again")
    output.add(key("last"), REPLICA, "x")

    assert ["first", "again"] == await lines(output)
    assert [] == await lines(output, key("a0"))


async def test_a_reader_that_is_too_slow_is_told_what_it_missed() -> None:
    output = Output()
    found: list[str] = []
    may_read = asyncio.Event()

    async def write(line: control_pb2.LogLine) -> None:
        await may_read.wait()
        found.append(line.line)

    output.add(SHOP, REPLICA, "kept")
    reading = asyncio.create_task(output.send(SHOP, write, lines_max=0, follow=True))
    await asyncio.sleep(0)
    for number in range(1003):
        output.add(SHOP, REPLICA, str(number))
    may_read.set()
    await eventually(lambda: len(found) >= 1002, 10)
    reading.cancel()

    assert ["kept", "0", "999"] == [*found[:2], found[1000]]
    assert "... 3 lines were dropped, read too slowly" == found[1001]


def test_a_name_alone_will_do_where_one_application_has_it() -> None:
    output = Output()
    present = [SHOP, key("blog", "Page"), key("wiki", "Page")]

    assert SHOP == output.find(present, "", "Model")
    assert key("wiki", "Page") == output.find(present, "wiki", "Page")
    with pytest.raises(UsageError, match="--application: blog, wiki"):
        output.find(present, "", "Page")


def test_one_that_has_gone_is_found_by_what_it_left() -> None:
    output = Output()
    output.add(SHOP, REPLICA, "last words")

    assert SHOP == output.find([], "", "Model")
    # Of one that is there and one that is not, the former is meant.
    assert key("blog") == output.find([key("blog")], "", "Model")


@pytest.mark.parametrize(
    ("present", "application", "said"),
    [
        ([SHOP], "", "did you mean 'Model'?"),
        ([key("shop", "Other")], "", "there is: Other"),
        ([SHOP], "blog", "in application 'blog'"),
        ([], "", "nothing is deployed"),
    ],
)
def test_an_unknown_name_is_told_with_those_that_are_there(
    present: list[DeploymentKey], application: str, said: str
) -> None:
    with pytest.raises(MeshNotFound) as missing:
        Output().find(present, application, "Modle")
    assert said in str(missing.value)
