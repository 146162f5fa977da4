"""Policies by name and by import path, sessions, and what a deploy refuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

import pyserve
from pyserve.errors import OptionError
from tests.mesh.routing.apps import ByName, BySession, Following, Hangs, Nonsense, Who
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


# One that answers late, on a busy machine, is not waited for; by chance it would be a third.
_CALLS, _HEARD_MIN = 30, 25


def run(policy: object, **config: object) -> pyserve.DeploymentHandle:
    app = Who.options(request_router_config={"policy": policy, **config}).bind()
    return pyserve.run(app, name="who", route_prefix="/who")


@pytest.mark.parity("G-50", "G-72", "G-20")
async def test_a_session_stays_with_one_replica(client: httpx.Client) -> None:
    """By the handle's option, and by the header in any spelling: both take the same way."""
    handle = run("consistent_hash")
    sessions = [f"user-{number}" for number in range(24)]
    first = {each: await handle.options(session_id=each).remote() for each in sessions}

    assert 3 == len(set(first.values()))
    for each, replica in first.items():
        assert {replica} == {await handle.options(session_id=each).remote() for _ in range(5)}
        for spelling in ("x-session-id", "X_Session_Id"):
            answer = await asyncio.to_thread(client.get, "/who", headers={spelling: each})
            assert replica == answer.text


@pytest.mark.parity("G-71", "G-20")
async def test_round_robin_goes_round(client: httpx.Client) -> None:
    handle = run("round_robin")
    counts = Counter([await handle.remote() for _ in range(30)])

    assert [10, 10, 10] == sorted(counts.values())


@pytest.mark.parity("G-20", "G-76")
async def test_a_policy_of_the_users_decides_in_handles_and_at_the_ingress(
    client: httpx.Client,
) -> None:
    handle = run(ByName, policy_kwargs={"place": 1})
    by_handle = Counter([await handle.options(session_id=str(n)).remote() for n in range(_CALLS)])
    answers = [await asyncio.to_thread(client.get, "/who") for _ in range(_CALLS)]
    by_client = Counter(answer.text for answer in answers)
    replica = sorted(await handle.broadcast("__call__"))[1]
    assert by_handle[replica] >= _HEARD_MIN
    assert by_client[replica] >= _HEARD_MIN


@pytest.mark.parity("G-76")
async def test_the_shape_of_ray_serve_is_understood(client: httpx.Client) -> None:
    app = Who.options(
        request_router_config={
            "request_router_class": f"{BySession.__module__}.{BySession.__qualname__}",
            "request_router_kwargs": {"places": 3},
        }
    ).bind()
    handle = pyserve.run(app, name="who", route_prefix="/who")
    everybody = sorted(await handle.broadcast("__call__"))

    heard = [
        everybody[n % 3] == await handle.options(session_id=str(n)).remote() for n in range(_CALLS)
    ]
    assert heard.count(True) >= _HEARD_MIN
    # Without a session it raises, and the router picks by itself.
    assert await handle.remote() in everybody


@pytest.mark.parity("G-76")
async def test_a_policy_that_hangs_is_named_in_the_log_and_left_alone(
    base_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    handle = run(Hangs)
    try:
        for _ in range(10):
            await handle.remote()
        await eventually(lambda: "the policy of who/Who has not answered" in caplog.text, 20)
    finally:
        Hangs.may_answer.set()
    await eventually(lambda: answers(handle), 20)


async def answers(handle: pyserve.DeploymentHandle) -> bool:
    """Whether each call asks ``Hangs`` again."""
    before = Hangs.asked
    for _ in range(3):
        await handle.remote()
    return Hangs.asked == before + 3


@pytest.mark.parity("G-76")
async def test_hooks_are_called_for_calls_of_handles_and_of_clients(
    client: httpx.Client, tmp_path: Path
) -> None:
    """The two have a router each, in two processes."""
    notes = tmp_path / "notes"
    handle = run(Following, policy_kwargs={"path": str(notes)})

    def noted() -> list[list[str]]:
        return [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []

    replicas = [await handle.remote()]
    await eventually(lambda: 2 == len(noted()))
    replicas.append((await asyncio.to_thread(client.get, "/who")).text)
    await eventually(lambda: 4 == len(noted()))
    words, names, numbers = zip(*noted(), strict=True)
    assert ("routed", "completed") * 2 == words
    assert [each for each in replicas for _ in range(2)] == list(names)
    assert numbers[::2] == numbers[1::2]


@pytest.mark.parity("G-76")
async def test_nonsense_costs_no_call(client: httpx.Client) -> None:
    handle = run(Nonsense)
    answers = await asyncio.gather(*(handle.remote() for _ in range(60)))

    assert 3 == len(set(answers))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests.mesh.routing.nowhere:Policy", "No module named"),
        ("tests.mesh.routing.apps:Missing", "has no attribute 'Missing'"),
        ("tests.mesh.routing.apps:Front", "a method choose"),
    ],
)
@pytest.mark.parity("G-20")
def test_a_policy_that_cannot_be_asked_is_refused_at_the_deploy(
    base_url: str, path: str, text: str
) -> None:
    with pytest.raises(OptionError, match=f"request_router_config.policy='{path}'.*{text}"):
        run(path)


async def test_a_change_of_the_settings_keeps_the_replicas(client: httpx.Client) -> None:
    before = sorted(await run("least").broadcast("__call__"))
    after = sorted(await run("round_robin").broadcast("__call__"))

    assert before == after
