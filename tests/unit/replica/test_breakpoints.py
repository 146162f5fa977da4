"""``breakpoint()`` in a replica."""

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pyserve.errors import WrongMoment
from pyserve.replica.process import explain_breakpoints


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what ``breakpoint()`` calls in a replica without a terminal."""
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    explain_breakpoints()
    return sys.breakpointhook


def test_without_a_terminal_it_says_where_it_works(hook: Callable[..., Any]) -> None:
    with pytest.raises(WrongMoment, match="--in-process"):
        hook()


def test_a_debugger_that_a_variable_names_is_called(
    hook: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "builtins.dict")
    assert {"a": 1} == hook(a=1)


def test_a_terminal_is_for_the_debugger(
    hook: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr("pdb.set_trace", lambda *, header: header)
    assert "here" == hook(header="here")


def test_a_hook_that_is_set_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_a_debugger() -> None:
        raise AssertionError("nobody calls it here")

    monkeypatch.setattr(sys, "breakpointhook", of_a_debugger)
    explain_breakpoints()
    assert of_a_debugger is sys.breakpointhook
