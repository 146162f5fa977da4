"""Dashboard and alerts ask for metrics and labels that there are, in expressions that hold."""

from __future__ import annotations

import re

import pytest
import yaml

from pyserve.observe.metrics.catalogue import METRICS
from tests.mesh.metrics.expressions import (
    DEPLOY,
    alerts,
    dashboard,
    metric_of,
    names_in,
    of_dashboard,
)
from tests.support.prometheus import promtool, why_not

_SELECTOR = re.compile(r"\b(pyserve_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_OF_PROMETHEUS = {"le", "instance", "job"}

needs_promtool = pytest.mark.skipif(
    why_not("promtool") is not None, reason=str(why_not("promtool"))
)


@pytest.mark.parity("G-83")
def test_every_name_is_one_of_the_catalogue() -> None:
    asked = [expression for _, expression in of_dashboard()] + [rule["expr"] for rule in alerts()]
    assert len(asked) > 60
    assert set() == {name for expression in asked for name in names_in(expression)} - set(METRICS)


@pytest.mark.parity("G-83")
def test_every_label_is_one_of_its_metric() -> None:
    asked = [expression for _, expression in of_dashboard()] + [rule["expr"] for rule in alerts()]
    for expression in asked:
        for name, selector in _SELECTOR.findall(expression):
            labels = set(_LABEL.findall(selector))
            assert labels <= set(METRICS[metric_of(name)].labels) | _OF_PROMETHEUS, expression


@pytest.mark.parity("S-33")
@pytest.mark.parity("G-83")
def test_the_dashboard_has_a_row_for_each_question() -> None:
    """Also the hit rate of models, which Ray Serve's users look for."""
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert [
        "Is it up",
        "What fails",
        "Where the time is",
        "Which replica is an outlier",
        "Batches",
        "What is loaded",
        "Is scaling doing the right thing",
        "Processes",
    ] == rows
    (hits,) = [expression for title, expression in of_dashboard() if title == "Hits"]
    assert 'result="hit"' in hits
    assert {"pyserve_model_requests_total"} == names_in(hits)


def test_panels_have_places_and_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]


def test_each_alert_says_what_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        assert {"summary", "description"} == rule["annotations"].keys(), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.external
@needs_promtool
@pytest.mark.parity("G-83")
def test_promtool_takes_every_expression(tmp_path) -> None:
    promtool("check", "rules", str(DEPLOY / "alerts.yml"))
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, expression) in enumerate(of_dashboard())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


@pytest.mark.external
@needs_promtool
@pytest.mark.parity("S-35")
def test_alerts_are_set_off_by_what_they_are_about() -> None:
    promtool("test", "rules", str(DEPLOY / "alerts.test.yml"))
    tested = yaml.safe_load((DEPLOY / "alerts.test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {
        each["alertname"]
        for test in tested
        for each in test["alert_rule_test"]
        if each.get("exp_alerts")
    }
    assert {"PyserveModelsThrash", "PyserveOddReplica", "PyserveCallsFail"} <= fired
