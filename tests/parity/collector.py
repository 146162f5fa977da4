"""A pytest plugin that keeps what the tests with a parity mark did, and runs only these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.parity.assertions import asserts_something
from tests.parity.report import ShownBy

ROOT = Path(__file__).parents[2]


class Collector:
    """Selects the tests of some rows and notes their outcomes.

    Args:
        wanted: Rows whose tests run; those of other rows are noted and left alone.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self.tests: dict[str, ShownBy] = {}
        self._wanted = frozenset(wanted)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        selected: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            rows = frozenset(row for mark in item.iter_markers("parity") for row in mark.args)
            if rows:
                self._note(item, rows)
            (selected if rows & self._wanted else left).append(item)
        config.hook.pytest_deselected(items=left)
        items[:] = selected

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            # A failing teardown counts as well, on top of a passed call.
            self.tests[_function_id(report.nodeid)].outcomes.append(report.outcome)

    def _note(self, item: pytest.Item, rows: frozenset[str]) -> None:
        name = _function_id(item.nodeid)
        known = self.tests.get(name)
        if known is None:
            self.tests[name] = ShownBy(name, rows, _can_fail(item))
        else:  # Parameters may carry marks of their own.
            known.rows |= rows


def _function_id(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _can_fail(item: pytest.Item) -> bool:
    function = _inner(getattr(item, "function", None))
    if function is None:
        return False
    # A suite that is shared between files is read where it is written.
    path = Path(inspect.getfile(function))
    if ROOT not in path.parents:
        path = item.path
    return asserts_something(path.read_text(encoding="utf-8"), function.__name__)


def _inner(function: Any) -> Callable[..., object] | None:
    """Return what the user wrote, below ``given`` and other wrappers."""
    property_test = getattr(function, "hypothesis", None)
    inner = getattr(property_test, "inner_test", function)
    return None if inner is None else inspect.unwrap(inner)
