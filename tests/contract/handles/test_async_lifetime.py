"""Constructors and ``__del__`` that are coroutines."""

import gc

import pytest

import pyserve
from tests.contract.handles.apps import Slow
from tests.support.waiting import wait_until


@pytest.mark.parity("S-01")
def test_a_constructor_is_awaited_before_the_first_call_and_the_end_too(deploy, tmp_path):
    notes = tmp_path / "notes"
    handle = deploy(Slow.bind(str(notes)))

    assert ["ready"] == notes.read_text().split()
    assert (True, "Slow") == tuple(handle.remote().result(timeout_s=30))

    pyserve.delete(handle.app_name)
    wait_until(lambda: notes.read_text().split() == ["ready", "aclose", "__del__"])
    gc.collect()
    assert ["ready", "aclose", "__del__"] == notes.read_text().split(), "it runs once"


def test_a_constructor_that_raises_fails_the_deploy_with_its_place(deploy, tmp_path):
    with pytest.raises(pyserve.DeploymentFailed) as caught:
        deploy(Slow.options(max_constructor_retry_count=1).bind(str(tmp_path / "n"), fails=True))

    assert "the constructor of Slow (" in caught.value.summary
    assert "raised: ValueError: no weights" in caught.value.summary
    assert "in __init__" in caught.value.remote_traceback
