"""Code that travels by value has the names of its files, whatever cloudpickle leaves out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle
import pytest

from pyserve.api import pickling
from pyserve.code_pickler import dumps
from pyserve.serializers import codec, join

_FILE = "<cell 7>"
_SOURCE = """
class Prices:
    rates = {"eur": lambda amount: amount * 1.5}

    def of(self, name):
        def inner():
            raise KeyError(name)
        return inner()
"""


@pytest.fixture(params=["as it is", "without files"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """A class of code in no file; later releases of cloudpickle leave the names out."""
    if request.param == "without files":
        inner: Callable[[CodeType], Any] = cloudpickle.cloudpickle._code_reduce

        def without_files(code: CodeType) -> Any:
            kind, arguments = inner(code)
            # They are the only text that is the same in every release.
            found = ["<dynamic-code>" if each == code.co_filename else each for each in arguments]
            return kind, tuple(found)

        monkeypatch.setattr(cloudpickle.cloudpickle, "_code_reduce", without_files)
        table = cloudpickle.cloudpickle.Pickler.dispatch_table
        monkeypatch.setitem(table.maps[0], CodeType, without_files)
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_SOURCE, _FILE, "exec"), made)
    found: type = made["Prices"]
    return found


def _codes(code: CodeType) -> set[tuple[str, int]]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {(code.co_filename, code.co_firstlineno)}.union(*map(_codes, inner))


def _of_codec(value: object) -> Any:
    known = codec("cloudpickle")
    return known.decode(join(known.encode(value)))


@pytest.mark.parametrize(
    "travel",
    [
        lambda value: pickle.loads(dumps(value)),
        lambda value: pickle.loads(pickling.dumps(value)),
        _of_codec,
    ],
    ids=["values", "code", "codec"],
)
def test_files_and_lines_are_kept(kind: Any, travel: Callable[[Any], Any]) -> None:
    arrived = travel(kind)
    assert {(_FILE, 5), (_FILE, 6)} == _codes(arrived.of.__code__)
    assert {(_FILE, 3)} == _codes(arrived.rates["eur"].__code__)
    assert 3.0 == arrived.rates["eur"](2)
