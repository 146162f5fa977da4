"""Calls that failed or were slow are kept, however few are traced."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.mesh.commands import pyserve
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    address_of,
    application,
    pids,
    standing,
)
from tests.mesh.start.test_no_refusal import ingress_of, kill
from tests.support.otlp import otlp_receiver
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
# W3C: that a parent is not sampled decides for its children; without one the ratio does.
_UNSAMPLED = {"traceparent": f"00-{'4a' * 16}-{'2b' * 8}-00"}
_QUICK = 40
_SLOW_S = 0.4


def call(address: str, request_id: str, time_s: object, **headers: str) -> int:
    return httpx.get(
        f"http://{address}/?time_s={time_s}",
        headers={"x-request-id": request_id, **headers},
        timeout=END_TIMEOUT_S,
        trust_env=False,
    ).status_code


def kept(environment: dict[str, str]) -> dict[str, str]:
    """Return why calls are kept, by their ids, as *Calls* and `pyserve explain` list them."""
    done = pyserve("explain", "--json", environment=environment)
    assert 0 == done.returncode, done.stderr
    kinds = json.loads(done.stdout)
    return {each["request_id"]: kind for kind, found in kinds.items() for each in found["calls"]}


def explained(environment: dict[str, str], request_id: str) -> dict[str, object]:
    done = pyserve("explain", request_id, "--json", environment=environment)
    assert 0 == done.returncode, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize("ratio", ["0", "0.000001"])
def test_calls_that_failed_or_were_slow_are_kept_where_none_is_sampled(
    ratio: str, mesh_environment: dict[str, str]
) -> None:
    """And of an ingress that takes the place of one that was killed."""
    with otlp_receiver() as receiver:
        environment = {
            **mesh_environment,
            **receiver.environment(),
            "PYSERVE_TRACING_SAMPLING_RATIO": ratio,
            "PYSERVE_METRICS_PORT": "0",
        }
        _keep_calls(environment)
        # The mesh has ended in order, so what was to be sent has been.
        assert [] == list(receiver.spans())


def _keep_calls(environment: dict[str, str]) -> None:
    with standing(environment) as mesh, application(environment, "tests.mesh.seeing.staged:narrow"):
        ingress = pids(environment)[1]
        for life in ("first", "second"):
            address = address_of(environment)
            for number in range(_QUICK):
                assert 200 == call(address, f"{life}-{number}", 0)
            for headers in ({}, _UNSAMPLED):
                name = f"{life}-{len(headers)}"
                assert 500 == call(address, f"{name}-failed", "none", **headers)
                assert 200 == call(address, f"{name}-slow", _SLOW_S, **headers)
            found = kept(environment)
            for name in (f"{life}-0", f"{life}-1"):
                assert ("failed", "slow") == (found[f"{name}-failed"], found[f"{name}-slow"])
                slow = explained(environment, f"{name}-slow")
                assert float(str(slow["duration_s"])) >= _SLOW_S
                assert "failed" == explained(environment, f"{name}-failed")["kept_for"]
            assert "sampled" not in found.values()
            if life == "first":
                kill(ingress)
                ingress_of(mesh, ingress)
                wait_until(lambda: pids(environment)[1] != ingress, END_TIMEOUT_S)
        assert 0 == mesh.end()
