"""Writes ``pyserve/config/deployment_keywords.py``: the options as keywords for type checkers.

They follow from the fields of ``DeploymentOptions``; mappings stand for the objects of parts.
"""

from __future__ import annotations

from pathlib import Path

from pyserve.config.declared import declared
from pyserve.config.deployment import DeclaredOptions
from pyserve.config.options import OLDER_OPTIONS, PARTS

PATH = Path(__file__).resolve().parents[2] / "pyserve" / "config" / "deployment_keywords.py"
_HEAD = '''"""Written by `make gen` from the options of ``deployment``, in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from pyserve.config.logging_config import LoggingConfig
    from pyserve.config.parts import BackpressureConfig, BatchingConfig, Resources
    from pyserve.config.placement import DeploymentActorConfig, GangSchedulingConfig
    from pyserve.config.routing import RequestRouterConfig
    from pyserve.config.scaling import AutoscalingConfig


class DeploymentKeywords(TypedDict, total=False):
    """What ``deployment(...)`` and ``.options(...)`` take; see ``deployment`` for the defaults."""

'''
_OLDER = "    # Older names, see docs/reference/deployment-options.md.\n"


def _keyword(name: str, annotation: str) -> str:
    """Return the type of an option's keyword."""
    option = declared(DeclaredOptions)[name]
    if option.keyword:
        return option.keyword
    if name in PARTS:
        return f"{annotation.removesuffix(' | None')} | Mapping[str, Any] | None"
    return f"{annotation} | None" if option.none_is_default else annotation


def text() -> str:
    """Return the module."""
    annotations = DeclaredOptions.__annotations__
    lines = [
        f"    {name}: {_keyword(name, each)}\n".replace("'", '"')
        for name, each in annotations.items()
    ]
    older = [f"    {name}: {each}\n" for name, each in OLDER_OPTIONS.items()]
    return "".join([_HEAD, *lines, _OLDER, *older])


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
