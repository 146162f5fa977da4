"""``make compose``: builds the containers, calls them, crashes one, adds some, takes all down."""

from __future__ import annotations

import sys
import threading
from collections import Counter

import grpc

from services.digits import digits_pb2, digits_pb2_grpc
from tests.compose.observers import observe
from tests.compose.project import NoEngine, Project, find_compose
from tests.support.waiting import wait_until

_PIXELS = bytes(64)
_CALL_TIMEOUT_S = 10.0
_READY_TIMEOUT_S = 180.0
_APPLICATIONS = {"digits", "pipeline"}


def main() -> int:
    """Return 0 when everything held, or no engine is there."""
    try:
        compose = find_compose()
    except NoEngine as missing:
        print(f"SKIPPED the containers: {missing}. tests/compose/test_files.py looks at the files.")
        return 0
    with Project(compose) as project:
        project.up()
        print(f"up, at 127.0.0.1:{project.port}", flush=True)
        try:
            _use(project)
        except BaseException:
            print(project.compose("logs", "--tail", "40"), file=sys.stderr)
            raise
    print("down; all held")
    return 0


def _use(project: Project) -> None:
    wait_until(
        lambda: project.states() == dict.fromkeys(_APPLICATIONS, "RUNNING"), _READY_TIMEOUT_S
    )
    with grpc.insecure_channel(f"127.0.0.1:{project.port}") as channel:
        stub = digits_pb2_grpc.DigitsStub(channel)
        reply = stub.Classify(digits_pb2.ClassifyRequest(pixels=_PIXELS), timeout=_CALL_TIMEOUT_S)
        assert 0 <= reply.label <= 9
        print("a call is answered through the published port", flush=True)
        project.up("--scale", "digits=3", "--no-recreate")
        wait_until(lambda: project.running("digits", "Digits") == 3, _READY_TIMEOUT_S)
        with _Calls(stub) as calls:
            wait_until(lambda: len(calls.by_replica) == 3, _READY_TIMEOUT_S)
            print("three replicas answer", flush=True)
            before = set(project.containers("digits"))
            project.crash(min(before))
            wait_until(lambda: len(calls.by_replica) == 4, _READY_TIMEOUT_S)
            assert before == set(project.containers("digits")), "it was started again"
        print(f"{calls.by_replica.total()} calls over a crash, failed: {calls.failed}", flush=True)
        # Calls that were in the one that died may break; marked ones are sent again.
        assert not calls.failed, calls.failed
    observe(project)


class _Calls:
    """Calls one after the other, until the end of the context."""

    def __init__(self, stub: digits_pb2_grpc.DigitsStub) -> None:
        self.by_replica: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._stub = stub
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def __enter__(self) -> _Calls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(2 * _CALL_TIMEOUT_S)

    def _call(self) -> None:
        request = digits_pb2.ClassifyRequest(pixels=_PIXELS)
        while not self._over.is_set():
            try:
                reply = self._stub.Classify(request, timeout=_CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                self.failed[str(error)] += 1
            else:
                self.by_replica[reply.replica_id] += 1


if __name__ == "__main__":
    sys.exit(main())
