"""What ``make fuzz`` reads and reports; no fuzzer runs here."""

import gzip
import json
import tomllib

from benchmarks import fuzz
from benchmarks.fuzz import (
    ARCHIVE,
    CORPUS_FILES_MAX,
    CRATE,
    INPUT_BYTES_MAX,
    SEEDS,
    Run,
    make_report,
    pack,
    spread,
    target_names,
    unpack,
)

LOG = """#8 INITED cov: 10
stat::number_of_executed_units: 1234
stat::average_exec_per_sec:     12
stat::peak_rss_mb:              51
"""


def manifest() -> str:
    return (CRATE / "Cargo.toml").read_text()


def test_every_binary_is_a_target_with_a_corpus_that_is_not_large(tmp_path):
    unpack(tmp_path)
    binaries = [binary["name"] for binary in tomllib.loads(manifest())["bin"]]

    assert binaries == target_names(manifest())
    for name in binaries:
        sizes = [path.stat().st_size for path in (tmp_path / name).iterdir()]
        assert 0 < len(sizes) <= CORPUS_FILES_MAX, name
        # Seeds may be larger than what a fuzzer makes of them.
        assert max(sizes) <= 8 * INPUT_BYTES_MAX, name
    assert {path.name for path in SEEDS.iterdir()} <= set(binaries)


def test_what_is_unpacked_and_packed_again_is_the_same_archive(tmp_path):
    unpack(tmp_path / "kept")
    again = tmp_path / "again.tar.gz"
    pack(tmp_path / "kept", again)

    # Compressed, they may differ from one zlib to the next.
    assert gzip.decompress(ARCHIVE.read_bytes()) == gzip.decompress(again.read_bytes())


def test_a_report_has_what_the_fuzzer_said_and_how_it_ended(tmp_path):
    runs = {"frames": Run(0, 600.04, LOG), "heads": Run(77, 3.0, "")}
    unpack(tmp_path)
    targets = make_report(runs, tmp_path)["targets"]

    assert isinstance(targets, dict)
    assert (
        targets["frames"]
        | {
            "executions": 1234,
            "executions_per_s": 12,
            "seconds": 600.0,
            "peak_rss_mib": 51,
            "crashes": 0,
        }
        == targets["frames"]
    )
    assert (0, 1) == (targets["heads"]["executions"], targets["heads"]["crashes"])


def test_a_corpus_that_is_too_large_keeps_files_of_all_sizes(tmp_path):
    for size in range(3 * CORPUS_FILES_MAX):
        (tmp_path / str(size)).write_bytes(bytes(size))
    kept = [path.stat().st_size for path in spread(tmp_path.iterdir())]

    assert list(range(0, 3 * CORPUS_FILES_MAX, 3)) == kept
    assert [] == spread([])


def test_the_corpus_of_a_target_that_has_crashed_stays_as_it_is(tmp_path, monkeypatch):
    runs = {"frames": Run(0, 600.0, LOG), "heads": Run(77, 3.0, LOG)}
    kept = []
    monkeypatch.setattr(fuzz, "_build", lambda _settings: None)
    monkeypatch.setattr(fuzz, "_run", lambda _settings, name: runs[name])
    monkeypatch.setattr(fuzz, "_keep", lambda _settings, name: kept.append(name))
    monkeypatch.setattr(fuzz, "pack", lambda _folder: kept.append("packed"))
    report = tmp_path / "fuzz.json"
    arguments = ["--targets", "frames", "heads", "--keep", "--output", str(report)]

    code = fuzz.main([*arguments, "--target-dir", str(tmp_path)])

    assert (1, ["frames", "packed"]) == (code, kept)
    assert {"frames", "heads"} == set(json.loads(report.read_text())["targets"])
