"""What editors show and checkers know of options is what there is."""

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import pytest

import pyserve
from deploy.release.option_keywords import PATH, text
from pyserve.api.handles.options import _CHECKS
from pyserve.config import DeploymentOptions, LoggingConfig, RequestRouterConfig, Resources
from pyserve.config.keywords import HandleKeywords
from pyserve.config.options import OPTIONS
from pyserve.errors import KindError, OptionError

_DOCUMENTED = re.compile(r"``(?P<name>\w+)`` \((?P<default>\(\)|[^)]*)\)")


class Predictor(pyserve.Deployable):
    def __call__(self) -> None: ...

    def predict(self) -> None: ...

    async def tokens(self) -> Any:
        yield 1

    def lines(self) -> Any:
        yield "a"

    @pyserve.batch
    async def many(self, numbers: list[int]) -> list[int]:
        return numbers

    @pyserve.batch
    async def steps(self, numbers: list[int]) -> Any:
        yield numbers


deployed: Any = pyserve.deployment(Predictor)
handle: pyserve.DeploymentHandle[Predictor] = pyserve.DeploymentHandle("Predictor", "app")


def _text(value: object) -> str:
    match value:
        case None:
            return "none"
        case LoggingConfig():
            return f"log_level {value.log_level}"
        case RequestRouterConfig():
            return f"policy {value.policy}"
        case Resources():
            return f"num_cpus {value.num_cpus}"
    return str(value)


def test_every_option_of_a_deployment_is_a_keyword_that_is_known():
    assert PATH.read_text(encoding="utf-8") == text(), "run make gen"
    assert set(OPTIONS) == {field.name for field in dataclasses.fields(DeploymentOptions)}
    assert set(_CHECKS) == set(HandleKeywords.__annotations__)


@pytest.mark.parametrize("field", dataclasses.fields(DeploymentOptions), ids=lambda f: f.name)
def test_the_decorator_tells_each_option_with_its_default(field: Any):
    told = dict(_DOCUMENTED.findall(pyserve.deployment.__doc__ or ""))

    assert _text(getattr(DeploymentOptions(), field.name)) == told[field.name]


@pytest.mark.parametrize("name", sorted(_CHECKS))
def test_a_handle_tells_each_option(name: str):
    assert f"``{name}``" in (pyserve.DeploymentHandle.options.__doc__ or "")


@pytest.mark.parametrize("owner", [Predictor, deployed], ids=["class", "deployment"])
@pytest.mark.parametrize(
    ("name", "is_stream"),
    [("predict", False), ("tokens", True), ("lines", True), ("many", False), ("steps", True)],
)
def test_a_method_names_the_handle_that_calls_it(owner: Any, name: str, is_stream: bool):
    expected = getattr(handle, name)

    assert (expected.options(stream=True) if is_stream else expected) == handle[
        getattr(owner, name)
    ]


def test_the_method_of_a_handle_of_another_method_is_that_of_its_class():
    assert handle.options(method_name="__call__") == handle.predict[Predictor.__call__]
    assert handle.predict.options(timeout_s=1) == handle.options(timeout_s=1)[Predictor.predict]


@pytest.mark.parametrize(
    "method", ["predict", 0, None, lambda: None, SimpleNamespace(__name__="_private")]
)
def test_what_names_no_method_is_refused(method: Any):
    with pytest.raises(OptionError, match="use the name of a public method"):
        handle[method]


def test_a_deployment_has_the_methods_of_its_class_and_nothing_else():
    assert Predictor.predict is deployed.predict
    with pytest.raises(AttributeError, match="predikt"):
        _ = deployed.predikt
    with pytest.raises(AttributeError, match="__aiter__"):
        _ = deployed.__aiter__
    function = pyserve.deployment(_text)
    with pytest.raises(AttributeError, match="func_name"):
        _ = function.func_name  # type: ignore[attr-defined]


def test_types_take_parameters_where_the_code_runs():
    assert pyserve.Deployment[Predictor] != pyserve.Deployment[int]
    assert pyserve.Deployment[Predictor, [int]] != pyserve.Deployment[Predictor]
    assert pyserve.Application[Predictor] != pyserve.Application[int]
    assert pyserve.DeploymentHandle[deployed] is not None


def test_a_handle_that_is_called_itself_says_what_to_write():
    call: Any = handle
    with pytest.raises(KindError, match=r"write handle\.remote\(\.\.\.\)"):
        call("text")
    with pytest.raises(KindError, match=r"write handle\.predict\.remote\(\.\.\.\)"):
        call.predict(1)
    with pytest.raises(TypeError, match="not iterable"):
        list(call)


async def test_an_answer_that_is_iterated_over_says_how_to_stream():
    @pyserve.deployment
    class Local:
        async def numbers(self) -> Any:
            yield 1

    try:
        local: Any = pyserve.run(Local.bind(), local_testing_mode=True)
        response = local.numbers.remote()
        with pytest.raises(KindError, match=r"async for item in .*options\(stream=True\)"):
            async for _ in response:
                pass
        with pytest.raises(KindError, match=r"for item in .*options\(stream=True\)"):
            list(response)
        with pytest.raises(KindError):
            await response
    finally:
        pyserve.shutdown()
