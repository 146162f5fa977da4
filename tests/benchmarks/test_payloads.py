"""The benchmark of payloads: what it says of a table, its own results, and a short run."""

import json
from pathlib import Path

import pytest

from benchmarks.payloads import CODECS, MIB, OUTPUT, Row, crossovers, main

KIB = 1024


def row(codec: str, size: int, inline_us: float, reference_us: float) -> Row:
    return Row(codec, size, size, 1.0, 1.0, inline_us, reference_us)


def test_a_reference_wins_from_a_size_on_only_if_it_wins_at_every_larger_one():
    rows = [
        row("raw", KIB, 10, 5),
        row("raw", 2 * KIB, 10, 20),
        row("raw", 3 * KIB, 10, 9),
        row("raw", 4 * KIB, 10, 9),
        row("json", KIB, 10, 11),
    ]
    assert {"raw": 3 * KIB, "json": None} == crossovers(rows)
    assert {"raw": 3 * KIB, "json": None} == crossovers(rows[::-1])


def test_rates_follow_from_the_medians():
    fields = row("raw", MIB, 2.0, 4.0).as_json()
    assert MIB / 2.0 == pytest.approx(fields["inline_mb_per_s"])
    assert MIB / 4.0 == pytest.approx(fields["reference_mb_per_s"])
    assert 2.0 == fields["reference_to_inline"]


@pytest.mark.parity("S-80")
def test_the_crossover_was_measured_at_the_sizes_that_matter():
    """By codec, with the machine that it was measured on."""
    document = json.loads(OUTPUT.read_text(encoding="utf-8"))
    measured = {(one["codec"], one["array_bytes"]) for one in document["rows"]}
    for name in CODECS:
        for size in (KIB, 64 * KIB, MIB, 10 * MIB):
            assert (name, size) in measured
    assert {("raw", 100 * MIB), ("pickle", 100 * MIB), ("msgpack", 100 * MIB)} <= measured
    assert set(CODECS) == set(document["reference_is_faster_from_bytes"])
    assert document["machine"]["cpu"]


@pytest.mark.slow
def test_a_short_run_writes_a_table_and_a_document(tmp_path: Path, capsys):
    output = tmp_path / "payloads.json"
    arguments = ["--seconds", "0.01", "--largest", str(64 * KIB), "--only", "pickle"]
    assert 0 == main([*arguments, "--output", str(output)])
    assert "a reference is faster" in capsys.readouterr().out
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert [KIB, 16 * KIB, 64 * KIB] == [one["array_bytes"] for one in rows]
    assert all(one["inline_us"] > 0 and one["reference_us"] > 0 for one in rows)
