"""``make fuzz``: run the fuzz targets of ``router_rs/fuzz`` for a while each, and report.

What is found goes to ``target/fuzz/findings``; with ``--keep``, the inputs that reach new code join
the archive of corpora in the repository. Inputs that people wrote are files in ``corpus``. Exit
code: 0, or 1 when a target has crashed, hung or run out of memory.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.machine import ROOT, stamp

CRATE = ROOT / "router_rs" / "fuzz"
# What the fuzzers made: `<target>/<hash>`.
ARCHIVE = CRATE / "corpora.tar.gz"
# What people wrote: `<target>/<name>`, where there is any.
SEEDS = CRATE / "corpus"
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.json"
INPUT_BYTES_MAX = 4096
CORPUS_FILES_MAX = 300
_TRIPLE = "x86_64-unknown-linux-gnu"
# What libFuzzer reads: which edges were taken how often. The stable toolchain has the pass, only
# not a switch of its own for it.
_RUSTFLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    " -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    " -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 --cfg fuzzing"
)
# One input takes far less; a deadlock takes for ever.
_INPUT_TIMEOUT_S = 25
_RSS_MIB_MAX = 2048
# To start, to read the corpus and to end.
_SLACK_S = 300.0


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    targets: Sequence[str]
    seconds: int
    processes: int
    keep: bool
    target_dir: Path
    output: Path

    @property
    def programs(self) -> Path:
        """Where the built targets are."""
        return self.target_dir / _TRIPLE / "release"

    @property
    def kept(self) -> Path:
        """Where the archive of the repository is unpacked."""
        return self.target_dir / "kept"


@dataclass(frozen=True)
class Run:
    """How one target has run.

    Attributes:
        exit_code: 0 for a clean run.
        seconds: Wall clock, from start to end.
        log: What libFuzzer has written.
    """

    exit_code: int
    seconds: float
    log: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, run, write the report and return the exit code."""
    settings = _settings(arguments)
    _build(settings)
    unpack(settings.kept)
    with ThreadPoolExecutor(settings.processes) as pool:
        runs = dict(
            zip(settings.targets, pool.map(partial(_run, settings), settings.targets), strict=True)
        )
    if settings.keep:
        # One that crashes would crash on what it has found, too.
        for name in (name for name, run in runs.items() if not run.exit_code):
            _keep(settings, name)
        pack(settings.kept)
    report = make_report(runs, settings.kept)
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    settings.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report["targets"], indent=1))
    print(f"report: {settings.output}")
    return 1 if any(run.exit_code for run in runs.values()) else 0


def target_names(manifest: str) -> list[str]:
    """List the targets that a ``Cargo.toml`` names."""
    return re.findall(r'^\[\[bin\]\]\nname = "(\w+)"', manifest, re.MULTILINE)


def unpack(folder: Path) -> None:
    """Replace what is in `folder` by the corpora of the repository, a folder for each target."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")


def pack(folder: Path, archive: Path = ARCHIVE) -> None:
    """Write the corpora in `folder` as the archive of the repository, its entries in order."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def make_report(runs: Mapping[str, Run], kept: Path) -> dict[str, object]:
    """Describe the machine, how each target has run, and its corpus in `kept`."""
    return {
        "machine": stamp(),
        "targets": {name: _describe(run, kept / name) for name, run in sorted(runs.items())},
    }


def _describe(run: Run, kept: Path) -> dict[str, object]:
    figures = dict(re.findall(r"^stat::(\w+):\s+(\d+)", run.log, re.MULTILINE))
    corpus = sorted(kept.iterdir())
    return {
        "executions": int(figures.get("number_of_executed_units", 0)),
        "executions_per_s": int(figures.get("average_exec_per_sec", 0)),
        "seconds": round(run.seconds, 1),
        "peak_rss_mib": int(figures.get("peak_rss_mb", 0)),
        "corpus_files": len(corpus),
        "corpus_bytes": sum(path.stat().st_size for path in corpus),
        "crashes": int(run.exit_code != 0),
    }


def _build(settings: Settings) -> None:
    command = ["cargo", "build", "--release", "--locked", "--features", "libfuzzer"]
    command += ["--target", _TRIPLE, "--target-dir", str(settings.target_dir)]
    command += [f"--bin={name}" for name in settings.targets]
    subprocess.run(command, cwd=CRATE, env={**os.environ, "RUSTFLAGS": _RUSTFLAGS}, check=True)


def _run(settings: Settings, name: str) -> Run:
    corpus = settings.target_dir / "corpus" / name
    findings = settings.target_dir / "findings" / name
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        *("nice", "-n", "19", str(settings.programs / name)),
        f"-max_total_time={settings.seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={_INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={_RSS_MIB_MAX}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        str(corpus),
        *_of_repository(settings, name),
    ]
    begun_s = time.monotonic()
    log_path = settings.target_dir / f"{name}.log"
    with log_path.open("w") as log:
        done = subprocess.run(
            command,
            stdout=log,
            stderr=log,
            timeout=settings.seconds + _SLACK_S,
            check=False,
            # Python ignores SIGPIPE and so do the targets, whose main is not that of Rust.
            restore_signals=False,
        )
    run = Run(done.returncode, time.monotonic() - begun_s, log_path.read_text(errors="replace"))
    if run.exit_code:
        print(f"{name} has failed, see {log_path} and {findings}", file=sys.stderr)
        print("\n".join(run.log.splitlines()[-40:]), file=sys.stderr)
    return run


def _of_repository(settings: Settings, name: str) -> list[str]:
    """Return the folders with inputs of a target that the repository has."""
    folders = (settings.kept / name, SEEDS / name)
    return [str(folder) for folder in folders if folder.is_dir()]


def _keep(settings: Settings, name: str) -> None:
    """Replace a corpus by the fewest inputs that reach all that old and new ones reach."""
    kept = settings.kept / name
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("nice", "-n", "19", str(settings.programs / name)),
            # Which edges, not how often: the difference is hundreds of files.
            *("-set_cover_merge=1", "-use_counters=0", f"-max_len={INPUT_BYTES_MAX}"),
            *(folder, str(settings.target_dir / "corpus" / name)),
            *_of_repository(settings, name),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=_SLACK_S)
        chosen = spread(Path(folder).iterdir())
        shutil.rmtree(kept)
        kept.mkdir()
        for path in chosen:
            shutil.copyfile(path, kept / path.name)


def spread(paths: Iterable[Path]) -> list[Path]:
    """Return as many of the files as a corpus may have, small and large ones alike."""
    by_size = sorted(paths, key=lambda path: (path.stat().st_size, path.name))
    step = max(1.0, len(by_size) / CORPUS_FILES_MAX)
    return [by_size[int(index * step)] for index in range(min(len(by_size), CORPUS_FILES_MAX))]


def _settings(arguments: Sequence[str] | None) -> Settings:
    known = target_names((CRATE / "Cargo.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=known, default=known)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--processes", type=int, default=2, help="targets that run at once")
    parser.add_argument("--keep", action="store_true", help="put what is new into the corpora")
    parser.add_argument("--target-dir", type=Path, default=ROOT / "target" / "fuzz")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return Settings(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
