"""Access rules, scaling to zero, and a full mesh before engines for language models."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import httpx
import pytest

import pyserve
from tests.mesh.llm import apps
from tests.mesh.llm.asking import CHAT, chat, data_of, text_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 30
TOKEN, ELSEWHERE = "a-token-for-chats", "a-token-for-another-application"
RULES = f"""
rules:
  - name: chats of the application
    paths: [/v1/**]
    applications: [default]
    tokens: ["sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"]
  - name: all of an application that is not there
    paths: [/**]
    applications: [another]
    tokens: ["sha256:{hashlib.sha256(ELSEWHERE.encode()).hexdigest()}"]
"""


def test_who_may_not_reach_the_application_reaches_none_of_its_models(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text(RULES)
    variables = {"PYSERVE_ACCESS_FILE": str(rules)}
    with (
        running_mesh("tests.mesh.llm.apps:app", environment=variables) as mesh,
        httpx.Client(base_url=f"http://{mesh.address}", timeout=PATIENCE_S) as client,
    ):

        def statuses(token: str | None) -> list[int]:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return [
                client.post(CHAT, json=chat("one"), headers=headers).status_code,
                client.post(CHAT, json=chat("one", "delta"), headers=headers).status_code,
                client.get("/v1/models", headers=headers).status_code,
                client.get("/v1/models/alpha", headers=headers).status_code,
                client.get("/v1/other", headers=headers).status_code,
            ]

        assert statuses(TOKEN) == [200, 404, 200, 200, 200]
        assert statuses(ELSEWHERE) == [403] * 5
        assert statuses(None) == [401] * 5


def test_the_first_request_waits_for_an_engine_that_is_scaled_to_zero(mesh: RunningMesh) -> None:
    scaling = {
        "min_replicas": 0,
        "initial_replicas": 1,
        "max_replicas": 1,
        "look_back_period_s": 1.0,
        "downscale_to_zero_delay_s": 0.5,
        "downscale_delay_s": 0.5,
    }
    sleeper = apps.Scripted.options(name="Sleeper", autoscaling_config=scaling)
    pyserve.run(sleeper.bind(apps.ledger, "sleepy"), name="sleepy", route_prefix="/sleepy")
    with httpx.Client(base_url=f"http://{mesh.address}/sleepy", timeout=PATIENCE_S) as client:
        wait_until(lambda: not replicas_of("sleepy", "Sleeper"))
        assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["sleepy"]
        with client.stream("POST", CHAT, json=chat("one two", None, stream=True)) as response:
            assert text_of(data_of(response.iter_lines())) == "one two "
    pyserve.delete("sleepy")


def replicas_of(application: str, deployment: str) -> int:
    return len(pyserve.status().applications[application].deployments[deployment].replicas)


async def test_a_full_engine_has_its_calls_wait_and_refuses_in_the_shape_of_the_api(
    mesh: RunningMesh, key: str
) -> None:
    narrow = apps.Scripted.options(name="Narrow", max_ongoing_requests=1, max_queued_requests=1)
    pyserve.run(narrow.bind(apps.ledger, "narrow"), name="narrow", route_prefix="/narrow")
    own = pyserve.get_deployment_handle("Ledger", "narrow")
    url = f"http://{mesh.address}/narrow"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        script = f"wait {key} done"
        waiting = [asyncio.create_task(client.post(CHAT, json=chat(script, None)))]

        async def is_refused() -> bool:
            task = asyncio.create_task(client.post(CHAT, json=chat(script, None, stream=True)))
            done, _ = await asyncio.wait({task}, timeout=1)
            if not done:
                waiting.append(task)
                return False
            response = task.result()
            assert response.status_code == 429, response.text
            assert response.json()["error"]["type"] == "rate_limit_error"
            assert int(response.headers["retry-after"]) >= 1
            return True

        await eventually(is_refused)
        await own.note.remote(key, "go on")
        assert {(await each).status_code for each in waiting} == {200}
    pyserve.delete("narrow")
