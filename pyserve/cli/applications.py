"""From a file, or an import path, to the applications that the mesh is asked to run.

User code is imported here, in the order of the file, before anything is sent: one application
that cannot be loaded changes nothing.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.machinery
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyserve.api.graph import PackedApplication, pack
from pyserve.api.modules import digest, imports_of, modules_of, own_modules
from pyserve.api.step_targets import StepTargetRefused
from pyserve.cli.commands import CommandFailed
from pyserve.cli.target import Asked, folder_of, load_application, parse_arguments
from pyserve.config import AutoscalingPolicy, DeploymentOptions, LoggingConfig, check_name
from pyserve.config.runtime_env import check_directory, options_of_runtime_env
from pyserve.config.unneeded import PAGE, lines_on_written
from pyserve.config.validation import check_import_path, check_text_mapping
from pyserve.driver.client import Declared, apply_request
from pyserve.driver.ingress_options import IngressOptions
from pyserve.errors import PyserveError
from pyserve.types import ApplicationName, DeploymentName

if TYPE_CHECKING:
    from pyserve.api.graph import Adjust
    from pyserve.config.files import MeshFile
    from pyserve.config.schema import ServeApplicationSchema
    from pyserve.wire.v1 import control_pb2

_LOGGER = logging.getLogger(__name__)
_FILE_ENDINGS = (".yaml", ".yml", ".json")


def is_file(target: str) -> bool:
    """Say whether a command was given a file, or ``-`` for its standard input."""
    return target == "-" or target.endswith(_FILE_ENDINGS) or Path(target).is_file()


def read_file(target: str) -> MeshFile:
    """Read a file, or the standard input.

    Raises:
        CommandFailed: It cannot be read, or says what it cannot.
        click.UsageError: There is no such file.
    """
    from pyserve.config.files import MeshFile

    try:
        if target == "-":
            return MeshFile.of_bytes("<stdin>", sys.stdin.buffer.read())
        path = Path(target)
        if not path.exists():
            raise click.UsageError(f"there is no file {target!r}")
        return MeshFile.read(path)
    except PyserveError as error:
        raise CommandFailed(str(error)) from error


def file_of(asked: Asked) -> MeshFile:
    """Return what a command was given: a file, or the file that an import path stands for.

    Raises:
        CommandFailed: As of ``read_file``.
        click.UsageError: Options are given that a file says itself.
    """
    if is_file(asked.target):
        given = [
            *(["--name"] if asked.name is not None else []),
            *(["--route-prefix"] if asked.route_prefix is not None else []),
            *(["runtime_env"] if asked.runtime_env else []),
            *asked.arguments[:1],
        ]
        if given:
            raise click.UsageError(
                f"{' and '.join(given)}: write it in {asked.target}, which says it"
            )
        return read_file(asked.target)
    from pyserve.config.files import MeshFile

    application = {
        "name": check_name("--name", asked.name or "default"),
        "route_prefix": "/" if asked.route_prefix is None else asked.route_prefix or None,
        "import_path": asked.target,
        "args": parse_arguments(asked.arguments),
        **({"runtime_env": dict(asked.runtime_env)} if asked.runtime_env else {}),
    }
    try:
        return MeshFile(asked.target, json.dumps({"applications": [application]}), has_places=False)
    except PyserveError as error:
        raise CommandFailed(str(error)) from error


def pack_target(asked: Asked) -> PackedApplication:
    """Import the application that an import path names; its folder stays first on the path.

    Raises:
        CommandFailed: It cannot be loaded.
        click.UsageError: Arguments are given to what takes none.
    """
    environment = options_of_runtime_env("runtime_env", asked.runtime_env)
    _warn_of_rests("the application", asked.runtime_env)
    folder = folder_of(asked.app_dir, environment.get("working_dir"))
    found = load_application(asked.target, parse_arguments(asked.arguments), folder)
    name = ApplicationName(check_name("--name", asked.name or "default"))
    return pack(found, name, adjust=_adjust({}, environment))


def ingress_options(file: MeshFile, app_dir: str | None = None) -> IngressOptions:
    """Return what a file says of the ingress; its functions may lie in a folder of their own.

    Raises:
        CommandFailed: It cannot be used here.
    """
    content = file.content
    given = content.model_fields_set
    try:
        # As modules of applications are; a command that was installed has its own folder there.
        with _first_on_path(folder_of(app_dir)):
            return IngressOptions.of(
                content.http_options.written() if "http_options" in given else None,
                content.grpc_options.written() if "grpc_options" in given else None,
                content.proxy_location if "proxy_location" in given else None,
                content.tracing_config,
                content.launcher,
            )
    except PyserveError as error:
        raise CommandFailed(f"{file.name}: {error}") from error


def load_request(file: MeshFile, app_dir: str | None = None) -> control_pb2.ApplyRequest:
    """Return what a file asks of a mesh.

    Args:
        file: The file.
        app_dir: Where modules are looked for first; None: where the file says.

    Raises:
        CommandFailed: As of ``load_file``.
    """
    return apply_request(load_file(file, app_dir), file.content.target_capacity)


def load_file(file: MeshFile, app_dir: str | None = None) -> list[Declared]:
    """Import and check every application of a file, in its order.

    Raises:
        CommandFailed: One of them cannot be loaded; the text has its place in the file.
    """
    packed = []
    for at, application in enumerate(file.content.applications):
        try:
            packed.append(_load(application, file.content.logging_config, app_dir))
        except click.UsageError as error:
            raise _failed(file, at, application, error.message) from error
        except CommandFailed as error:
            raise _failed(file, at, application, str(error), error.traceback) from error
        except StepTargetRefused as error:
            place = _place_of_target(file, at, application, error)
            raise _failed(file, at, application, str(error), place=place) from error
        except PyserveError as error:
            raise _failed(file, at, application, str(error)) from error
        _check_overrides(file, at, application, packed[-1])
    logs = file.values.get("logging_config")
    shared = {} if logs is None else {"logging_config": logs}
    written = [
        {"name": application.name, **shared, **values}
        for application, values in zip(
            file.content.applications, file.values["applications"], strict=True
        )
    ]
    return [
        Declared(
            packed=each,
            route_prefix=application.route_prefix,
            declaration_json=json.dumps(values),
        )
        for each, application, values in zip(
            _with_own_fingerprints(packed, file), file.content.applications, written, strict=True
        )
    ]


def _load(
    application: ServeApplicationSchema, logs: LoggingConfig | None, app_dir: str | None
) -> PackedApplication:
    environment = options_of_runtime_env("runtime_env", application.runtime_env)
    _warn_of_rests(f"application {application.name!r}", application.runtime_env)
    for line in application.moved:
        _LOGGER.warning("application %r: %s", application.name, line)
    if "working_dir" in environment:
        check_directory("runtime_env.working_dir", environment["working_dir"])
    folder = folder_of(app_dir, environment.get("working_dir"))
    path = check_import_path("import_path", application.import_path)
    with _first_on_path(folder):
        _check_module(path.partition(":")[0], folder)
        found = load_application(path, application.args, folder)
        packed = pack(
            found,
            ApplicationName(application.name),
            application.logging_config or logs,
            _adjust({each.name: each.options() for each in application.deployments}, environment),
        )
    return replace(
        packed,
        external_scaler_enabled=application.external_scaler_enabled,
        autoscaling_policy_json=_policy(application.autoscaling_policy),
    )


def _warn_of_rests(whose: str, runtime_env: Mapping[str, object]) -> None:
    for line in lines_on_written({"runtime_env": runtime_env}):
        _LOGGER.warning("%s: %s; see %s", whose, line, PAGE)


def _policy(written: dict[str, Any] | None) -> str:
    """Return who decides how many replicas the whole application has, as it travels."""
    if written is None:
        return ""
    return json.dumps(asdict(AutoscalingPolicy.of("autoscaling_policy", written)))


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Let modules be found in a folder; each application has its own, whatever came before it."""
    former = list(sys.path)
    sys.path[:] = dict.fromkeys([str(folder), *former])
    try:
        yield
    finally:
        sys.path[:] = former


def _check_module(name: str, folder: Path) -> None:
    """Refuse a module of a folder whose name another folder's module has in this process."""
    top = name.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    found = importlib.machinery.PathFinder.find_spec(top, [str(folder)])
    if loaded and found is not None and found.origin and found.origin != loaded:
        raise CommandFailed(
            f"{folder} has a module {top!r}, and so has another application: {loaded}; give "
            f"them different names, or deploy them to meshes of their own"
        )


def _adjust(written: Mapping[str, dict[str, Any]], environment: Mapping[str, object]) -> Adjust:
    overrides = {name: _override(options) for name, options in written.items()}

    def adjust(name: DeploymentName, options: DeploymentOptions) -> DeploymentOptions:
        options = options.updated(overrides.get(name, {}))
        shared: dict[str, object] = {
            key: environment[key]
            for key in ("working_dir", "pip")
            if key in environment and not getattr(options, key)
        }
        if "env_vars" in environment:
            of_all = check_text_mapping("runtime_env.env_vars", environment["env_vars"])
            shared["env_vars"] = {**of_all, **options.env_vars}
        return options.updated(shared) if shared else options

    return adjust


def _override(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that replace those in the code, also where they exclude each other."""
    given = {name: value for name, value in options.items() if name != "name"}
    if given.get("num_replicas", 1) is None:
        del given["num_replicas"]
    if isinstance(given.get("num_replicas"), int):
        given.setdefault("autoscaling_config", None)
    elif given.get("autoscaling_config") is not None:
        given.setdefault("num_replicas", 1)
    return given


def _check_overrides(
    file: MeshFile, at: int, application: ServeApplicationSchema, packed: PackedApplication
) -> None:
    names = [each.name for each in packed.deployments]
    for number, each in enumerate(application.deployments):
        if each.name not in names:
            near = difflib.get_close_matches(each.name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(names)}"
            place = file.place(("applications", at, "deployments", number, "name"))
            raise CommandFailed(
                f"{place}: application {application.name!r} has no deployment {each.name!r}; {hint}"
            )


def _with_own_fingerprints(
    packed: Sequence[PackedApplication], file: MeshFile
) -> list[PackedApplication]:
    """Let each application be told apart by the source files that it rests upon itself."""
    modules = own_modules()
    imports = imports_of(modules)
    reached = []
    for each, application in zip(packed, file.content.applications, strict=True):
        roots = {check_import_path("import_path", application.import_path).partition(":")[0]}
        roots |= {item.code.import_path.partition(":")[0] for item in each.deployments}
        reached.append(modules_of(roots, imports))
    nobodys = modules.keys() - set[str]().union(*reached)
    found = []
    for each, names in zip(packed, reached, strict=True):
        mark = digest((name, modules[name]) for name in names | nobodys)
        deployments = tuple(
            replace(item, code=replace(item.code, fingerprint=mark)) for item in each.deployments
        )
        found.append(replace(each, deployments=deployments))
    return found


def _place_of_target(
    file: MeshFile, at: int, application: ServeApplicationSchema, refused: StepTargetRefused
) -> str:
    """Return where a target is written; "": in the code."""
    for number, each in enumerate(application.deployments):
        config = each.options().get("autoscaling_config")
        if each.name == refused.deployment and refused.option in (config or {}):
            way = ("deployments", number, "autoscaling_config", refused.option)
            return file.place(("applications", at, *way))
    return ""


def _failed(
    file: MeshFile,
    at: int,
    application: ServeApplicationSchema,
    text: str,
    traceback: str = "",
    place: str = "",
) -> CommandFailed:
    place = place or file.place(("applications", at, "import_path"))
    return CommandFailed(f"{place}: application {application.name!r}: {text}", traceback)
