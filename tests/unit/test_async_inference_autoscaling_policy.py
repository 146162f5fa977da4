"""A deployment is scaled by the length of a queue at a broker."""

from __future__ import annotations

import base64
import json
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pyserve import autoscaling_policy
from pyserve.async_inference_autoscaling_policy import AsyncInferenceAutoscalingPolicy
from pyserve.config import AutoscalingConfig, AutoscalingContext
from pyserve.config.scaling import DeploymentID

TASKS: dict[str, object] = {}


def tasks_of(queue: str) -> object:
    """Return what the test has put there."""
    return TASKS[queue]


def context(now: float = 1000.0, *, calls: float = 0, target: float = 2) -> AutoscalingContext:
    return AutoscalingContext(
        deployment_id=DeploymentID("Worker", "shop"),
        deployment_name="Worker",
        app_name="shop",
        current_num_replicas=1,
        target_num_replicas=1,
        running_replicas=[],
        total_num_requests=calls,
        total_queued_requests=0,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=100,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now,
        config=AutoscalingConfig(target_ongoing_requests=target),
    )


def by_function() -> AsyncInferenceAutoscalingPolicy:
    return AsyncInferenceAutoscalingPolicy(queue_name="q", queue_length=f"{__name__}:tasks_of")


@pytest.mark.parity("G-30")
def test_tasks_and_calls_share_the_replicas() -> None:
    TASKS["q"] = 30
    found = by_function()(context(calls=4, target=2))
    assert (17, {"queue_length": 30}) == found


@pytest.mark.parity("G-30")
def test_the_broker_is_asked_every_ten_seconds() -> None:
    policy = by_function()
    seen = []
    for now, tasks in ((0.0, 2), (9.9, 20), (10.0, 40), (5.0, 60)):
        TASKS["q"] = tasks
        seen.append(policy(context(now))[0])
    assert [1, 1, 20, 30] == seen, "a clock that was set back asks at once"


@pytest.mark.parametrize("length", [-1, 1.5, True, None, "3"])
def test_what_is_no_length_is_an_error(length: object) -> None:
    TASKS["q"] = length
    with pytest.raises(ValueError, match=r"no whole number"):
        by_function()(context())


@contextmanager
def rabbitmq(answer: bytes, status: int = 200) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Run what stands for RabbitMQ's management API; yield its address and what it was asked."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join(10)


def by_rabbitmq(address: str) -> AsyncInferenceAutoscalingPolicy:
    return AsyncInferenceAutoscalingPolicy(
        "amqp://broker/my%2Fhost", "a/b", f"http://me:se%40cret@{address}/api/"
    )


@pytest.mark.parity("G-30")
def test_rabbitmq_is_asked_by_its_management() -> None:
    with rabbitmq(json.dumps({"messages": 8}).encode()) as (address, asked):
        assert 4 == by_rabbitmq(address)(context())[0]
    proof = base64.b64encode(b"me:se@cret").decode()
    assert [("/api/queues/my%2Fhost/a%2Fb", f"Basic {proof}")] == asked


@pytest.mark.parametrize(
    ("answer", "status"), [(b"{}", 200), (b"[]", 200), (b"<", 200), (b"", 404)]
)
def test_a_broker_that_does_not_tell_is_an_error_without_its_password(
    answer: bytes, status: int
) -> None:
    with (
        rabbitmq(answer, status) as (address, _),
        pytest.raises(ValueError, match=r"RabbitMQ does not tell the length") as caught,
    ):
        by_rabbitmq(address)(context())
    assert "cret" not in str(caught.value)


def test_redis_is_asked_for_the_length_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = []

    class Redis:
        @classmethod
        def from_url(cls, url: str, **timeouts: float) -> Redis:
            assert all(0 < each < 10 for each in timeouts.values())
            urls.append(url)
            return cls()

        def llen(self, name: str) -> int:
            return {"celery": 6}[name]

    module = types.ModuleType("redis")
    module.Redis = Redis  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "redis", module)
    policy = AsyncInferenceAutoscalingPolicy("redis://here:6379/0", "celery")
    assert (3, ["redis://here:6379/0"]) == (policy(context())[0], urls)


def test_redis_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ValueError, match=r"pip install redis, or give queue_length"):
        AsyncInferenceAutoscalingPolicy("redis://here", "q")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"broker_url": "redis://here"}, "queue_name is missing"),
        ({"queue_name": "q"}, "allowed: broker_url='redis"),
        ({"queue_name": "q", "broker_url": "amqp://here"}, "without a rabbitmq_management_url"),
        (
            {"queue_name": "q", "broker_url": "amqp://h", "rabbitmq_management_url": "file:///x"},
            "not of the form",
        ),
        ({"queue_name": "q", "broker_url": "sqs://me:secret@here"}, "'sqs'"),
    ],
)
def test_nobody_to_ask_is_an_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        AsyncInferenceAutoscalingPolicy(**given)
    assert "secret" not in str(caught.value)


@pytest.mark.parity("G-27")
@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        ("default_autoscaling_policy", 3),
        ("replica_queue_length_autoscaling_policy", 3),
        ("async_inference_autoscaling_policy", 5),
        ("default_async_inference_autoscaling_policy", 5),
    ],
)
def test_ray_serves_policies_have_their_names(name: str, replicas: int) -> None:
    asked = context(calls=6, target=2)
    asked.total_pending_async_requests = 4
    asked.policy_state = {"mine": 1}
    assert (replicas, {"mine": 1}) == getattr(autoscaling_policy, name)(asked)
