"""``pyserve build``: from import paths to the file that ``pyserve deploy`` takes."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import click

from pyserve.api.graph import PackedDeployment, pack
from pyserve.cli.commands import CommandFailed
from pyserve.cli.target import app_dir_option, folder_of, load_application
from pyserve.config import DeploymentOptions
from pyserve.driver.ingress_options import IngressOptions
from pyserve.types import ApplicationName
from pyserve.version import version

_SCHEMA_HINT = (
    "# `pyserve build --schema` writes a JSON Schema, which editors check this file with."
)


@click.command(short_help="Write the file of applications.")
@click.argument("targets", nargs=-1, metavar="MODULE:ATTRIBUTE...")
@click.option(
    "-o",
    "--output-path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file. [default: standard output]",
)
@app_dir_option
@click.option(
    "--grpc-servicer-functions",
    "functions",
    multiple=True,
    metavar="MODULE.FUNCTION",
    help="Generated function for the file's grpc_options; may be repeated.",
)
@click.option("--schema", is_flag=True, help="Write the JSON Schema of such files instead.")
def build(
    targets: tuple[str, ...],
    output_path: Path | None,
    app_dir: str | None,
    functions: tuple[str, ...],
    schema: bool,
) -> None:
    """Write a file that `pyserve deploy` takes, with all deployments of the applications.

    Each has the options in which it differs from the defaults, for changes without the code.
    """
    if schema == bool(targets):
        raise click.UsageError("give either import paths of applications, or --schema")
    text = _schema() if schema else _file(targets, folder_of(app_dir), functions)
    if output_path is None:
        click.echo(text, nl=False)
        return
    try:
        output_path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{output_path} cannot be written: {error.strerror}") from error


def _schema() -> str:
    from pyserve.config.schema import json_schema

    return json.dumps(json_schema(), indent=2) + "\n"


def _file(targets: tuple[str, ...], folder: Path, functions: tuple[str, ...]) -> str:
    from pyserve.config.files import dump

    names = [f"app{number}" for number in range(1, len(targets) + 1)]
    applications = [
        {
            "name": name,
            "route_prefix": "/" if len(targets) == 1 else f"/{name}",
            "import_path": target,
            "deployments": [_deployment(each) for each in _deployments(target, name, folder)],
        }
        for name, target in zip(names, targets, strict=True)
    ]
    head = f"# Written by `pyserve build`, pyserve {version()}.\n{_SCHEMA_HINT}\n"
    content: dict[str, Any] = {"applications": applications}
    if functions:
        # Now that modules have been looked for in the folder, these are found there too.
        IngressOptions.of(None, {"grpc_servicer_functions": functions}, None)
        content = {"grpc_options": {"grpc_servicer_functions": list(functions)}, **content}
    return head + dump(content)


def _deployments(target: str, name: str, folder: Path) -> tuple[PackedDeployment, ...]:
    return pack(load_application(target, {}, folder), ApplicationName(name)).deployments


def _deployment(packed: PackedDeployment) -> dict[str, Any]:
    default = DeploymentOptions()
    changed = {
        item.name: value
        for item in fields(DeploymentOptions)
        if item.name not in ("name", "interceptors", "deployment_actors")
        and (value := getattr(packed.options, item.name)) != getattr(default, item.name)
    }
    # The limit that acts without the option is none to write.
    if changed.get("max_ongoing_requests") == default.ongoing_requests_limit():
        del changed["max_ongoing_requests"]
    return {"name": str(packed.name), **{key: _plain(value) for key, value in changed.items()}}


def _plain(value: object) -> object:
    """Return what YAML can hold; of a part, what differs from its defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        given = asdict(value)
        default = asdict(type(value)())
        value = {key: item for key, item in given.items() if item != default[key]}
    return json.loads(json.dumps(value))
