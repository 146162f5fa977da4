"""Merges a user's template into a Kubernetes object, as ``kubectl patch`` would. Pure.

Mappings are merged name by name, also in lists whose elements have a name (the merge keys of
Kubernetes' API reference); other lists, and single values, replace the former value. ``None``
removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


def lay_over(base: object, over: object, name: str = "") -> object:
    """Return ``base`` with ``over`` on top; neither is changed.

    Args:
        base: what is there.
        over: what replaces or completes it.
        name: of the field that holds both.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for field, value in over.items():
            if value is None:
                merged.pop(field, None)
            else:
                merged[field] = lay_over(base.get(field), value, field)
        return merged
    key = _MERGE_KEYS.get(name)
    if key is not None and isinstance(base, list) and isinstance(over, Sequence):
        return _by_key(base, over, key)
    return over


def _by_key(base: Sequence[Mapping[str, object]], over: Sequence[object], key: str) -> list[object]:
    found: dict[object, object] = {each[key]: each for each in base}
    for each in over:
        assert isinstance(each, Mapping), "options are checked when they are made"
        identity = each.get(key)
        found[identity] = lay_over(found.get(identity), each)
    return list(found.values())
