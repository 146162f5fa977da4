"""The commands that the pages promise are there, and nothing lives only in CI."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.docs.page import read_blocks
from tests.tidy.rust_rules import MEMBERS, ROUTER_CRATES
from tests.tidy.tree import ROOT

TARGETS = (
    "run", "serve", "test", "test-all", "check", "build", "gen", "gen-check", "bench", "soak",
    "hostile", "fuzz", "fmt", "lint", "sim",
    "parity", "types", "clean", "help", "wheel", "pythons", "docs",
)  # fmt: skip


CRATES = {
    tomllib.loads((ROOT / member / "Cargo.toml").read_text())["package"]["name"]
    for member in MEMBERS
}


def crates_tested(command: str) -> set[str]:
    """Return those of the workspace that one command tests."""
    if " test --locked" not in command or "--manifest-path" in command:
        return set()
    everything = CRATES if " --workspace" in command else set()
    excluded = re.findall(r"--exclude ([\w-]+)", command)
    return (everything | set(re.findall(r"-p ([\w-]+)", command))) - set(excluded)


def _make(*arguments: str) -> str:
    # `make` may run this: its own settings must not reach the inner make.
    environment = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL"}}
    result = subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_make_alone_lists_every_target():
    listed = re.findall(r"^  make ([a-z-]+) ", _make(), flags=re.MULTILINE)

    assert set(TARGETS) <= set(listed)


def test_ci_runs_the_test_command_of_the_readme():
    tests_section = (ROOT / "README.md").read_text().partition("\n## Tests\n")[2]
    command = read_blocks(tests_section)[0].body.strip()

    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("target", ["test-all", "check"])
def test_every_test_is_run_by(target: str):
    commands = _make("--dry-run", target)

    assert {"pyserve-loadgen", "pyserve-meshload"} < CRATES
    assert set().union(*map(crates_tested, commands.splitlines())) == CRATES
    assert {"doorbell", "marks"} == set(re.findall(r"--features loom (\w+)", commands))
    runs = re.findall(r"-m (?:pytest|tests\.again)(.*)", commands)
    # Two runs that complete each other; `check` runs the quick ones before.
    assert runs[-2:] == [' -n 4 --dist loadfile --no-loadscope-reorder -m "not alone"', " -m alone"]
    assert runs[:-2] == ([" tests/tidy tests/unit"] if target == "check" else [])


def test_every_crate_of_the_router_is_fuzzed_with_its_assertions():
    manifest = tomllib.loads((ROOT / "router_rs/fuzz/Cargo.toml").read_text())
    asserting = set(manifest["profile"]["release"]["package"])

    assert {f"pyserve-router-{crate}" for crate in ROUTER_CRATES} == asserting


@pytest.mark.parametrize(
    ("file", "least"),
    [
        ("requirements.txt", 100),
        ("docs/requirements.txt", 20),
        ("deploy/release/requirements.txt", 1),
    ],
)
def test_every_package_is_pinned_with_the_hashes_of_its_files(file: str, least: int):
    """So what an index, or a mirror of it, gives under that name later is refused."""
    text = (ROOT / file).read_text().replace("\\\n", "")
    packages = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]

    is_pinned = re.compile(r"[\w.-]+==[\w.]+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+")
    assert [] == [line for line in packages if not is_pinned.fullmatch(line)]
    assert len(packages) >= least


def test_make_lock_writes_hashes():
    commands = [line for line in _make("--dry-run", "lock").splitlines() if "--output-file" in line]

    assert 3 == len(commands)
    assert all("--generate-hashes" in command for command in commands)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one C library")
def test_wheels_are_for_every_linux_that_the_release_is_for():
    """Debian 11 and Ubuntu 20.04 have glibc 2.31, which this machine's may be newer than."""
    for target in ("wheel", "wheel-aarch64"):
        commands = _make("--dry-run", target).replace("\\\n", "").splitlines()
        (command,) = [line for line in commands if "maturin build" in line]
        assert "--zig" in command
        assert "--compatibility manylinux_2_28" in command
