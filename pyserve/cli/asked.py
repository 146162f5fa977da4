"""What a command line says of an application: its path, and what Ray Serve's commands take too."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from pyserve.cli.commands import CommandFailed
from pyserve.config.runtime_env import options_of_runtime_env
from pyserve.config.validation import check_mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The applications that a command was given.

    Attributes:
        target: A file, or the import path of one application.
        arguments: ``key=value`` for an import path.
        name: Of such an application; None: ``default``.
        route_prefix: Of such an application; "": none, None: not given.
        app_dir: Where modules are looked for first; None: see ``folder_of``.
        runtime_env: What the processes of such an application are given.
    """

    target: str
    arguments: Sequence[str] = ()
    name: str | None = None
    route_prefix: str | None = None
    app_dir: str | None = None
    runtime_env: Mapping[str, object] = field(default_factory=dict)


def folder_of(app_dir: str | None, working_dir: object = None) -> Path:
    """Return where modules of an application are looked for first."""
    if app_dir is not None:
        return Path(app_dir).absolute()
    return Path(str(working_dir)).absolute() if working_dir else Path.cwd()


def app_dir_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``app_dir``: a folder that is there, or ``None``."""
    return click.option(
        "-d",
        "--app-dir",
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False),
        help="Where modules are looked for first. [default: the working directory]",
    )(command)


def runtime_env_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``runtime_env``: what three options say together, checked."""

    @click.option(
        "--runtime-env",
        "file",
        metavar="FILE.yaml",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Variables, packages and the folder of an application that is given by its path.",
    )
    @click.option("--runtime-env-json", "text", metavar="JSON", help="The same, written here.")
    @click.option(
        "--working-dir", metavar="FOLDER", help="The folder of it alone, before the other two."
    )
    @functools.wraps(command)
    def with_runtime_env(
        file: Path | None, text: str | None, working_dir: str | None, **others: Any
    ) -> None:
        if file is not None and text is not None:
            raise click.UsageError("--runtime-env and --runtime-env-json say the same; keep one")
        given: dict[str, object] = {}
        if file is not None:
            given = _checked(f"--runtime-env {file}", _read(file))
        elif text is not None:
            given = _checked("--runtime-env-json", _parse(text))
        if working_dir is not None:
            given |= _checked("--working-dir", {"working_dir": working_dir})
        command(runtime_env=given, **others)

    return with_runtime_env


def as_asked(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one ``Asked`` in place of its parts, which options above this one read."""

    @functools.wraps(command)
    def with_asked(**given: Any) -> None:
        parts = {each.name: given.pop(each.name) for each in fields(Asked)}
        command(asked=Asked(**parts), **given)

    return with_asked


def _checked(field_name: str, value: object) -> dict[str, object]:
    given = check_mapping(field_name, value)
    options_of_runtime_env(field_name, given)
    return given


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(
            f"--runtime-env-json is not JSON: {error}; write for example "
            """'{"env_vars": {"NAME": "value"}}'"""
        ) from error


def _read(file: Path) -> object:
    from pyserve.config.files import read_values

    try:
        return read_values(str(file), file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}") from error
