"""The workflows: what they promise is what the project's files say."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").iterdir())
TEXTS = {file.name: file.read_text(encoding="utf-8") for file in FILES}
TEXT = TEXTS["release.yml"]
# YAML reads the key `on` as true.
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
CHANGES: dict[str, dict[str, Any]] = yaml.safe_load(TEXTS["test.yml"])["jobs"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
COMMANDS = [(name, step["run"]) for name, step in STEPS if "run" in step]
OF_CHANGES = [
    (name, step["run"]) for name, job in CHANGES.items() for step in job["steps"] if "run" in step
]
LINES = [line for text in TEXTS.values() for line in text.splitlines()]
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize("line", sorted({line for line in LINES if "uses:" in line}))
def test_actions_are_pinned_to_a_commit_whose_version_is_named(line: str):
    assert re.fullmatch(r" *- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


def test_an_action_is_used_in_one_version():
    used = {line.partition("uses: ")[2] for line in LINES if "uses:" in line}
    assert len(used) == len({each.partition("@")[0] for each in used})


def test_a_tag_releases():
    assert {"push": {"tags": ["v*"]}, "workflow_dispatch": None} == WORKFLOW[True]


def test_jobs_may_only_what_they_need():
    assert {} == WORKFLOW["permissions"]
    reading = {"contents": "read"}
    assert {
        "test": reading,
        "wheel": reading,
        "sdist": reading,
        "sign": {"id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
    } == {name: job["permissions"] for name, job in JOBS.items()}


def test_who_may_sign_runs_nothing_but_what_fetches_signs_and_uploads():
    """Packages that were just installed, and code of the tree, cannot sign for the project."""
    steps = [
        step.get("uses", step.get("run", "")).partition("@")[0]
        for job in JOBS.values()
        if "id-token" in job["permissions"]
        for step in job["steps"]
    ]
    fetches = "actions/download-artifact"
    signs, uploads = "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"
    assert [fetches, signs, fetches, uploads] == steps


def test_nothing_is_published_before_everything_else_has_passed():
    assert set(JOBS) - {"publish"} == set(JOBS["publish"]["needs"])
    assert "github.event_name == 'push'" == JOBS["publish"]["if"]


def test_there_is_a_wheel_for_each_promised_platform():
    assert {
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
    } == {each["target"] for each in JOBS["wheel"]["strategy"]["matrix"]["include"]}
    (build,) = [step for _, step in STEPS if "target" in step.get("with", {})]
    assert "2_28" == build["with"]["manylinux"]


def test_every_python_of_the_wheel_is_tested_and_tries_it():
    binding = (ROOT / "router_rs" / "py" / "Cargo.toml").read_text(encoding="utf-8")
    assert f"abi3-py{VERSIONS[0].replace('.', '')}" in binding
    assert f">={VERSIONS[0]}" == PYPROJECT["project"]["requires-python"]
    assert VERSIONS == JOBS["test"]["strategy"]["matrix"]["python"]
    (tried,) = [command for _, command in COMMANDS if "try_wheel.py" in command]
    assert f"for version in {' '.join(VERSIONS)}; do" in tried
    (installed,) = [
        step["with"]["python-version"]
        for name, step in STEPS
        if name == "wheel" and "\n" in step.get("with", {}).get("python-version", "")
    ]
    # The last one becomes `python3`, which has to be the oldest that the tools run with.
    assert VERSIONS == installed.split()[::-1]


def test_maturin_is_one_that_pyproject_allows_and_developers_have():
    (requirement,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    locked = re.findall(r"^maturin==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    used = [
        step["with"]["maturin-version"].removeprefix("v")
        for _, step in STEPS
        if "maturin-version" in step.get("with", {})
    ]
    assert locked * 2 == used
    assert requirement.specifier.contains(locked[0])


def test_the_package_that_repacks_wheels_is_that_of_developers():
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    (installed,) = re.findall(r"pip install (wheel==\S+)", TEXT)
    assert re.search(rf"^{re.escape(installed)} \\$", lock, re.MULTILINE)


def test_what_is_published_has_provenance():
    kept = [
        (name, step["with"]["name"])
        for name, step in STEPS
        if step.get("with", {}).get("name", "").startswith("dist-")
    ]
    assert ["wheel", "sdist"] == [name for name, _ in kept]
    fetched, attested = (step["with"] for step in JOBS["sign"]["steps"])
    published = JOBS["publish"]["steps"][0]["with"]
    assert {name for name, _ in kept} == set(JOBS["sign"]["needs"])
    assert {"pattern": "dist-*", "path": "dist", "merge-multiple": True} == fetched == published
    assert {"subject-path": "dist/*"} == attested


def test_the_name_on_pypi_is_that_of_the_project():
    url = JOBS["publish"]["environment"]["url"]
    assert f"https://pypi.org/project/{PYPROJECT['project']['name']}/" == url


def test_changes_are_tested_with_every_python_that_make_tests_with():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"PYTHONS ?= {' '.join(VERSIONS)}\n" in makefile
    assert VERSIONS == CHANGES["pythons"]["strategy"]["matrix"]["python"]
    commands = [command for job, command in OF_CHANGES if job == "pythons"]
    (uv,) = re.findall(r"^UV_VERSION := (\S+)$", makefile, re.MULTILINE)
    assert f"python3 -m pip install uv=={uv}" in commands


def test_commands_of_changes_are_those_of_developers():
    targets = re.findall(r"^([a-z\d-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for _, command in OF_CHANGES:
        assert {*re.findall(r"^make (\S+)", command)} <= {*targets}
    assert ("test", ".ci/run") in OF_CHANGES


@pytest.mark.parametrize(("job", "command"), [*COMMANDS, *OF_CHANGES])
def test_commands_are_shell_and_name_files_that_exist(job: str, command: str):
    plain = re.sub(r"\$\{\{.*?\}\}", "x", command)
    subprocess.run(["bash", "-n"], input=plain, text=True, check=True, timeout=30)
    for path in re.findall(r"\bdeploy/release/\w+\.py\b", command):
        assert (ROOT / path).is_file()
