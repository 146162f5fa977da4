"""``runtime_env`` as Ray Serve has it, taken apart into the options that a deployment has here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pyserve.config import unneeded
from pyserve.config.parts import check_names
from pyserve.config.validation import check_mapping, check_text, check_text_mapping, refuse
from pyserve.errors import OptionError

_IMAGE = (
    "run the replicas in containers of your own; on Kubernetes pod_template has the image of each "
    "deployment"
)
_REFUSED = {
    "conda": "name the packages by 'pip', or start the mesh in that environment",
    "py_modules": "put the modules into working_dir, or install them by 'pip'",
    "container": _IMAGE,
    "image_uri": _IMAGE,
    "worker_process_setup_hook": "do it in the constructor",
}
_KNOWN = ("env_vars", "working_dir", "pip", "uv")


def options_of_runtime_env(field: str, value: object) -> dict[str, object]:
    """Return ``env_vars``, ``working_dir`` and ``pip``, as far as ``value`` has them.

    Raises:
        OptionError: It has something that replicas cannot be given.
    """
    given = {
        name: item
        for name, item in unneeded.without(check_mapping(field, value or {})).items()
        if item is not None
    }
    for name in given:
        if name not in _KNOWN:
            why = _REFUSED.get(name, f"known: {', '.join(_KNOWN)}")
            raise OptionError(f"{field}[{name!r}] is not supported: {why}")
    if "uv" in given:
        if "pip" in given:
            raise OptionError(f"{field} has both 'pip' and 'uv', which mean the same; keep one")
        given["pip"] = given.pop("uv")
    return given


def check_environment(field: str, value: object) -> dict[str, str]:
    """Return variables that a process can be started with.

    Raises:
        OptionError: A name or a value is none that the system takes; the text has the name.
    """
    variables = check_text_mapping(field, value)
    for name, content in variables.items():
        if not name or "=" in name or "\0" in name + content:
            raise refuse(f"{field}[{name!r}]", content, "a name without '=', and no NUL in either")
    return variables


def check_directory(field: str, value: object) -> str:
    """Return the whole path of a folder or a zip archive, which need not be on this machine.

    Raises:
        OptionError: It is no path, or an address.
    """
    text = check_text(field, value, "the path of a folder or a .zip file")
    if "\0" in text:
        raise refuse(field, value, "a path without NUL", str)
    if "://" in text:
        raise refuse(field, value, "a path; what lies elsewhere has to be fetched before")
    return str(Path(text).absolute())


def read_requirements(field: str, value: object) -> tuple[str, ...]:
    """Return the lines of requirements that ``pip`` of a ``runtime_env`` stands for.

    Paths in them become whole ones, and files that are included (``-r``) are read.

    Args:
        field: For messages.
        value: A list of them, the path of a file with them, or a mapping with ``packages``.

    Raises:
        OptionError: It is something else, or a file cannot be read.
    """
    if isinstance(value, Mapping):
        given = check_mapping(field, value)
        check_names(field, given, ("packages", "pip_check", "pip_version"))
        return read_requirements(f"{field}['packages']", given.get("packages"))
    if isinstance(value, str):
        return tuple(_lines_of_file(field, Path(value).absolute()))
    if not isinstance(value, list | tuple):
        raise refuse(field, value, "a list of packages, or the path of a file with them", list, str)
    lines = [check_text(field, each, "the name of a package") for each in value]
    return tuple(_whole_path(each, Path.cwd()) for each in lines)


def _lines_of_file(field: str, file: Path) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise refuse(field, str(file), f"a file that can be read ({why})") from error
    for line in text.replace("\\\n", " ").splitlines():
        requirement = line.strip()
        if not requirement or requirement.startswith("#"):
            continue
        option, _, path = requirement.partition(" ")
        if option in ("-r", "--requirement"):
            yield from _lines_of_file(field, file.parent / path.strip())
        elif option in ("-c", "--constraint"):
            yield f"-c {file.parent / path.strip()}"
        else:
            yield _whole_path(requirement, file.parent)


def _whole_path(requirement: str, folder: Path) -> str:
    if not requirement.startswith(("./", "../")) and not requirement.endswith((".whl", ".tar.gz")):
        return requirement
    place = folder / requirement
    return str(place.resolve()) if place.exists() else requirement
