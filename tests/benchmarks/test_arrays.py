"""The benchmark of arrays in messages: its own results, and a short run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.arrays import OUTPUT, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_short_run_measures_every_form(tmp_path: Path) -> None:
    assert 0 == main(["--rounds", "1", "--output", str(tmp_path / "arrays.json")])
    found = json.loads((tmp_path / "arrays.json").read_text(encoding="utf-8"))
    committed = json.loads(OUTPUT.read_text(encoding="utf-8"))
    assert [row["form"] for row in committed["rows"]] == [row["form"] for row in found["rows"]]
    sizes = {row["form"]: row["message_bytes"] for row in found["rows"]}
    assert sizes["bytes"] < sizes["lists in msgpack"] < sizes["lists in JSON"]


def test_the_page_has_the_figures_of_the_results() -> None:
    page = (ROOT / "docs" / "guide" / "arrays.md").read_text(encoding="utf-8")
    for row in json.loads(OUTPUT.read_text(encoding="utf-8"))["rows"]:
        size = f"{row['message_bytes'] / 1024:.0f} KiB"
        assert f"| {size} | {row['encode_ms']:.2f} | {row['decode_ms']:.2f} |" in page
