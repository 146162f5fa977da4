"""``run`` and its relatives, written as for Ray Serve: by position, and with all of its names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyserve
from pyserve.config import LoggingConfig
from pyserve.errors import MeshNotFound, UsageError
from tests.mesh.apps.small import Small


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.slow), True])
def is_local(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Run in a mesh of processes, and in this one."""
    if not request.param:
        pyserve.start(None, {"port": 0}, None, LoggingConfig(), {"enabled": False}, {})
    try:
        yield request.param
    finally:
        pyserve.shutdown()


def test_run_takes_its_arguments_by_position(is_local: bool):
    handle = pyserve.run(
        Small.bind(), False, "first", None, {"log_level": "DEBUG"}, is_local, False, {}
    )

    assert "first" == handle.app_name
    assert "first" in pyserve.status().applications


def test_run_takes_its_arguments_by_name(is_local: bool):
    pyserve.run(
        target=Small.bind(),
        name="second",
        route_prefix=None,
        logging_config=LoggingConfig(log_level="ERROR", encoding="JSON"),
        _local_testing_mode=is_local,
        controller_options={"runtime_env": None},
    )

    assert "second" == pyserve.get_app_handle("second").app_name


@pytest.mark.parity("G-57")
def test_targets_are_made_by_position(is_local: bool):
    targets = [pyserve.RunTarget(Small.bind(), name) for name in ("one", "two")]

    handles = pyserve.run_many(targets, False, True, False, is_local)

    assert ["one", "two"] == [handle.app_name for handle in handles]
    pyserve.delete("two", False)
    assert "two" not in pyserve.status().applications


def test_a_handle_that_is_shut_down_goes_on(is_local: bool):
    """The routers are the process's, so that other handles need them."""
    handle = pyserve.run(
        Small.options(name="Again").bind(), name="again", _local_testing_mode=is_local
    )

    handle.shutdown()

    found = pyserve.get_deployment_handle("Again", "again", True, False)
    assert handle == found


def test_what_run_cannot_do_is_refused_before_anything_starts(is_local: bool):
    with pytest.raises(UsageError, match=r"logging_config\.log_level='LOUD'"):
        pyserve.run(Small.bind(), logging_config="LOUD", _local_testing_mode=is_local)


@pytest.mark.parity("G-57")
async def test_a_mesh_is_shut_down_from_a_loop(is_local: bool):
    pyserve.run(Small.options(name="Last").bind(), name="last", _local_testing_mode=is_local)

    await pyserve.shutdown_async()

    with pytest.raises(MeshNotFound):
        pyserve.status()
