"""Scales a deployment by the length of a queue at a broker, and its calls besides."""

from __future__ import annotations

import base64
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from pyserve.api.code import import_attribute
from pyserve.autoscaling_policy import Decision, async_inference_autoscaling_policy
from pyserve.config import AutoscalingContext

# As often as Ray Serve asks.
POLL_INTERVAL_S = 10.0
# Less than what the mesh waits for a policy's answer.
_BROKER_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 1 << 20
_KNOWN = (
    "broker_url='redis://HOST:PORT/DB' (with the package redis), 'amqp://HOST' with "
    "rabbitmq_management_url='http://USER:PASSWORD@HOST:15672/api/', or queue_length="
    "'module:function', which gets the name of the queue and returns a number"
)


class AsyncInferenceAutoscalingPolicy:
    """A policy of autoscaling: ``{"policy_function": ThisClass, "policy_kwargs": {...}}``.

    A broker that does not answer leaves the number of replicas as it is, and the status says so.

    Args:
        broker_url: ``redis://`` or ``rediss://``: the queue is a list there, as Celery has it, and
            the package ``redis`` is needed. ``amqp://`` or ``amqps://``: the name of the virtual
            host is its path.
        queue_name: Of the queue.
        rabbitmq_management_url: Of RabbitMQ's HTTP API, for ``amqp``.
        queue_length: Import path of a function that is asked instead of a broker.
        poll_interval_s: How often the broker is asked at most.

    Raises:
        ValueError: Nobody to ask is named.
    """

    def __init__(
        self,
        broker_url: str = "",
        queue_name: str = "",
        rabbitmq_management_url: str | None = None,
        queue_length: str = "",
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        if not queue_name:
            raise ValueError("queue_name is missing: which queue the replicas take tasks from")
        self._ask = _asker(broker_url, queue_name, rabbitmq_management_url, queue_length)
        self._poll_interval_s = poll_interval_s
        self._length = 0
        self._asked_at = -math.inf

    def __call__(self, ctx: AutoscalingContext) -> Decision:
        """Return as many replicas as calls and waiting tasks take."""
        now = time.time() if ctx.current_time is None else ctx.current_time
        # A clock that was set back asks at once.
        if not 0 <= now - self._asked_at < self._poll_interval_s:
            self._length, self._asked_at = _checked(self._ask()), now
        ctx.total_pending_async_requests = self._length
        replicas, _ = async_inference_autoscaling_policy(ctx)
        return replicas, {"queue_length": self._length}


def _asker(
    broker_url: str, queue: str, management_url: str | None, queue_length: str
) -> Callable[[], object]:
    if queue_length:
        function: Any = import_attribute(queue_length)
        return lambda: function(queue)
    kind = urllib.parse.urlsplit(broker_url).scheme
    if kind in {"redis", "rediss"}:
        return _redis_asker(broker_url, queue)
    if kind in {"amqp", "amqps"} and management_url:
        return _rabbitmq_asker(broker_url, queue, management_url)
    missing = " without a rabbitmq_management_url" if kind in {"amqp", "amqps"} else ""
    # It may have a password.
    shown = broker_url.partition("://")[0]
    raise ValueError(f"a broker_url of {shown!r}{missing} cannot be asked; allowed: {_KNOWN}")


def _redis_asker(url: str, queue: str) -> Callable[[], object]:
    try:
        redis: Any = __import__("redis")
    except ImportError as error:
        raise ValueError(
            "the length of a queue at Redis needs the package redis where the controller runs: "
            "pip install redis, or give queue_length='module:function'"
        ) from error
    client = redis.Redis.from_url(
        url, socket_timeout=_BROKER_TIMEOUT_S, socket_connect_timeout=_BROKER_TIMEOUT_S
    )
    return lambda: client.llen(queue)


def _rabbitmq_asker(broker_url: str, queue: str, management_url: str) -> Callable[[], object]:
    host = urllib.parse.unquote(urllib.parse.urlsplit(broker_url).path[1:]) or "/"
    parts = urllib.parse.urlsplit(management_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("rabbitmq_management_url is not of the form 'http://HOST:PORT/api/'")
    place = parts.netloc.rpartition("@")[2]
    names = "/".join(urllib.parse.quote(each, safe="") for each in (host, queue))
    url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}/queues/{names}"
    headers = {}
    if parts.username is not None:
        user = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # checked above

    def ask() -> object:
        try:
            with urllib.request.urlopen(request, timeout=_BROKER_TIMEOUT_S) as answer:  # noqa: S310
                return json.loads(answer.read(_ANSWER_BYTES_MAX))["messages"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # It is the answer, too.
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"RabbitMQ does not tell the length at {url}: {said}") from error

    return ask


def _checked(length: object) -> int:
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise ValueError(f"the length of the queue is {length!r}, which is no whole number")
    return length


__all__ = ["AsyncInferenceAutoscalingPolicy"]
