"""The part of a gRPC service config that a channel carries out: time limits, waiting, retries.

The rules are those of https://github.com/grpc/proposal/blob/master/A6-client-retries.md
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from pyserve.aio._metadata import MetadataLike

# A policy may ask for more, as in grpc without effect.
_ATTEMPTS_MAX = 5
_JITTER = 0.2
_PUSHBACK = "grpc-retry-pushback-ms"
_PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"
_SECONDS = re.compile(r"\d+(\.\d{1,9})?s")
_CODES = {code.name: code for code in grpc.StatusCode}


class Attempt(Protocol):
    """The part of a call that a retry needs."""

    def cancel(self) -> bool:
        """End it."""

    async def failed_unanswered(self) -> grpc.aio.AioRpcError | None:
        """Wait for headers or the end; return the error of a call that failed without headers."""


class Throttle:
    """Stops the retries of a channel while too many of its calls fail."""

    def __init__(self, tokens_max: float, token_ratio: float) -> None:
        self._tokens_max = self._tokens = tokens_max
        self._ratio = token_ratio

    def on_failure(self) -> bool:
        """Count a call that may be repeated; return whether it should be."""
        self._tokens = max(0.0, self._tokens - 1)
        return self._tokens > self._tokens_max / 2

    def on_success(self) -> None:
        """Count a call that needed no repetition."""
        self._tokens = min(self._tokens_max, self._tokens + self._ratio)


@dataclass(frozen=True)
class RetryPolicy:
    """When and how often the calls of a method are repeated."""

    attempts_max: int
    initial_backoff_s: float
    backoff_max_s: float
    multiplier: float
    codes: frozenset[grpc.StatusCode]
    throttle: Throttle | None

    async def run(
        self,
        start: Callable[[float | None, MetadataLike | None], Any],
        timeout: float | None,
        metadata: MetadataLike | None,
    ) -> Any:
        """Return the first call that was answered, or must not be repeated.

        Args:
            start: Starts a call with a time limit and metadata.
            timeout: Seconds for all attempts together.
            metadata: Of the first; the others also say how many there were before.
        """
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        pairs = tuple(metadata or ())
        for count in range(1, self.attempts_max + 1):
            left = None if end is None else end - loop.time()
            told = () if count == 1 else ((_PREVIOUS_ATTEMPTS, str(count - 1)),)
            call = start(left, (*pairs, *told))
            delay = await self._delay_after(call, count)
            if delay is None:
                break
            await asyncio.sleep(delay if end is None else min(delay, max(0.0, end - loop.time())))
        return call

    async def _delay_after(self, call: Attempt, count: int) -> float | None:
        """Return the seconds until the next attempt; ``None``: ``call`` is the last one."""
        try:
            error = await call.failed_unanswered()
        except asyncio.CancelledError:
            call.cancel()
            raise
        if error is None or error.code() not in self.codes:
            if self.throttle is not None:
                self.throttle.on_success()
            return None
        may_repeat = self.throttle is None or self.throttle.on_failure()
        if not may_repeat or count == self.attempts_max:
            return None
        pushback = dict(error.trailing_metadata() or ()).get(_PUSHBACK)
        if pushback is not None:
            text = str(pushback)
            return int(text) / 1000 if text.isdecimal() and len(text) < 10 else None
        backoff_s = min(self.initial_backoff_s * self.multiplier ** (count - 1), self.backoff_max_s)
        return backoff_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311


@dataclass(frozen=True)
class MethodConfig:
    """The part of a service config about one method."""

    timeout_s: float | None = None
    waits_for_ready: bool | None = None
    retry: RetryPolicy | None = None

    def timeout(self, asked_s: float | None) -> float | None:
        """Return the smaller of the limit here and the one of the call."""
        limits = [each for each in (asked_s, self.timeout_s) if each is not None]
        return min(limits, default=None)


@dataclass(frozen=True)
class ServiceConfig:
    """Configs by ``(service, method)``; an empty method or both empty: of all others."""

    methods: Mapping[tuple[str, str], MethodConfig]

    def of(self, path: str) -> MethodConfig | None:
        """Return the most specific config of the method at ``path``."""
        _, _, rest = path.partition("/")
        service, _, method = rest.rpartition("/")
        for name in ((service, method), (service, ""), ("", "")):
            if (found := self.methods.get(name)) is not None:
                return found
        return None


def read_service_config(text: str) -> ServiceConfig:
    """Read the JSON of ``grpc.service_config``; entries without a meaning here are ignored.

    Raises:
        ValueError: It is no JSON, or an entry cannot be used; the text says which.
    """
    config = _mapping("the service config", json.loads(text))
    throttle = _throttle(config.get("retryThrottling"))
    methods: dict[tuple[str, str], MethodConfig] = {}
    for entry in _list("methodConfig", config.get("methodConfig", [])):
        said = _mapping("methodConfig", entry)
        waits = said.get("waitForReady")
        if waits is not None and not isinstance(waits, bool):
            raise ValueError(f"waitForReady must be true or false, not {waits!r}")
        timeout = said.get("timeout")
        one = MethodConfig(
            timeout_s=None if timeout is None else _seconds("timeout", timeout),
            waits_for_ready=waits,
            retry=_retry_policy(said.get("retryPolicy"), throttle),
        )
        for name in _list("name", said.get("name", [])):
            service = _mapping("name", name).get("service") or ""
            key = str(service), str(name.get("method") or "")
            if key in methods:
                raise ValueError(f"there are two methodConfig entries for {name!r}")
            methods[key] = one
    return ServiceConfig(methods)


def without_retries(config: ServiceConfig) -> ServiceConfig:
    """Return ``config`` for a channel that switches retries off."""
    return ServiceConfig({
        name: MethodConfig(one.timeout_s, one.waits_for_ready)
        for name, one in config.methods.items()
    })  # fmt: skip


def _retry_policy(said: Any, throttle: Throttle | None) -> RetryPolicy | None:
    if said is None:
        return None
    policy = _mapping("retryPolicy", said)
    attempts = policy.get("maxAttempts")
    if not isinstance(attempts, int) or attempts < 2:
        raise ValueError(f"retryPolicy.maxAttempts must be 2 or more, not {attempts!r}")
    multiplier = policy.get("backoffMultiplier")
    if not isinstance(multiplier, int | float) or multiplier <= 0:
        raise ValueError(f"retryPolicy.backoffMultiplier must be above 0, not {multiplier!r}")
    names = _list("retryPolicy.retryableStatusCodes", policy.get("retryableStatusCodes"))
    unknown = [name for name in names if name not in _CODES]
    if unknown or not names:
        raise ValueError(f"retryPolicy.retryableStatusCodes must name codes, not {names!r}")
    return RetryPolicy(
        attempts_max=min(attempts, _ATTEMPTS_MAX),
        initial_backoff_s=_seconds("retryPolicy.initialBackoff", policy.get("initialBackoff")),
        backoff_max_s=_seconds("retryPolicy.maxBackoff", policy.get("maxBackoff")),
        multiplier=float(multiplier),
        codes=frozenset(_CODES[name] for name in names),
        throttle=throttle,
    )


def _throttle(said: Any) -> Throttle | None:
    if said is None:
        return None
    given = _mapping("retryThrottling", said)
    tokens, ratio = given.get("maxTokens"), given.get("tokenRatio")
    if not isinstance(tokens, int | float) or not isinstance(ratio, int | float) or ratio <= 0:
        raise ValueError(f"retryThrottling needs maxTokens and a tokenRatio above 0, not {said!r}")
    return Throttle(float(tokens), float(ratio))


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, str) or _SECONDS.fullmatch(value) is None:
        raise ValueError(f'{name} must be a duration such as "0.5s", not {value!r}')
    return float(value[:-1])


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, not {value!r}")
    return value


def _list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, not {value!r}")
    return value
