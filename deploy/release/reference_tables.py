"""Writes the tables of ``docs/reference`` that say what the code declares.

A table follows a line ``<!-- make gen: NAME -->``; its rows come from the declarations, everything
around it is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from pyserve.config import ingress, routing
from pyserve.config.options import OPTIONS
from pyserve.observe.metrics.catalogue import METRICS, Metric

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_TABLE = re.compile(
    r"^<!-- make gen: (?P<name>[a-z_ ]+) -->\n\n(?P<rows>(?:\|.*\n)*)", re.MULTILINE
)


def table(*rows: Iterable[str]) -> str:
    """Return a table of Markdown; the first row is its head."""
    head, *others = map(list, rows)
    lines = [head, ["---"] * len(head), *others]
    return "".join(
        f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines
    )


def _deployment_options() -> Iterator[list[str]]:
    yield ["option", "default", "meaning"]
    for name, each in OPTIONS.items():
        if not each.under_process and not each.is_without_effect:
            yield [f"`{name}`", each.default_text(), each.text]


def _launcher_options() -> Iterator[list[str]]:
    yield ["option", "default", "meaning", "`process`"]
    for name, each in OPTIONS.items():
        if each.under_process:
            yield [f"`{name}`", each.default_text(), each.text, each.under_process]


def _idle_options() -> Iterator[list[str]]:
    yield ["option", "default", "why"]
    for name, each in OPTIONS.items():
        if each.is_without_effect:
            yield [f"`{name}`", each.default_text(), each.text]


def _router_options() -> Iterator[list[str]]:
    yield ["name", "default", "values", "meaning"]
    for name, option in routing.OPTIONS.items():
        values = "" if option.check is None else str(option.check)
        default = f'`"{option.default}"`' if name == "policy" else option.default_text()
        yield [f"`{name}`", default, values, option.text]


def _router_variables() -> Iterator[list[str]]:
    yield ["variable", "of Ray Serve", "default", "meaning"]
    for each in routing.VARIABLES.values():
        yield [f"`{each.name}`", f"`{each.alias}`", each.default_text(), each.text]


def _ingress_variables() -> Iterator[list[str]]:
    yield ["variable", "default", "Ray Serve's name", "meaning"]
    for each in ingress.VARIABLES.values():
        alias = each.alias and f"`{each.alias}`"
        yield [f"`{each.name}`", each.default_text(), alias, each.text]


# Metrics by the beginnings of their names, and the labels that the section says all of them have.
_OF_REPLICA = ("application", "deployment", "replica")
_METRICS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ingress": (("pyserve_ingress_",), ()),
    "router": (("pyserve_router_",), ("application", "deployment", "caller", "caller_id")),
    "record": (("pyserve_call_",), ("caller", "caller_id")),
    "replica": (("pyserve_replica_",), _OF_REPLICA),
    "batch": (("pyserve_batch",), _OF_REPLICA),
    "step": (("pyserve_step",), _OF_REPLICA),
    "model": (("pyserve_model",), _OF_REPLICA),
    "autoscaling": (("pyserve_autoscaling_",), ("application", "deployment")),
    "controller": (
        (
            "pyserve_deployment_",
            "pyserve_application_",
            "pyserve_ingress_status",
            "pyserve_controller_",
        ),
        (),
    ),
    "process": (
        (
            "pyserve_info",
            "pyserve_process_",
            "pyserve_user_",
            "pyserve_certificate_",
            "pyserve_scrape_",
        ),
        ("role", "pid", *_OF_REPLICA),
    ),
}


def _metrics(section: str) -> Iterator[list[str]]:
    common = _METRICS[section][1]
    yield ["metric", "kind", "labels", "says", "Ray Serve", "OpenTelemetry and gRPC"]
    for each in METRICS.values():
        if _section_of(each) == section:
            has_common = each.labels[:1] == common[:1]
            own = [name for name in each.labels if not (has_common and name in common)]
            labels = ", ".join(f"`{name}`" for name in own)
            yield [f"`{each.name}`", each.kind, labels, _says(each), each.ray, each.otel]


def _section_of(metric: Metric) -> str:
    """Return the section with the longest beginning of its name."""
    begins = (
        (len(begin), name)
        for name, (all_, _) in _METRICS.items()
        for begin in all_
        if metric.name.startswith(begin)
    )
    return max(begins)[1]


def _says(metric: Metric) -> str:
    text = metric.text.removesuffix(".")
    return text if text[1].isupper() else text[0].lower() + text[1:]


TABLES: Mapping[str, Callable[[], Iterable[Iterable[str]]]] = {
    "deployment options": _deployment_options,
    "options of launchers": _launcher_options,
    "options without an effect": _idle_options,
    "ingress variables": _ingress_variables,
    "router options": _router_options,
    "router variables": _router_variables,
} | {f"{name} metrics": partial(_metrics, name) for name in _METRICS}


def page(text: str) -> str:
    """Return a page with its tables as the code has them now."""
    return _TABLE.sub(
        lambda found: f"<!-- make gen: {found['name']} -->\n\n{table(*TABLES[found['name']]())}",
        text,
    )


def main() -> None:
    """Write the tables of all pages."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
