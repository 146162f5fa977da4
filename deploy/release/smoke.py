"""A first quarter of an hour with an installed pyserve: stubs, a service, handles, tracebacks.

``python smoke.py`` works in a folder of its own, with the pyserve of its interpreter, and ends with
0 if everything is as it should be. It needs what ``pyserve-mesh[proto]`` installs and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT_S = 120.0
_PROTO = """\
syntax = "proto3";
package greeter;
service Greeter {
  rpc Greet(GreetRequest) returns (GreetReply);
  rpc CountDown(GreetRequest) returns (stream GreetReply);
}
message GreetRequest { string name = 1; optional int32 start = 2; }
message GreetReply { string text = 1; map<string, int64> counts = 2; }
"""
_SERVICE = """\
import greeter_pb2
import greeter_pb2_grpc
import pyserve


@pyserve.deployment(num_replicas=2)
class Greeter(greeter_pb2_grpc.GreeterServicer):
    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0)
    async def Greet(self, requests):
        return [greeter_pb2.GreetReply(text=f"Hello, {each.name}!") for each in requests]

    async def CountDown(self, request, context):
        for number in range(request.start, 0, -1):
            yield greeter_pb2.GreetReply(text=str(number), counts={"left": number})


app = Greeter.bind()
"""
_SCRIPT = """\
import pyserve


class OutOfStock(Exception):
    pass


@pyserve.deployment
class Prices:
    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def load(self, currency):
        return {"eur": 1.0, "usd": 1.1}[currency]

    async def of(self, name):
        rate = await self.load(pyserve.get_multiplexed_model_id())
        if name == "fig":
            raise OutOfStock(name)  # LINE
        return rate * len(name)


@pyserve.deployment
class Shop:
    def __init__(self, prices):
        self.prices = prices.options(multiplexed_model_id="eur")

    async def __call__(self, basket: list[str]) -> float:
        return sum([await self.prices.of.remote(name) for name in basket])


shop = pyserve.run(Shop.bind(Prices.bind()), name="shop", route_prefix="/shop")
assert 8.0 == shop.remote(["pear", "plum"]).result(timeout_s=20)
try:
    shop.remote(["fig"]).result(timeout_s=20)
except OutOfStock as error:
    import traceback

    traceback.print_exception(error)
"""


def main() -> int:
    """Try it; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="pyserve-smoke-") as place:
        folder = Path(place)
        os.environ.update(PYSERVE_HOME=str(folder / "home"), PYSERVE_INGRESS_PORT="0")
        (folder / "greeter.proto").write_text(_PROTO, encoding="utf-8")
        (folder / "service.py").write_text(_SERVICE, encoding="utf-8")
        (folder / "script.py").write_text(_SCRIPT, encoding="utf-8")
        assert "generated the stubs" in _pyserve(folder, "proto", ".")
        with _served(folder) as address:
            _try_service(folder, address)
        _try_script(folder)
    sys.stdout.write("smoke: all is well\n")
    return 0


def _try_service(folder: Path, address: str) -> None:
    called = _pyserve(folder, "call", "greeter.Greeter/Greet", "name=Ada")
    assert {"text": "Hello, Ada!"} == json.loads(called), called
    streamed = _pyserve(folder, "call", "greeter.Greeter/CountDown", "start=2").splitlines()
    assert ["2", "1"] == [json.loads(line)["text"] for line in streamed], streamed
    request = urllib.request.Request(
        f"http://{address}/greeter.Greeter/Greet",
        b'{"name": "Grace"}',
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # as above
        assert {"text": "Hello, Grace!"} == json.load(answer)
    assert "Greeter  HEALTHY  2/2 replicas" in _pyserve(folder, "status")


def _try_script(folder: Path) -> None:
    told = _run(folder, sys.executable, "script.py")
    line = _SCRIPT[: _SCRIPT.index("  # LINE")].count("\n") + 1
    # Files and lines, also of a class that has travelled with the script.
    place = f'{folder / "script.py"}", line {line}, in of'
    assert place in told, f"no {place!r} in\n{told}"


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve the application until the end of the block; yield where."""
    log = folder / "run.log"
    command = [sys.executable, "-m", "pyserve", "run", "service:app", "--address", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        ready, deadline = "is ready at ", time.monotonic() + _TIMEOUT_S
        while ready not in (text := log.read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)  # Nothing tells when a line is there.
        yield text.partition(ready)[2].split()[0]
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(_TIMEOUT_S), log.read_text()
    finally:
        process.kill()
        process.wait()


def _pyserve(folder: Path, *arguments: str) -> str:
    return _run(folder, sys.executable, "-m", "pyserve", *arguments)


def _run(folder: Path, *command: str) -> str:
    """Return what a command prints, which has to end with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert 0 == done.returncode, f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
