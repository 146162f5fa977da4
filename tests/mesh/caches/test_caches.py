"""Caches of replicas, from what user code reports to where calls go."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from tests.mesh.commands import ROOT, foreground

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-75")]

HEAD = """
    import os
    import signal
    import time
    from concurrent.futures import ThreadPoolExecutor

    import pyserve
    from tests.mesh.caches.apps import Remembering

    pyserve.start(address="127.0.0.1:0")
    handle = pyserve.run(Remembering.bind())

    def call(method, key, timeout_s=20, **options):
        named = handle.options(method_name=method, cache_keys=[key], **options)
        return named.remote(*([] if method == "forget" else [key])).result(timeout_s=timeout_s)

    def until(condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it has not happened within 20 s"

    def place_two_keys():
        # One after the other, so that no replica is idle while the first is chosen.
        homes = {}
        number = 0
        while len(set(homes.values())) < 2:
            homes[f"key {number}"] = call("remember", f"key {number}")["pid"]
            number += 1
        return homes
"""


@pytest.fixture
def drive(tmp_path: Path, mesh_environment: Mapping[str, str]) -> Callable[[str], None]:
    def run(script: str) -> None:
        file = tmp_path / "driver.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(script))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(file)],
            cwd=tmp_path,
            env={**mesh_environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=50,
            check=False,
        )
        assert 0 == done.returncode, done.stdout

    return run


def test_calls_go_to_the_replica_that_has_what_they_name(drive: Callable[[str], None]) -> None:
    drive("""
        homes = place_two_keys()
        for _ in range(20):
            for key, pid in homes.items():
                found = call("remember", key)
                assert (pid, True) == (found["pid"], found["found"]), (key, found, homes)
    """)


def test_a_function_of_the_handle_names_what_a_call_would_like_to_find(
    drive: Callable[[str], None],
) -> None:
    drive("""
        homes = place_two_keys()
        by_argument = handle.options(method_name="remember", cache_keys=lambda key: [key])
        for key, pid in [*homes.items()] * 10:
            assert pid == by_argument.remote(key).result(timeout_s=20)["pid"]
        wrong = handle.options(method_name="remember", cache_keys=lambda key: key)
        try:
            wrong.remote("k")
        except pyserve.PyserveError as error:
            assert "cache_keys" in str(error), error
        else:
            raise AssertionError("a text is no list of keys")
    """)


def test_calls_spread_when_a_replica_has_cleared_its_cache(drive: Callable[[str], None]) -> None:
    drive("""
        homes = place_two_keys()
        key, pid = homes.popitem()
        assert pid == call("forget", key)["pid"]

        def spreads():
            # All at once, so that no replica is the better one for long.
            with ThreadPoolExecutor(16) as pool:
                new = [f"new {n} {time.monotonic()}" for n in range(16)]
                found = [*pool.map(lambda key: call("look", key), new)]
            return len({each["pid"] for each in found}) == 2

        until(spreads)
    """)


def test_when_the_replica_with_the_entry_is_killed_no_call_is_lost(
    drive: Callable[[str], None],
) -> None:
    drive("""
        homes = place_two_keys()
        key, pid = homes.popitem()
        os.kill(pid, signal.SIGKILL)
        # Those that had started there are sent again.
        answers = [call("look", key, idempotent=True) for _ in range(50)]
        assert pid not in {answer["pid"] for answer in answers}
        assert not any(answer["found"] for answer in answers)
        # Somebody else has it from now on.
        home = call("remember", key)["pid"]
        assert {home} == {call("remember", key)["pid"] for _ in range(20)}
    """)


def test_the_page_shows_what_calls_have_found(drive: Callable[[str], None]) -> None:
    drive("""
        import json
        import threading
        import urllib.request

        homes = place_two_keys()
        (ingress,) = pyserve.status().ingresses
        url = f"http://{ingress.admin}/api/deployments/default/Remembering.json"
        over = threading.Event()

        def keep_calling():
            while not over.is_set():
                call("remember", [*homes][0])

        def is_shown():
            with urllib.request.urlopen(url) as page:
                shown = json.load(page)["cache"] or {}
            if not shown.get("found_per_second"):
                return False
            assert (len(homes), 1.0) == (shown["kept"], shown["found_share"]), shown
            return True

        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(keep_calling)
            try:
                until(is_shown)
            finally:
                over.set()
            calling.result()
    """)


def test_a_header_names_what_a_request_would_like_to_find(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment, "tests.mesh.caches.apps:remembering") as running,
        httpx.Client(base_url=f"http://{running.address}", timeout=20) as client,
    ):

        def get(key: str, header: str) -> tuple[int, str]:
            headers = {"pyserve-cache-keys": header}
            found = client.get("/", params={"key": key}, headers=headers)
            return found.status_code, found.text

        def pid_of(key: str) -> tuple[int, bool]:
            status, text = get(key, f"nobody stores {key}, {key}")
            assert 200 == status, text
            answer = json.loads(text)
            return answer["pid"], answer["found"]

        homes: dict[str, int] = {}
        while len(set(homes.values())) < 2:
            key = f"key-{len(homes)}"
            homes[key] = pid_of(key)[0]
        for key, pid in [*homes.items()] * 10:
            assert (pid, True) == pid_of(key)
        for header, reason in [
            ("a,,b", "pyserve-cache-keys has an empty key; separate keys by one comma each"),
            ("#12", "after # come 16 hexadecimal digits"),
            (",".join(["k"] * 257), "has 257 keys; send at most 256, the first ones"),
        ]:
            status, text = get("k", header)
            assert 400 == status
            assert reason in text
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(40)
