"""What a user writes of pods: a fragment of Kubernetes' ``PodTemplateSpec``, by Kubernetes' names.

What each field means is the cluster's to check. Here is checked what has to be so that the fragment
can be laid over what pyserve makes: mappings and lists where Kubernetes has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pyserve.config.parts import check_names
from pyserve.config.validation import (
    check_json,
    check_mapping,
    check_text,
    check_text_mapping,
    refuse,
)

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
