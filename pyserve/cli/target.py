"""From the command line to an application: what a command was given, and how it is loaded.

Given are a path or ``module:attribute`` with ``key=value``, and what Ray Serve's commands take too.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

import click

from pyserve.api.code import import_attribute
from pyserve.api.deployment import Application, Deployment
from pyserve.cli.commands import CommandFailed
from pyserve.cli.proto import missing_stubs
from pyserve.config.runtime_env import options_of_runtime_env
from pyserve.config.validation import check_mapping
from pyserve.errors import ImportPathError, PyserveError
from pyserve.observe.failures import describe, format_from_user_code
from pyserve.signatures import read_signature


def load_application(
    path: str, arguments: Mapping[str, object], folder: Path | None = None
) -> Application:
    """Import ``module:attribute`` and make an application of it.

    An ``Application`` is taken as it is, a ``Deployment`` is bound to the arguments, a function
    is called: without an argument, or with the arguments as a dict or as the pydantic model
    that its parameter is annotated with.

    Args:
        path: What to import; ``package.module.attribute`` is understood too.
        arguments: For a deployment or a function.
        folder: Where modules are looked for first; None: the working directory.

    Raises:
        CommandFailed: It cannot be imported, or raises, or is something else.
        click.UsageError: Arguments are given to what takes none.
    """
    written, path = path, _with_colon(path)
    first = str(folder or Path.cwd())
    if sys.path[:1] != [first]:
        sys.path.insert(0, first)
    try:
        found = import_attribute(path)
    except ImportPathError as error:
        if path != written and _is_module(written):
            text = f"{written!r} is a module; write module:attribute, e.g. {written}:app"
            raise CommandFailed(text) from error
        raise CommandFailed(str(error)) from error
    except Exception as error:
        raise _user_code_failed(f"importing {path.partition(':')[0]} failed", error) from error
    if isinstance(found, Application):
        if arguments:
            raise click.UsageError(
                f"{path} is bound already, so it takes no {next(iter(arguments))}=...; name the "
                f"deployment or a function instead"
            )
        return found
    if isinstance(found, Deployment):
        return _bind(found, arguments, path)
    if callable(found) and not inspect.isclass(found):
        return _application_of(_call(found, arguments, path), path)
    if not isinstance(found, Application):
        raise CommandFailed(
            f"{path} is {found!r}; name an application (what .bind() returns), a deployment, or "
            f"a function that returns an application"
        )
    return found


def _with_colon(path: str) -> str:
    """Return ``module:attribute`` of what has dots alone; what is none stays as it is."""
    module, dot, attribute = path.rpartition(".")
    is_dotted = dot and ":" not in path and "/" not in path and attribute != "py"
    return f"{module}:{attribute}" if is_dotted else path


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # What would hold it is none, or no package.
        return False


def _application_of(returned: object, path: str) -> Application:
    if isinstance(returned, Deployment):
        raise CommandFailed(
            f"{path} returned a deployment; return {returned.name}.bind(...) instead"
        )
    if not isinstance(returned, Application):
        raise CommandFailed(
            f"{path} was called and returned {returned!r}, which is no application; return what "
            f".bind(...) returns, or write @pyserve.deployment above it if it handles requests"
        )
    return returned


def parse_arguments(pairs: Sequence[str]) -> dict[str, object]:
    """Read ``key=value`` pairs; a value that is JSON is read as such, any other is text.

    Raises:
        click.UsageError: A pair has no ``=``.
    """
    arguments: dict[str, object] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{pair!r} is no argument; write key=value")
        try:
            arguments[key] = json.loads(value)
        except json.JSONDecodeError:
            arguments[key] = value
    return arguments


def _bind(deployment: Deployment[Any], arguments: Mapping[str, object], path: str) -> Application:
    try:
        return deployment.bind(**arguments)
    except TypeError as error:
        raise click.UsageError(f"{path}: {error}") from error


def _call(function: Callable[..., object], arguments: Mapping[str, object], path: str) -> object:
    if inspect.iscoroutinefunction(function):
        raise CommandFailed(f"{path} is `async def`; write `def`, no event loop runs here")
    parameters = list(read_signature(function).parameters.values())
    if len(parameters) > 1:
        raise CommandFailed(
            f"{path} takes {len(parameters)} parameters; a function that makes an application "
            f"takes none, or one with all arguments (a dict or a pydantic model)"
        )
    if not parameters and arguments:
        raise click.UsageError(f"{path} takes no arguments, but {', '.join(arguments)} is given")
    given = [] if not parameters else _given(function, parameters[0], arguments, path)
    try:
        return function(*given)
    except PyserveError as error:
        raise CommandFailed(str(error), format_from_user_code(error)) from error
    except Exception as error:
        raise _user_code_failed(f"{path} raised", error) from error


def _given(
    function: Callable[..., object],
    parameter: inspect.Parameter,
    arguments: Mapping[str, object],
    path: str,
) -> list[object]:
    """Return what the function is called with: nothing, a dict, or its pydantic model."""
    if not arguments and parameter.default is not inspect.Parameter.empty:
        return []
    validate = _validator(function, parameter)
    if validate is None:
        return [dict(arguments)]
    try:
        return [validate(dict(arguments))]
    except ValueError as error:  # What pydantic raises is one.
        raise click.UsageError(f"{path}: {error}") from error


def _validator(
    function: Callable[..., object], parameter: inspect.Parameter
) -> Callable[[dict[str, object]], object] | None:
    annotated = function if inspect.isroutine(function) else type(function).__call__
    hint = inspect.get_annotations(annotated, eval_str=True).get(parameter.name)
    # `Settings | None` is Settings where there is something to read.
    for each in (hint, *get_args(hint)):
        found: Callable[[dict[str, object]], object] | None = getattr(each, "model_validate", None)
        if found is not None:
            return found
    return None


def _user_code_failed(what: str, error: Exception) -> CommandFailed:
    from pyserve.installed import explain_stubs

    advice = missing_stubs(error) or explain_stubs(error)
    text = f"{what}: {describe(error)}"
    return CommandFailed(
        f"{text}; {advice}" if advice else text, "" if advice else format_from_user_code(error)
    )


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
