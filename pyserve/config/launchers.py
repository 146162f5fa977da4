"""The options that say what starts replicas, and what a user writes of pods."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from pyserve.config.parts import check_names
from pyserve.config.validation import (
    check_import_path,
    check_json,
    check_mapping,
    check_text,
    check_text_mapping,
    refuse,
)
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


# What a user writes of pods: a fragment of Kubernetes' `PodTemplateSpec`, by Kubernetes' names.
#
# What each field means is the cluster's to check. Here is checked what has to be so that the
# fragment can be laid over what pyserve makes: mappings and lists where Kubernetes has them.

# The container that the replica runs in; others are the user's own.
REPLICA_CONTAINER = "replica"
_CONTAINERS = ("containers", "initContainers")
_WITH_A_NAME = "a list of mappings, each with a 'name'"


def check_pod_template(field: str, value: object) -> dict[str, object]:
    """Return a fragment of a pod's template.

    Raises:
        OptionError: it has another shape; the text says where.
    """
    given = check_mapping(field, value)
    check_json(field, given)
    check_names(field, given, ("metadata", "spec"))
    metadata = check_mapping(f"{field}.metadata", given.get("metadata") or {})
    check_names(f"{field}.metadata", metadata, ("labels", "annotations"))
    for name, texts in metadata.items():
        check_text_mapping(f"{field}.metadata.{name}", texts)
    spec = check_mapping(f"{field}.spec", given.get("spec") or {})
    for name in (*_CONTAINERS, "volumes"):
        _named(f"{field}.spec.{name}", spec.get(name))
    for name in _CONTAINERS:
        for container in _named(f"{field}.spec.{name}", spec.get(name)):
            for part in ("env", "volumeMounts"):
                place = f"{field}.spec.{name}[{container['name']!r}].{part}"
                _mappings(place, container.get(part))
    return given


def _named(field: str, value: object) -> Sequence[Mapping[str, object]]:
    found = _mappings(field, value, _WITH_A_NAME)
    for each in found:
        check_text(f"{field}[].name", each.get("name"), _WITH_A_NAME)
    return found


def _mappings(
    field: str, value: object, what: str = "a list of mappings"
) -> Sequence[Mapping[str, object]]:
    is_fit = isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value)
    if value is not None and not is_fit:
        raise refuse(field, value, what)
    return cast("Sequence[Mapping[str, object]]", value or ())
