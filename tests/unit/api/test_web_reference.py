"""Which applications are imported in replicas, and which travel by value."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

import pyserve
from pyserve.api.code import receive, ship
from pyserve.api.graph import pack
from pyserve.api.ingress import ingress_of, reference
from pyserve.api.modules import is_being_imported, is_importable
from pyserve.errors import UsageError
from pyserve.types import ApplicationName

_BEGIN = """
import threading
from fastapi import FastAPI
import pyserve
def made():
    app = FastAPI()
    app.state.lock = threading.Lock()
    return app
def serve(app):
    return pyserve.deployment(pyserve.ingress(app)()).bind()
"""
Import = Callable[..., Any]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Write modules into a folder of the path, and import the first one."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**modules: str) -> Any:
        package = tmp_path / "webs"
        package.mkdir()
        for name, text in {"__init__": "", **modules}.items():
            (package / f"{name}.py").write_text(text)
        return importlib.import_module(f"webs.{next(iter(modules))}")

    yield write
    _forget()


def _forget() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "webs"]:
        del sys.modules[name]


def _arrived(application: pyserve.Application[Any]) -> Any:
    """Return what a replica serves: all modules of the test are imported again."""
    shipped = ship(application.deployment.target)
    _forget()
    ingress = ingress_of(receive(shipped))
    assert ingress is not None
    return ingress.source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("api = made(); app = serve(api)", "api"),
        ("api = made(); app = serve(api); alias = api", "alias"),
        ("api = made(); api.state.mine = 1; other = made(); app = serve(api)", "api"),
        ("api = made(); other = made(); other.state.mine = 1; app = serve(other)", "other"),
        ("class Around:\n    def __init__(self, app): self.app = app\n"
         "    async def __call__(self, scope, receive, send): ...\n"
         "api = Around(made()); app = serve(api)", "api"),
        ("def build(): return made()\napp = serve(build)", "build"),
        # What is served has no name of its own, or not any more: what runs it has one.
        ("app = serve(made())", "app"),
        ("app = made(); app = serve(app)", "app"),
        ("api = made(); app = serve(api); api = None", "app"),
        ("api = made(); app = serve(lambda: api)", "app"),
        ("empty = pyserve.ingress(made())(); app = pyserve.deployment(empty).bind()", "app"),
    ],
)  # fmt: skip
def test_what_a_module_names_is_imported(imported: Import, text: str, source: str) -> None:
    arrived = _arrived(imported(web=f"{_BEGIN}{text}").app)
    again = vars(sys.modules["webs.web"])[source]
    if isinstance(again, pyserve.Application):
        ingress = ingress_of(again.deployment.target)
        assert ingress is not None
        again = ingress.source
    assert again is arrived


def test_a_module_that_adds_to_the_application_of_another_is_imported_too(imported: Import) -> None:
    driver = imported(
        routes="from .base import api\n@api.get('/x')\nasync def x(): ...\n",
        base=f"{_BEGIN}api = made()\ndef build(): return serve(api)\n",
    )
    arrived = _arrived(sys.modules["webs.base"].build())
    assert arrived is sys.modules["webs.routes"].api is not driver.api
    assert "/x" in {route.path for route in arrived.routes}


def test_a_module_that_only_uses_the_application_stays_away(imported: Import) -> None:
    driver = imported(
        user="from .base import api, serve\ndef build(): return serve(api)\n",
        base=f"{_BEGIN}api = made()\n",
    )
    assert _arrived(driver.build()) is sys.modules["webs.base"].api
    assert "webs.user" not in sys.modules


_ADDED_LATER = """
api = FastAPI()
def later(): ...
def build():
    api.get("/later")(later)
    api.state.setting = 3
    return serve(api)
"""


def test_a_copy_is_served_where_the_import_lacks_something(
    imported: Import, caplog: pytest.LogCaptureFixture
) -> None:
    application = imported(web=_BEGIN + _ADDED_LATER).build()
    with caplog.at_level(logging.WARNING):
        arrived = _arrived(application)
    assert arrived is not sys.modules["webs.web"].api
    assert 3 == arrived.state.setting
    assert "webs.web:api, imported in the replica, lacks state.setting, the route" in caplog.text


def test_without_a_copy_the_replica_says_what_is_missing(imported: Import) -> None:
    module = imported(web=_BEGIN + _ADDED_LATER)
    module.api.state.later = threading.Lock()
    with pytest.raises(UsageError, match=r"lacks state\.later, .*Make it when the module is"):
        _arrived(module.build())


def test_a_name_that_no_import_makes_leads_to_the_copy(
    imported: Import, caplog: pytest.LogCaptureFixture
) -> None:
    module = imported(web=_BEGIN)
    module.late = FastAPI(title="late")
    assert "late" == _arrived(module.serve(module.late)).title
    assert "webs.web:late, imported in the replica, cannot be found" in caplog.text


def test_an_application_without_a_name_travels_by_value(imported: Import) -> None:
    module = imported(web=f"{_BEGIN}api = FastAPI(); app = [serve(api)]; api = FastAPI()")
    assert _arrived(module.app[0]) is not module.api
    assert "webs.web" not in sys.modules


def test_what_cannot_travel_and_has_no_name_is_refused(imported: Import) -> None:
    """By ``bind``, or when it is deployed, if the module might have given it a name yet."""
    module = imported(web=f"{_BEGIN}api = made(); app = [serve(api)]; api = None")
    with pytest.raises(UsageError, match=r"_state\['lock'\], a _thread\.lock, cannot be pickled"):
        pack(module.app[0], ApplicationName("app"))
    with pytest.raises(UsageError, match="cannot travel to the replicas"):
        module.serve(module.made())


def test_main_and_notebooks_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec("from fastapi import FastAPI\napi = FastAPI()", vars(main))
    assert reference(main.api) is None
    assert not is_importable("__main__", main)
    assert not is_importable("__mp_main__", main)
    assert not is_importable("no_file", types.ModuleType("no_file"))
    assert is_importable(__name__, sys.modules[__name__])
    assert not is_being_imported()


def test_routes_of_main_take_the_application_of_a_module_with_them(imported: Import) -> None:
    api = imported(web=f"{_BEGIN}api = FastAPI()").api
    assert reference(api) is not None
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("async def cell(): ...", scope)
    api.get("/cell")(scope["cell"])
    assert reference(api) is None


def test_methods_of_a_local_class_take_the_application_with_them(imported: Import) -> None:
    api = imported(web=f"{_BEGIN}api = FastAPI()").api

    @pyserve.ingress(api)
    class Local:
        @api.get("/x")
        async def x(self) -> None: ...

    assert ingress_of(Local) is not None
    assert reference(api) is None


def test_weights_do_not_go_along_as_a_copy(imported: Import) -> None:
    module = imported(web=f"{_BEGIN}api = FastAPI(); api.state.weights = bytes(1 << 25)")
    shipped = ship(module.serve(module.api).deployment.target)
    assert 1 << 20 > len(shipped.pickled)
