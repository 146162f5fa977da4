"""What an import path may name beside applications and deployments: functions that make them."""

from __future__ import annotations

from typing import Any

import pydantic

import pyserve


class Settings(pydantic.BaseModel):
    word: str = "hello"
    times: int = 1


@pyserve.deployment
class Speaker:
    def __init__(self, word: str = "", times: int = 1) -> None:
        self._said = word * times

    def __call__(self) -> str:
        return self._said


@pyserve.deployment
async def shout(text: str) -> str:
    return text.upper()


def without() -> Any:
    return Speaker.bind("plain")


def from_dict(arguments: dict[str, Any]) -> Any:
    return Speaker.bind(**arguments)


def from_model(settings: Settings) -> Any:
    return Speaker.bind(settings.word, times=settings.times)


def from_optional(settings: Settings | None = None) -> Any:
    return Speaker.bind("default" if settings is None else settings.word)


def returns_deployment(_arguments: dict[str, Any]) -> Any:
    return Speaker


def takes_two(_word: str, _times: int) -> Any:
    return Speaker.bind()


def returns_nothing() -> None:
    pass


async def asynchronous() -> Any:
    return Speaker.bind()


def handles() -> Any:
    return {}


class Factory:
    def __call__(self, arguments: dict[str, Any]) -> Any:
        return Speaker.bind(**arguments)


factory = Factory()


@pyserve.deployment
class Plain:
    def __call__(self, request: object) -> str:
        return "plain"


@pyserve.deployment(
    max_ongoing_requests=7,
    autoscaling_config={"max_replicas": 4},
    ray_actor_options={"num_cpus": 0.5, "runtime_env": {"env_vars": {"A": "1"}}},
)
class Tuned:
    def __init__(self, plain: object) -> None:
        self.plain = plain

    def __call__(self, request: object) -> str:
        return "tuned"


tuned = Tuned.bind(Plain.bind())
