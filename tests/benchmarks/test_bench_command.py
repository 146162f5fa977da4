"""The benchmark itself: that it runs and writes what it says, never which figures."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import run
from benchmarks.generator import GeneratorError, drive, find_generator
from benchmarks.machine import ROOT, cpu_model, stamp
from benchmarks.measure import METRICS
from benchmarks.processes import CpuSets, running_server
from benchmarks.workloads import WORKLOADS
from tests.benchmarks.conftest import BUILD_TIMEOUT_S


def test_server_and_generator_get_cpus_of_their_own_where_there_are_two():
    assert CpuSets(frozenset({2}), frozenset({5})) == CpuSets.of([5, 2, 7])
    assert CpuSets.of([5, 2]).separate
    assert not CpuSets.of([3]).separate
    assert not CpuSets.shared([5, 2]).separate


def test_a_processor_is_named_or_described():
    assert "Fast 9" == cpu_model("processor\t: 0\nmodel\t\t: 2\nmodel name\t: Fast 9\n")
    described = cpu_model("vendor_id\t: Some\ncpu family\t: 6\nmodel\t\t: 2\n")
    assert "vendor_id Some, cpu family 6, model 2" == described


def test_the_stamp_tells_machine_software_and_sources():
    made = stamp()
    assert {"cpu", "cpus", "kernel", "python", "grpcio", "rustc", "commit"} <= made.keys()
    assert sorted(os.sched_getaffinity(0)) == made["cpus"]
    assert json.dumps(made)


def test_a_missing_generator_names_the_command_that_builds_it(tmp_path):
    with pytest.raises(GeneratorError, match="cargo build --release -p pyserve-loadgen"):
        find_generator(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S + 60)
def test_a_generator_without_a_server_is_an_error(program):
    arguments = ("--target", "127.0.0.1:1", "--path", "/a.B/C")
    with pytest.raises(GeneratorError, match="no report"):
        drive(program, arguments, seconds=0.1, warmup_s=0, on_moment=lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("contestant", ["grpc.aio", "pyserve.aio", "pyserve"])
def test_every_contestant_answers_every_workload_rightly(program, contestant):
    with running_server(contestant, frozenset(os.sched_getaffinity(0))) as server:
        # Controller, ingress and one replica; the others are one process.
        assert (3 if contestant == "pyserve" else 1) == len(set(server.pids))
        for workload in WORKLOADS:
            moments: list[str] = []
            report = drive(
                program,
                ("--target", server.address, *workload.arguments),
                seconds=0.3,
                warmup_s=0.1,
                on_moment=moments.append,
            )
            assert {} == report["errors"], workload.name
            assert 0 != report["ok"] == report["requests"], workload.name
            assert ["measuring", "measured"] == moments


@pytest.mark.slow
@pytest.mark.parametrize("ours", ["grpc.aio", "pyserve"])
def test_a_short_benchmark_writes_results_and_a_chart(program, tmp_path, ours):
    arguments = ["--ours", ours, "--pairs", "1", "--seconds", "0.3", "--warmup", "0.1"]
    before = os.sched_getaffinity(0)
    assert 0 == run.main([*arguments, "--only", "unary_64", "--output", str(tmp_path)])
    assert before == os.sched_getaffinity(0)
    document = json.loads((tmp_path / "bench.json").read_text())
    (workload,) = document["workloads"]
    assert ("unary_64", ours) == (workload["name"], document["ours"])
    assert set(METRICS) == set(workload["ratios"])
    assert workload["pairs"][0]["ours"]["metrics"]["requests_per_s"] > 0
    assert b"\x89PNG" == (tmp_path / "bench.png").read_bytes()[:4]


@pytest.mark.slow
def test_a_server_ends_with_its_standard_input():
    with running_server("grpc.aio", frozenset(os.sched_getaffinity(0))) as server:
        os.kill(server.pids[0], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pids[0], 0)


@pytest.mark.parametrize(
    "arguments", [["--pairs", "0"], ["--seconds", "0"], ["--only", "nothing"]], ids=" ".join
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        run.main(arguments)
    assert 2 == caught.value.code
    assert "usage" in capsys.readouterr().err


def test_the_modules_can_be_read_without_a_display():
    code = "import benchmarks.run, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=30)
