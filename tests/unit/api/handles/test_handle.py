"""Handles and their options."""

from __future__ import annotations

import copy
import pickle
import statistics
import timeit
from typing import Any

import pytest

import pyserve
from pyserve.api.handles.framing import HOLD, STREAM
from pyserve.errors import MeshNotFound, OptionError, WrongMoment
from tests.unit.api.handles.fakes import FakeCaller, FakeMesh

# In the cost of making a dictionary with one entry.
COPY_COST_MAX = 18


async def test_attributes_are_methods(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    handle.remote(1)
    handle.predict.remote(1, two=2)
    handle.options(method_name="remote").remote()
    assert ["/app.Model/__call__", "/app.Model/predict", "/app.Model/remote"] == [
        call.route.path for call in caller.calls
    ]
    assert ([1], {"two": 2}) == caller.calls[1].arguments()


async def test_options_reach_the_route(handle: pyserve.DeploymentHandle, caller: FakeCaller):
    handle.options(
        stream=True,
        multiplexed_model_id="m",
        session_id="s",
        priority=3,
        idempotent=True,
        timeout_s=2,
        request_serialization="msgpack",
        response_serialization="json",
        _prefer_local_routing=True,
        _by_reference=False,
    ).tokens.remote()
    [call] = caller.calls
    route = call.route
    assert (True, "m", "s", 3, True, (True, True)) == (
        route.streaming,
        route.model_id,
        route.session_id,
        route.priority,
        route.idempotent,
        route.locality,
    )
    assert ("msgpack", "json", 2) == (route.codec, call.header.response_codec, call.timeout_s)
    assert STREAM == call.flags & (STREAM | HOLD)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strem": True}, "no option 'strem'; it has .*stream"),
        ({"stream": 1}, "stream is 1; use True or False"),
        ({"timeout_s": 0}, "timeout_s is 0; use a number of seconds above 0"),
        ({"timeout_s": True}, "timeout_s is True"),
        ({"multiplexed_model_id": "ä"}, "printable ASCII"),
        ({"method_name": "_hidden"}, "the name of a public method"),
        ({"priority": 1.5}, "an integer"),
        ({"request_serialization": ""}, "the name of a serializer"),
        ({"_by_reference": "yes"}, "True, False, or None"),
    ],
)
def test_wrong_options_say_what_is_allowed(
    handle: pyserve.DeploymentHandle, options: dict[str, Any], text: str
):
    with pytest.raises(OptionError, match=text):
        handle.options(**options)


@pytest.mark.parity("S-05")
@pytest.mark.alone
def test_a_copy_costs_little_and_asks_nobody(handle: pyserve.DeploymentHandle, mesh: FakeMesh):
    """Some 0.7 us on an undisturbed machine, as thirteen small dictionaries; its bound is 0.9 us.

    Best of many short runs, in turn with what it is compared with, since other programs share the
    machine. Every copy has another model id, so that nothing can be remembered.
    """
    ids = [f"m{number}" for number in range(200)]

    def copies() -> None:
        for model_id in ids:
            handle.options(multiplexed_model_id=model_id)

    def dictionaries() -> None:
        for model_id in ids:
            dict(multiplexed_model_id=model_id)  # noqa: C408  # the call is what costs

    ratios = [
        timeit.timeit(copies, number=5) / timeit.timeit(dictionaries, number=5) for _ in range(200)
    ]
    assert statistics.median(ratios) < COPY_COST_MAX
    assert {} == mesh.callers


@pytest.mark.parity("T5")
async def test_local_routing_is_set_for_a_handle_or_a_copy(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    handle._init(_prefer_local_routing=True)
    handle.remote()
    handle.predict.remote()
    handle.options(_prefer_local_routing=False).remote()
    pyserve.DeploymentHandle("Model", "app").options(_prefer_local_routing=True).remote()
    near, nowhere = (True, True), (False, False)
    assert [near, near, nowhere, near] == [call.route.locality for call in caller.calls]


async def test_a_handle_is_initialized_once_and_before_it_is_used(
    handle: pyserve.DeploymentHandle,
):
    """As in Ray Serve, where that is a RuntimeError."""
    initialized = pyserve.DeploymentHandle("Model", "app")
    initialized._init(priority=2)
    with_copy = pyserve.DeploymentHandle("Model", "app")
    copied = with_copy.options(priority=1)
    with_method = pyserve.DeploymentHandle("Model", "app")
    method = with_method.predict
    handle.remote()
    for used in (initialized, with_copy, copied, with_method, method, handle):
        with pytest.raises(RuntimeError, match="is already initialized") as caught:
            used._init(priority=3)
        assert isinstance(caught.value, WrongMoment)
    pickle.loads(pickle.dumps(handle))._init(priority=3)


def test_a_method_is_the_same_handle_each_time(handle: pyserve.DeploymentHandle):
    """So that what its calls have in common is worked out once."""
    assert handle.predict is handle.predict
    assert handle.predict is not handle.options(priority=1).predict
    assert handle.options(method_name="predict") == handle.predict


def test_names_from_outside_are_not_kept(handle: pyserve.DeploymentHandle):
    for number in range(1000):
        getattr(handle, f"method{number}")
    assert handle._methods is not None
    assert len(handle._methods) <= 64
    assert "method999" == handle.method999._options["method_name"]


def test_handles_travel_with_their_options(handle: pyserve.DeploymentHandle):
    chosen = handle.predict.options(stream=True, timeout_s=3)
    assert chosen == pickle.loads(pickle.dumps(chosen))
    assert chosen == copy.deepcopy(chosen)
    assert handle != chosen
    assert hash(handle) == hash(chosen)
    assert (
        "DeploymentHandle('Model', app_name='app', method_name='predict', stream=True, timeout_s=3)"
        == repr(chosen)
    )


def test_private_names_are_no_methods(handle: pyserve.DeploymentHandle):
    with pytest.raises(AttributeError, match="_secret"):
        handle._secret  # noqa: B018


def test_without_a_mesh_a_call_says_how_to_get_one():
    with pytest.raises(MeshNotFound, match=r"pyserve\.run"):
        pyserve.DeploymentHandle("Model", "app").remote()


async def test_a_handle_follows_the_process_to_another_mesh(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
):
    from pyserve.api.context import attach

    handle.remote(1)
    other = FakeMesh()
    attach(other)
    handle.remote(2)
    [second] = next(iter(other.callers.values())).calls
    assert ([2], {}) == second.arguments()
    assert 1 == len(caller.calls)
    other.close()
