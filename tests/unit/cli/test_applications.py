"""From a file to what is sent: user code, arguments, overrides, and digests of what it rests on."""

import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import click
import cloudpickle
import pytest

from pyserve.api.modules import own_modules
from pyserve.cli.applications import file_of, ingress_options, load_file, load_request
from pyserve.cli.commands import CommandFailed
from pyserve.cli.target import Asked
from pyserve.config.files import MeshFile
from pyserve.driver.client import Declared

_SHOP = """
import pyserve
import {prefix}_shared

@pyserve.deployment(num_replicas=2, env_vars={{"A": "code"}})
class Cart:
    def __init__(self, size=1):
        pass

    def reconfigure(self, config):
        pass

@pyserve.deployment(autoscaling_config={{"max_replicas": 3}})
class Front:
    def __init__(self, cart, other):
        pass

    def __call__(self, request):
        pass

app = Front.bind(Cart.bind(), Cart.bind(2))

def build(arguments):
    return Cart.bind(**arguments)
"""


class Project:
    """A folder with modules of its own, whose names no other test has."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.prefix = prefix
        self.write("shared", "")
        self.write("shop", _SHOP.format(prefix=prefix))
        self.write("blog", "import pyserve\n\n@pyserve.deployment\ndef Blog():\n    return 1\n")
        self.write("late", "")

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{self.prefix}_{name}.py").write_text(text)

    def load(self, *applications: dict[str, Any], **others: Any) -> list[Declared]:
        for each in applications:
            each["import_path"] = each["import_path"].format(p=self.prefix)
        text = json.dumps({"applications": applications, **others}, indent=1)
        return load_file(MeshFile("serve.yaml", text))

    def refusal(self, *applications: dict[str, Any]) -> CommandFailed:
        with pytest.raises(CommandFailed) as refused:
            self.load(*applications)
        return refused.value

    def forget(self) -> None:
        """Let modules be imported again, as by another process."""
        for name in [each for each in sys.modules if each.startswith(f"{self.prefix}_")]:
            del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    found = Project(tmp_path, f"declared_{zlib.crc32(request.node.name.encode())}")

    def modules_of_the_project() -> dict[str, Path]:
        # Beside the modules of all tests, each of which would be read for each application.
        each = own_modules()
        return {name: each[name] for name in each if name.startswith(found.prefix)}

    monkeypatch.setattr("pyserve.cli.applications.own_modules", modules_of_the_project)
    yield found
    found.forget()


SHOP = "{p}_shop:app"


def options_of(declared: Declared) -> dict[str, Any]:
    return {each.name: each.options for each in declared.packed.deployments}


@pytest.mark.parity("G-59")
def test_a_file_overrides_the_options_in_the_code(project: Project) -> None:
    (shop,) = project.load(
        {
            "import_path": SHOP,
            "name": "shop",
            "deployments": [
                {"name": "Cart_1", "num_replicas": 5, "user_config": {"a": 1}},
                {"name": "Front", "num_replicas": 4},
            ],
        }
    )
    options = options_of(shop)

    assert [2, 5, 4] == [options[each].num_replicas for each in ("Cart", "Cart_1", "Front")]
    assert {"a": 1} == options["Cart_1"].user_config
    assert None is options["Front"].autoscaling_config


@pytest.mark.parity("G-68")
def test_environments_of_an_application_are_those_of_its_deployments(project: Project) -> None:
    (shop,) = project.load(
        {
            "import_path": SHOP,
            "runtime_env": {"env_vars": {"A": "file", "B": "file"}, "working_dir": "."},
            "deployments": [
                {"name": "Front", "ray_actor_options": {"runtime_env": {"env_vars": {"B": "own"}}}}
            ],
        }
    )
    options = options_of(shop)

    assert {"A": "code", "B": "file"} == options["Cart"].env_vars
    assert {"A": "file", "B": "own"} == options["Front"].env_vars
    assert str(project.folder) == options["Cart"].working_dir


@pytest.mark.parity("G-58")
def test_arguments_go_to_the_builder(project: Project) -> None:
    (shop,) = project.load({"import_path": "{p}_shop:build", "args": {"size": 3}})

    assert ((), {"size": 3}) == cloudpickle.loads(shop.packed.deployments[0].arguments)


def test_dots_will_do_in_an_import_path(project: Project) -> None:
    (shop,) = project.load({"import_path": "{p}_shop.app"})

    assert "Front" == shop.packed.ingress


@pytest.mark.parametrize(
    ("application", "place", "said"),
    [
        ({"import_path": "{p}_shop:ap"}, "serve.yaml:5:4", "did you mean 'app'?"),
        ({"import_path": "{p}_nowhere:app"}, "serve.yaml:5:4", "there is no module"),
        ({"import_path": "{p}_shop:app", "args": {"a": 1}}, "serve.yaml:5:4", "is bound already"),
        ({"import_path": "{p}_shop:build", "args": {"b": 1}}, "serve.yaml:5:4", "Cart.bind"),
        (
            {"import_path": SHOP, "deployments": [{"name": "Crat"}]},
            "serve.yaml:8:6",
            "has no deployment 'Crat'; did you mean 'Cart'?",
        ),
        (
            {"import_path": SHOP, "deployments": [{"name": "Front", "user_config": 1}]},
            "serve.yaml:5:4",
            "write `def reconfigure(self, config)`",
        ),
        ({"import_path": SHOP, "runtime_env": {"conda": "x"}}, "serve.yaml:5:4", "'conda'"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_place(
    project: Project, application: dict[str, Any], place: str, said: str
) -> None:
    text = str(project.refusal({"name": "shop", **application}))

    assert text.startswith(f"{place}: application 'shop'")
    assert said in text


def test_an_import_that_raises_brings_its_traceback(project: Project) -> None:
    project.write("broken", "import nothing_of_that_name\n")

    refused = project.refusal({"import_path": "{p}_broken:app"})

    assert "importing" in str(refused)
    assert "import nothing_of_that_name" in refused.traceback


@pytest.mark.parity("G-31")
@pytest.mark.parametrize(("others", "wanted"), [({"target_capacity": 12.5}, 12.5), ({}, None)])
def test_a_file_says_how_much_of_it_there_shall_be(
    project: Project, others: dict[str, Any], wanted: float | None
) -> None:
    application = {"import_path": f"{project.prefix}_shop:app"}
    text = json.dumps({"applications": [application], **others})

    request = load_request(MeshFile("serve.yaml", text))

    assert ["default"] == [each.application for each in request.applications]
    assert wanted == (request.target_capacity if request.HasField("target_capacity") else None)


@pytest.mark.parity("G-27", "G-29")
def test_a_file_says_who_decides_how_many_replicas_there_are(project: Project) -> None:
    policy = {"policy_function": "policies:decide", "policy_kwargs": {"least": 2}}
    (outer,) = project.load({"import_path": SHOP, "external_scaler_enabled": True})
    (inner,) = project.load({"import_path": SHOP, "autoscaling_policy": policy})

    assert outer.packed.external_scaler_enabled
    assert policy == json.loads(inner.packed.autoscaling_policy_json)
    assert "'module:name'" in str(
        project.refusal({"import_path": SHOP, "autoscaling_policy": {"policy_function": "x y"}})
    )


def test_the_mesh_is_told_what_the_file_said(project: Project) -> None:
    written: dict[str, Any] = {"import_path": SHOP, "route_prefix": None, "args": {}}

    (shop,) = project.load(dict(written), logging_config={"log_level": "DEBUG"})

    assert None is shop.route_prefix
    said = json.loads(shop.declaration_json)
    assert {**written, "name": "default", "logging_config": {"log_level": "DEBUG"}} | {
        "import_path": said["import_path"]
    } == said
    assert {"DEBUG"} == {each.log_level for each in _logging(shop)}


def _logging(declared: Declared) -> list[Any]:
    return [each.options.logging_config for each in declared.packed.deployments]


def _marks(project: Project) -> list[bytes]:
    project.forget()
    found = project.load(
        {"import_path": SHOP, "name": "a", "route_prefix": "/a"},
        {"import_path": "{p}_blog:Blog", "name": "b"},
    )
    return [each.packed.deployments[0].code.fingerprint for each in found]


@pytest.mark.parity("G-62")
@pytest.mark.parametrize(
    ("edited", "changes"),
    [("shop", [True, False]), ("shared", [True, False]), ("blog", [False, True])],
)
def test_an_edit_changes_the_applications_that_rest_upon_the_file(
    project: Project, edited: str, changes: list[bool]
) -> None:
    before = _marks(project)
    _touch(project.folder / f"{project.prefix}_{edited}.py")

    assert changes == [a != b for a, b in zip(before, _marks(project), strict=True)]


def test_a_module_that_nobody_imports_by_name_counts_for_all(project: Project) -> None:
    project.write("blog", f"import importlib\nimport pyserve\n{_LATE.format(p=project.prefix)}")
    before = _marks(project)
    _touch(project.folder / f"{project.prefix}_late.py")

    assert [True, True] == [a != b for a, b in zip(before, _marks(project), strict=True)]


_LATE = """
importlib.import_module("{p}_" + "late")

@pyserve.deployment
def Blog():
    return 1
"""


def _touch(file: Path) -> None:
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))


def test_two_folders_with_modules_of_one_name_are_refused(project: Project) -> None:
    other = project.folder / "other"
    other.mkdir()
    (other / f"{project.prefix}_shop.py").write_text("")

    refused = project.refusal(
        {"import_path": SHOP, "name": "a", "route_prefix": "/a"},
        {"import_path": SHOP, "name": "b", "runtime_env": {"working_dir": str(other)}},
    )

    assert "give them different names" in str(refused)


def test_the_search_path_is_the_same_for_each_application(project: Project) -> None:
    found = project.load(
        {"import_path": SHOP, "name": "a", "route_prefix": "/a"},
        {"import_path": "{p}_blog:Blog", "name": "b"},
    )
    first, second = (each.packed.deployments[0].code.sys_path for each in found)

    assert first == second
    assert str(project.folder) == first[0]


def test_an_import_path_stands_for_a_file_with_it() -> None:
    found = file_of(Asked(target="shop:app", arguments=["size=3"], name="shop", route_prefix=""))

    assert {
        "applications": [
            {"name": "shop", "route_prefix": None, "import_path": "shop:app", "args": {"size": 3}}
        ]
    } == found.values


@pytest.mark.parametrize(
    "given",
    [
        {"arguments": ("a=1",)},
        {"name": "x"},
        {"route_prefix": "/x"},
        {"runtime_env": {"working_dir": "/srv"}},
    ],
)
def test_a_file_says_by_itself_what_options_say(given: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match=r"write it in serve\.yaml"):
        file_of(Asked(target="serve.yaml", **given))


def test_a_target_that_its_class_cannot_have_is_told_with_its_place(project: Project) -> None:
    config = {"max_replicas": 2, "target_time_per_value_s": 0.1}
    front = {"name": "Front", "autoscaling_config": config}
    cart = {"name": "Cart", "num_replicas": 1}
    refused = project.refusal({"name": "a", "import_path": SHOP, "deployments": [cart, front]})

    place, _, said = str(refused).partition(": ")
    text = json.dumps(
        {"applications": [{"name": "a", "import_path": SHOP, "deployments": [cart, front]}]},
        indent=1,
    )
    lines = text.splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "target_time_per_value_s" in line)
    assert f"serve.yaml:{number}:{1 + lines[number - 1].index(chr(34))}" == place
    assert "deployment 'Front' has autoscaling_config.target_time_per_value_s" in said
    assert "@pyserve.continuous" in said


def test_what_was_not_written_has_no_lines() -> None:
    with pytest.raises(CommandFailed) as refused:
        load_file(file_of(Asked(target="nowhere_at_all:app")))

    assert str(refused.value).startswith("nowhere_at_all:app: application 'default': there is no")


def test_functions_of_the_ingress_are_looked_for_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An installed command does not have the working directory on its path by itself."""
    (tmp_path / "stubs_of_a_file.py").write_text("def add_it_to_server(servicer, server): ...\n")
    functions = ["stubs_of_a_file.add_it_to_server"]
    content = {"grpc_options": {"grpc_servicer_functions": functions}, "applications": []}
    (tmp_path / "serve.yaml").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    found = ingress_options(file_of(Asked(target="serve.yaml")))

    assert found.grpc is not None
    assert functions == list(found.grpc.grpc_servicer_functions)
    assert str(tmp_path) not in sys.path


def test_a_prefix_at_its_older_place_is_told_once(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    (found,) = project.load(
        {"import_path": SHOP, "deployments": [{"name": "Front", "route_prefix": "/shop"}]}
    )

    assert "/shop" == found.route_prefix
    (line,) = (text for each in caplog.records if "route_prefix" in (text := each.getMessage()))
    assert line.startswith("application 'default': route_prefix of deployment 'Front' is the app")
    assert line.endswith("write it beside import_path; it has '/shop' now")
