"""A launcher and replicas that live in the test's loop and speak the real Join."""

import asyncio
import contextlib
from functools import partial

import grpc

from pyserve.aio.mesh_channel import dial, proof
from pyserve.control.server.transport import RpcError
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc
from tests.support.launching import ScriptedLauncher

TIMEOUT_S = 30.0
# Of every fake process.
PID = 4711


class FakeReplica:
    """The messages of a replica process to its controller, step by step."""

    def __init__(self, address, token, order, on_exit):
        self.order = order
        self.assign: mesh_pb2.Assign = mesh_pb2.Assign()
        self.drained = asyncio.Event()
        self._on_exit = on_exit
        self._channel = dial(address)
        self._call = mesh_pb2_grpc.MeshStub(self._channel).Join(metadata=proof(token))

    async def join(self, *, replica_version=None):
        key = self.order.key
        hello = mesh_pb2.Hello(
            replica_id=self.order.replica_id,
            application=key.application,
            deployment=key.deployment,
            version=replica_version or version(),
            pid=PID,
            node="here",
        )
        await self._call.write(mesh_pb2.ReplicaMessage(hello=hello))
        command = await self._call.read()
        self.assign = command.assign

    async def ready(self, *, http=False):
        message = mesh_pb2.Ready(
            endpoints=mesh_pb2.Endpoints(address="127.0.0.1:1", unix_path="/nowhere"),
            services=[f"shop.{self.order.key.deployment}"],
            deployment_version=self.assign.deployment_version,
            http=http,
        )
        await self._call.write(mesh_pb2.ReplicaMessage(ready=message))

    async def fail(self, summary="ValueError: no model", traceback="Traceback ..."):
        message = mesh_pb2.Failed(summary=summary, traceback=traceback, user_code=True)
        await self._call.write(mesh_pb2.ReplicaMessage(failed=message))

    async def unhealthy(self):
        message = mesh_pb2.Health(healthy=False, reason="check_health raised")
        await self._call.write(mesh_pb2.ReplicaMessage(health=message))

    async def serve_until_drained(self, may_end=None):
        """Read commands; end like a process when told to drain or when the stream breaks.

        With an event it waits for that too, as for calls in flight.
        """
        with contextlib.suppress(RpcError):
            while (command := await self._call.read()) is not grpc.aio.EOF:
                if command.WhichOneof("kind") == "ping":
                    await self._call.write(mesh_pb2.ReplicaMessage(pong=mesh_pb2.Pong()))
                if command.WhichOneof("kind") == "drain":
                    self.drained.set()
                    break
        if may_end is not None:
            await may_end.wait()
        await self.end("ended with exit code 0")

    async def take_leave(self):
        """Say that no message follows, and wait until the controller has read all of them."""
        await self._call.done_writing()
        async with asyncio.timeout(TIMEOUT_S):
            while await self._call.read() is not grpc.aio.EOF:
                pass

    async def leave(self):
        """Lose the stream, keep the process."""
        await self._channel.close()

    async def end(self, summary):
        await self.leave()
        self._on_exit(summary)


class FakeLauncher(ScriptedLauncher):
    """Makes fake replicas; ``script`` is what each of them does after its start."""

    def __init__(self, address, token, script):
        super().__init__()
        self.address = address
        self.token = token
        self.script = script
        self.started = []
        self.asked = []
        self.killed = []
        self._tasks = {}
        self._closed = False

    async def start(self, order):
        if self._closed:
            return 0  # Those that end while the test does have successors, which nobody needs.
        on_exit = partial(self.end, order.replica_id)
        replica = FakeReplica(self.address, self.token, order, on_exit)
        self.started.append(replica)
        task = asyncio.get_running_loop().create_task(self.script(replica))
        self._tasks[order.replica_id] = (task, replica)
        return PID

    def stop(self, replica_id, grace_s):
        if grace_s:
            self.asked.append(replica_id)
            return
        self.killed.append(replica_id)
        task, replica = self._tasks.pop(replica_id, (None, None))
        if task is not None and task.cancel():
            end = asyncio.get_running_loop().create_task(replica.end("was killed by SIGKILL"))
            self._tasks[f"end of {replica_id}"] = (end, replica)

    async def close(self):
        self._closed = True
        for task, replica in list(self._tasks.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await replica.leave()
        await super().close()


async def serve(replica):
    """The script of a replica that behaves."""
    await replica.join()
    await replica.ready()
    await replica.serve_until_drained()


async def raise_in_constructor(replica):
    await replica.join()
    await replica.fail()
    await replica.take_leave()
    await replica.end("ended with exit code 1")
