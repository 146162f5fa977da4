"""The option that says what starts replicas, as written and as passed to the controller."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.config.validation import check_import_path, check_json, check_mapping, refuse
from pyserve.errors import OptionError

PROCESS = "process"
VARIABLE = "PYSERVE_LAUNCHER"
OPTIONS_VARIABLE = "PYSERVE_LAUNCHER_OPTIONS"
_NAME = re.compile(r"[a-z][a-z0-9_-]*\Z")


@dataclass(frozen=True, kw_only=True)
class LauncherConfig:
    """Which launcher a mesh has.

    Attributes:
        name: of one that pyserve has, or where one of the user's own is, ``module:attribute``.
        options: what it is told besides; what JSON can carry.

    Raises:
        OptionError: the name can be neither, or an option cannot travel.
    """

    name: str = PROCESS
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise refuse("launcher", name, "the name of a launcher, or module:attribute")
        if not _NAME.match(name):
            check_import_path("launcher", name)
        check_json("launcher", check_mapping("launcher", self.options))

    @classmethod
    def read(cls, value: object) -> LauncherConfig:
        """Read what a user wrote: a name, or a mapping with ``name`` and the options."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(name=value)
        given = check_mapping("launcher", value)
        if "name" not in given:
            raise OptionError("launcher has no 'name'; write which one, such as name: process")
        return cls(name=given.pop("name"), options=given)  # type: ignore[arg-type]  # checked above

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass this option to a new mesh."""
        options = json.dumps(self.options, sort_keys=True) if self.options else ""
        return {VARIABLE: self.name, OPTIONS_VARIABLE: options}


def read_launcher(variables: Mapping[str, str]) -> LauncherConfig:
    """Read what ``environment`` gave.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    text = variables.get(OPTIONS_VARIABLE, "")
    try:
        options = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise refuse(OPTIONS_VARIABLE, text, f"JSON ({error})") from error
    return LauncherConfig(
        name=variables.get(VARIABLE) or PROCESS, options=check_mapping(OPTIONS_VARIABLE, options)
    )
