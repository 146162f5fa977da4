"""The expressions of the dashboard and of the alerts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from pyserve.observe.metrics.catalogue import METRICS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
_VARIABLES = {"$__rate_interval": "5m", "$application": ".*", "$deployment": ".*"}
_NAME = re.compile(r"\bpyserve_\w+")
_SUFFIX = re.compile(r"_(bucket|count|sum)$")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))
    return found


def of_dashboard() -> list[tuple[str, str]]:
    """Return the title of its panel and the expression of each query, with variables filled in."""
    found = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in _VARIABLES.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metric_of(name: str) -> str:
    """Return the metric of a sample's name."""
    base = _SUFFIX.sub("", name)
    return base if base in METRICS and METRICS[base].kind == "histogram" else name


def names_in(expression: str) -> set[str]:
    return {metric_of(name) for name in _NAME.findall(expression)}
