"""Drivers that run an application and call it: scripts, notebooks, threads, forks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT

pytestmark = pytest.mark.slow
_TIMEOUT_S = 50.0

_HEAD = """
    import asyncio, os, threading, time
    import pyserve

    pyserve.start(address="127.0.0.1:0")

    @pyserve.deployment(num_replicas=2)
    class Model:
        def __init__(self, delay_s: float = 0.0) -> None:
            time.sleep(delay_s)

        def __call__(self, value):
            return value + 1
"""


@pytest.fixture
def drive(tmp_path: Path, mesh_environment: dict[str, str]):
    """Run a script to its end, in a mesh of its own."""

    def run(script: str) -> str:
        file = tmp_path / "driver.py"
        file.write_text(textwrap.dedent(_HEAD) + textwrap.dedent(script))
        result = subprocess.run(
            [sys.executable, "-W", "error", str(file)],
            cwd=tmp_path,
            env={**mesh_environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert 0 == result.returncode, result.stderr
        return result.stdout

    return run


@pytest.mark.parity("S-02")
def test_run_returns_a_handle_when_every_replica_is_ready(drive) -> None:
    """Constructors that take half a second have all ended, and the first call has an answer."""
    output = drive("""
        begun = time.monotonic()
        handle = pyserve.run(Model.bind(0.5))
        assert time.monotonic() - begun > 0.5
        replicas = pyserve.status().applications["default"].deployments["Model"].replicas
        print(sorted(replica.state for replica in replicas))
        print(handle.remote(1).result(timeout_s=30))
    """)
    assert "['RUNNING', 'RUNNING']\n2\n" == output


@pytest.mark.parity("S-02")
def test_run_waits_for_the_slowest_replica(drive) -> None:
    """The first constructor ends at once, the other one takes a second and a half."""
    output = drive("""
        @pyserve.deployment(num_replicas=2)
        class Uneven:
            def __init__(self, path: str) -> None:
                try:
                    os.mkdir(path)
                except FileExistsError:
                    time.sleep(1.5)

            def __call__(self): ...

        pyserve.run(Uneven.bind(os.path.abspath("first")))
        replicas = pyserve.status().applications["default"].deployments["Uneven"].replicas
        print(sorted(replica.state for replica in replicas))
    """)
    assert "['RUNNING', 'RUNNING']\n" == output


def test_a_notebook_runs_and_calls_inside_of_its_loop(drive) -> None:
    """And other loops of the same process call too, one after the other and at once."""
    output = drive("""
        async def cells():
            handle = pyserve.run(Model.bind())
            print(await handle.remote(1))
            responses = [handle.remote(number) for number in range(3)]
            print([await response for response in responses])
            return handle

        handle = asyncio.run(cells())

        async def ask(value):
            return await handle.remote(value)

        print([asyncio.run(ask(number)) for number in range(3)])
        answers = {}
        threads = [
            threading.Thread(target=lambda n=n: answers.update({n: asyncio.run(ask(n))}))
            for n in range(4)
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(sorted(answers.items()))
    """)
    assert "2\n[1, 2, 3]\n[1, 2, 3]\n[(0, 1), (1, 2), (2, 3), (3, 4)]\n" == output


def test_tracebacks_of_replicas_show_the_lines_of_a_notebooks_cell(drive) -> None:
    """Whose name has no file, and whose text linecache has."""
    output = drive("""
        import linecache

        name, text = "/no/1.py", "class Cell:\\n def __call__(self):\\n  return 1 / 0  # why\\n"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"))
        handle = pyserve.run(pyserve.deployment(Cell).bind())
        try:
            handle.remote().result(30)
        except ZeroDivisionError as error:
            print(error.remote_traceback)
    """)
    assert "return 1 / 0  # why" in output


def test_several_applications_run_at_once(drive) -> None:
    output = drive("""
        one, two = pyserve.run_many(
            [
                pyserve.RunTarget(target=Model.bind(), name="one", route_prefix="/one"),
                pyserve.RunTarget(target=Model.bind(), name="two", route_prefix="/two"),
            ]
        )
        print(one.app_name, one.remote(1).result(30), two.app_name, two.remote(2).result(30))
        try:
            pyserve.run_many([pyserve.RunTarget(target=Model.bind())] * 2)
        except ValueError as error:
            print(error)
    """)
    assert output.startswith("one 2 two 3\nrun_many: default is the name of several")


def test_a_fork_says_that_it_cannot_call(drive) -> None:
    output = drive("""
        handle = pyserve.run(Model.bind())
        assert 2 == handle.remote(1).result(30)
        pid = os.fork()
        if pid == 0:
            try:
                handle.remote(1)
            except RuntimeError as error:
                print(type(error).__name__, str(error)[:22], flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print(handle.remote(2).result(30))
    """)
    assert "RuntimeForked this process is a fork\n3\n" == output


def test_exceptions_of_a_script_keep_their_type_through_deployments(drive) -> None:
    """Also through one that has never got the type."""
    output = drive("""
        import enum

        class Colour(enum.Enum):
            RED = 1

        class OutOfStock(Exception):
            def __init__(self, *, item):
                super().__init__(f"no {item}")
                self.item = item

        @pyserve.deployment
        class Stock:
            def take(self, item):
                raise OutOfStock(item=item)

            def colour(self):
                raise KeyError(Colour.RED)

        @pyserve.deployment
        class Shop:
            def __init__(self, stock):
                self.stock = stock

            async def catch(self, item):
                try:
                    return await self.stock.take.remote(item)
                except OutOfStock as error:
                    return f"caught {error.item}"

        @pyserve.deployment
        class PassOn:
            def __init__(self, stock):
                self.stock = stock

            async def __call__(self, item):
                return await self.stock.take.remote(item)

        stock = Stock.bind()
        shop = pyserve.run(Shop.bind(stock), name="shop", route_prefix="/shop")
        pass_on = pyserve.run(PassOn.bind(stock), name="pass", route_prefix="/pass")
        print(shop.catch.remote("tea").result(timeout_s=30))
        for call in (pyserve.get_deployment_handle("Stock", "shop").take, pass_on):
            try:
                call.remote("milk").result(timeout_s=30)
            except OutOfStock as error:
                print("here", error.item, error)
        try:
            pyserve.get_deployment_handle("Stock", "shop").colour.remote().result(timeout_s=30)
        except KeyError as error:
            print(error.args[0])
    """)
    assert ["caught tea", "here milk no milk", "here milk no milk", "Colour.RED"] == [
        line for line in output.splitlines() if line.startswith(("caught", "here", "Colour"))
    ]


def test_an_ingress_that_cannot_listen_is_a_runtime_error(drive) -> None:
    output = drive("""
        import socket

        pyserve.shutdown()
        with socket.create_server(("127.0.0.1", 0)) as other:
            try:
                pyserve.start(http_options={"port": other.getsockname()[1]})
            except RuntimeError as error:
                print(error)
    """)
    assert "is taken: another process listens at" in output
