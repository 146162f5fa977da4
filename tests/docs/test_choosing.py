"""The page that compares says what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_hour.systems import SYSTEMS
from benchmarks.first_hour.tables import not_first, render

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guide" / "choosing.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| .+? \| (.+?) \| \[(\w+)\.json\].* \|$", PAGE, re.MULTILINE)
# Which ratios a row has, in its order: those of a workload or match, by name.
RATIOS = {
    "unary gRPC, 100 bytes, 64 in flight": ("unary_64", "cpu_us_per_request"),
    "streams of 100 messages": ("stream_100", "messages_per_cpu_s"),
    "unary gRPC, one in flight": ("unary_1", "p50_ms", "rss_mib"),
    "1 MiB each way, unary gRPC": ("echo_1mib", "mb_per_s", "rss_mib"),
    "1 MiB each way over HTTP, bare ASGI": ("bytes", "mb_per_s", "rss_mib"),
    "JSON over HTTP, plain Python": ("json", "requests_per_s", "rss_mib"),
    "JSON over HTTP, FastAPI in a replica": ("fastapi", "requests_per_s", "rss_mib"),
}
ON_RAY = {
    "unary gRPC on a Ray cluster, 64 in flight": "unary_per_cpu_s",
    "calls of handles on a Ray cluster, 100 at once": "handle_calls_per_cpu_s",
}
STEPS = "requests of 1 to 100 steps, batched continuously, as events over HTTP"


def results(name: str) -> dict[str, Any]:
    text = (ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_tables_of_the_first_hour_are_those_of_the_results():
    assert render(results("first_hour")["systems"]) in PAGE


def test_where_pyserve_is_not_first_the_page_says_why():
    reasons = PAGE.partition("### Where pyserve is not first\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^- \*(.+?)\*: \w", reasons, re.MULTILINE)
    assert sorted(not_first("pyserve", results("first_hour")["systems"])) == sorted(explained)


def test_the_versions_are_those_that_are_installed():
    measured = {name: found["version"] for name, found in results("first_hour")["systems"].items()}
    pinned = {each.name: each.requirement.partition("==")[2] for each in SYSTEMS}
    del measured["pyserve"], pinned["pyserve"]
    assert measured == pinned


def test_every_row_is_compared_with_its_results():
    film = "a film in three stages, chunk by chunk"
    assert {*RATIOS, *ON_RAY, STEPS, film} == {work for work, *_ in ROWS}


@pytest.mark.parametrize(("work", "shown", "file"), ROWS, ids=[work for work, *_ in ROWS])
def test_a_figure_is_the_measured_one(work: str, shown: str, file: str):
    figures = re.findall(r"([\d.]+) ×", shown)
    if work in ON_RAY:
        measured = [results(file)["figures"][ON_RAY[work]]["ratio"]["median"]]
    elif work == STEPS:
        ratios = results(file)["ratios"]
        of = "100 x, share {}, over litserve".format
        measured = [ratios[of(0.0)]["per_s"], ratios[of(0.5)]["p99"]]
    elif work not in RATIOS:
        measured = [results(file)["ratio"]]
    else:
        name, *metrics = RATIOS[work]
        report = results(file)
        (match,) = [
            each for each in report.get("workloads") or report["matches"] if each["name"] == name
        ]
        measured = [match["ratios"][metric]["median"] for metric in metrics]
    assert len(figures) == len(measured)
    for figure, ratio in zip(figures, measured, strict=True):
        digits = len(figure.partition(".")[2])
        assert float(figure) == round(ratio, digits)
