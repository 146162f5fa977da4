"""An ingress as a separate process: it follows the current controller of the mesh.

It waits for a controller, then listens, and keeps serving with its last view while there is no
controller. It drains and ends on SIGTERM or SIGINT, or when the mesh is shut down. It ends at once
on the second signal, and when it finds another mesh in place of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from pyserve.admin import AdminServer, advertised_address, make_admin
from pyserve.aio import Channel
from pyserve.aio.certificates import MeshTls, mesh_tls
from pyserve.aio.mesh_channel import Redial, dial, proof
from pyserve.bridge import raise_descriptor_limit
from pyserve.config import (
    MeshSettings,
    ProxyLocation,
    check_address,
    default_addresses,
    older_names,
    read_settings,
)
from pyserve.config.control import SHUTDOWN_GRACE_S
from pyserve.control.discovery import find_mesh
from pyserve.control.server.transport import RpcError
from pyserve.errors import MeshError, PyserveError, UsageError
from pyserve.folders import PrivateFolder, RunFolder, remove_unused
from pyserve.gateway.front import IngressFront
from pyserve.gateway.ingress import IngressServer
from pyserve.gateway.registration import IngressRegistration
from pyserve.gateway.security import IngressSecurity
from pyserve.observe.logs.formats import said
from pyserve.observe.logs.sink import set_up_logging
from pyserve.observe.metrics import ProcessMetrics
from pyserve.replica.endpoints import advertised_host
from pyserve.routing.watcher import Way
from pyserve.types import MeshAddress
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2, mesh_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# A controller that takes the ingress in answers at once.
_KNOWN_TIMEOUT_S = 10.0
# Of a first look at a controller, which is on this machine or close by.
_LOOK_TIMEOUT_S = 10.0
# A controller's answers to an ingress that it never accepts: another token, another version.
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an ingress as ``serve`` does; the entry point of this module as a program."""
    options = _parse(arguments)
    try:
        held = [_inherited(each) for each in options.listen_fd]
        return serve(options.address, options.report_fd, options.liveness_fd, held=held)
    except (PyserveError, OSError) as error:
        if options.report_fd is None:
            sys.stderr.write(f"pyserve: error: {error}\n")
        else:
            tell(options.report_fd, {"error": str(error)})
        return 1


def serve(
    addresses: Sequence[str],
    report_fd: int | None = None,
    liveness_fd: int | None = None,
    *,
    held: Sequence[socket.socket] = (),
) -> int:
    """Run an ingress in this process until it is told to end.

    Args:
        addresses: ``host:port`` each; port 0 picks one. None: as settings say, else port 8000.
        report_fd: pipe for lines of JSON: where it listens, then that the mesh ends. ``None``:
            lines for people, on standard output.
        liveness_fd: pipe that nobody writes to; the ingress drains when its other end closes.
            ``None``: it does so by a signal, or with the mesh.
        held: sockets that the starter has bound and keeps; in place of ``addresses``.

    Returns:
        0 after a drain, 1 if it was cut short.

    Raises:
        PyserveError: it could not serve; the text says why and what to do.
    """
    # Before the ingress computes how many clients it has room for.
    raise_descriptor_limit()
    settings = read_settings()
    for line in older_names():
        sys.stderr.write(f"{said(line, settings.logs.encoding, 'ingress', logging.WARNING)}\n")
    for address in addresses:
        check_address("--address", address)
    if settings.ingress.location is ProxyLocation.Disabled:
        raise UsageError(
            "PYSERVE_INGRESS_LOCATION=Disabled is for meshes without an ingress; take the variable "
            "away to start one"
        )
    if not held:
        addresses = tuple(addresses) or default_addresses(settings)
    sink = set_up_logging("ingress", settings.logs)
    say = partial(_say, settings, report_fd)
    try:
        with _run_folder(settings.home) as run_dir:
            process = IngressProcess(addresses, settings, run_dir, say=say, held=held)
            return asyncio.run(process.run_alone(liveness_fd))
    finally:
        sink.close()


class IngressProcess:
    """The life of one ingress process.

    Args:
        addresses: where it listens, unless sockets are held.
        settings: of the process.
        run_dir: for its sockets.
        say: takes a report for the process that started it, and the same as a line for people.
        held: see ``serve``.
        is_of_driver: the mesh ends with the process that started it.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        settings: MeshSettings,
        run_dir: Path,
        *,
        say: Callable[[Mapping[str, object], str], None],
        held: Sequence[socket.socket] = (),
        is_of_driver: bool = False,
    ) -> None:
        self._addresses = addresses
        self._held = held
        self._settings = settings
        self._run_dir = run_dir
        self._say = say
        self._is_of_driver = is_of_driver
        self._tls = mesh_tls(settings.node.tls)
        self._token = b""
        self._ingress: IngressServer | None = None
        self._registration: IngressRegistration | None = None
        self._metrics = ProcessMetrics("ingress")
        self._admin: AdminServer | None = None
        self._draining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._status = 0

    async def run_alone(self, liveness_fd: int | None) -> int:
        """Do what ``run`` does; signals drain it, and the end of its starter."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        if liveness_fd is not None:
            loop.add_reader(liveness_fd, self._on_orphaned, liveness_fd)
        return await self.run()

    async def run(self) -> int:
        """Serve until the end; return the exit status."""
        follower = None if self._tls is None else asyncio.create_task(self._tls.follow())
        serving = asyncio.create_task(self._serve())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # It could not begin, and this says why.
                await ended
            return self._status
        finally:
            begun: list[asyncio.Task[Any] | None] = [serving, ended, follower]
            begun += [self._draining, self._ending]
            tasks = [task for task in begun if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._admin is not None:
                await self._admin.close()
            if self._ingress is not None:
                await self._ingress.stop()

    async def _serve(self) -> None:
        controller = await _find(self._settings, self._tls)
        self._token = controller.token
        settings = self._settings
        ingress = self._ingress = IngressServer(
            self._addresses,
            held=self._held,
            controller=controller,
            node=settings.node,
            run_dir=self._run_dir,
            tls=self._tls,
            security=IngressSecurity(settings.security),
            settings=settings.ingress,
            defaults=settings.routing,
            tracing=settings.tracing,
            logs=settings.logs,
            way=Way(locate=self._locate, beside=self._attend),
        )
        registration = self._registration = IngressRegistration(
            controller.token, ingress, self._on_mesh_end
        )
        self._metrics.add(ingress.add_metrics)
        if self._tls is not None:
            self._metrics.add(self._tls.add_metrics)
        self._start_admin(ingress, controller)
        await ingress.start()
        try:
            await registration.wait_known(_KNOWN_TIMEOUT_S)
        except TimeoutError:
            _LOGGER.warning("the controller does not take this ingress in yet; it serves already")
        self._say(
            {"addresses": ingress.addresses},
            f"the ingress listens at {' and '.join(ingress.addresses)} (process {os.getpid()})",
        )

    def _start_admin(self, ingress: IngressServer, controller: MeshAddress) -> None:
        """Start the admin server, before the ingress registers with the controller."""
        settings = self._settings
        self._admin = make_admin(
            settings,
            own=self._metrics,
            token=controller.token,
            home=settings.home,
            run_dir=self._run_dir,
            status=self._mesh_status,
            front=IngressFront(ingress),
            is_of_driver=self._is_of_driver,
        )
        if self._admin is not None:
            self._admin.start()
            host = self._admin.address.rpartition(":")[0]
            reached_at = advertised_host(settings.node, controller.controller, host)
            ingress.admin = advertised_address(settings.node, self._admin.address, reached_at)

    async def _mesh_status(self) -> control_pb2.StatusReply:
        return await mesh_status(self._locate(), self._tls)

    async def _attend(self, channel: Channel) -> None:
        assert self._registration is not None, "there is no view before it follows"
        await self._registration.attend(channel)

    def _locate(self) -> MeshAddress | None:
        """Return where the controller is now; end where it is that of another mesh."""
        try:
            found = find_mesh(self._settings)
        except MeshError as error:
            _LOGGER.warning("%s", error)
            return None
        if found is not None and not secrets.compare_digest(found.token, self._token):
            _LOGGER.error(
                "the mesh has another token than before: this ingress ends, since the replicas of "
                "that mesh would not take its calls"
            )
            self._status = 1
            self._ended.set()
            return None
        return found

    @property
    def is_draining(self) -> bool:
        """Say whether it takes nothing more."""
        return self._draining is not None

    def end(self) -> None:
        """Drain at the first call, such as for a signal, and end at the second."""
        if self._ingress is None or not self._ingress.addresses:
            self._ended.set()
        elif self._draining is None:
            self._drain(SHUTDOWN_GRACE_S)
        else:
            self._status = 1
            self._ended.set()

    def _on_orphaned(self, liveness_fd: int) -> None:
        asyncio.get_running_loop().remove_reader(liveness_fd)
        self.end()

    def _on_mesh_end(self, grace_s: float) -> asyncio.Task[None]:
        self._say({"ends": "mesh"}, "the mesh ends, and this ingress with it")
        return self._drain(grace_s)

    def _drain(self, grace_s: float) -> asyncio.Task[None]:
        """Begin to drain, unless it has begun; the process ends after it."""
        assert self._ingress is not None, "it serves"
        if self._draining is None:
            self._draining = asyncio.create_task(self._ingress.drain(grace_s))
            self._ending = asyncio.create_task(self._drain_and_end(self._draining))
        return self._draining

    async def _drain_and_end(self, drain: asyncio.Task[None]) -> None:
        assert self._registration is not None, "it serves"
        try:
            await drain
            await self._registration.finish()
        finally:
            self._ended.set()


async def _find(settings: MeshSettings, tls: MeshTls | None) -> MeshAddress:
    """Wait for a controller that takes this ingress.

    Raises:
        MeshError: it refuses this ingress, or its token is not at hand.
    """
    redial = Redial()
    told = False
    while True:
        found = find_mesh(settings)
        if found is not None and await _answers(found, tls):
            return found
        if not told:
            where = settings.controller or f"below {settings.home}"
            _LOGGER.warning("no controller answers %s; this ingress waits for one", where)
            told = True
        await redial.pause()


async def _answers(controller: MeshAddress, tls: MeshTls | None) -> bool:
    """Return whether a controller sends views; raise if it never will."""
    # Of no deployment, because only the answer matters.
    request = mesh_pb2.WatchRequest(version=version())
    async with dial(controller.controller, tls) as channel:
        stub: mesh_pb2_grpc.MeshAsyncStub = mesh_pb2_grpc.MeshStub(channel)
        call = stub.Watch(request, metadata=proof(controller.token), timeout=_LOOK_TIMEOUT_S)
        try:
            async for _ in call:
                return True
        except RpcError as error:
            if error.code() in _REFUSALS:
                raise MeshError(
                    f"the controller at {controller.controller} refuses this ingress: "
                    f"{error.details()}"
                ) from None
            _LOGGER.info("%s: %s", controller.controller, error.details())
        finally:
            call.cancel()
    return False


@contextlib.contextmanager
def _run_folder(home: Path) -> Iterator[Path]:
    """Have a folder for sockets below the home directory; remove those of processes that died."""
    try:
        folder = PrivateFolder(home, make=True)
        try:
            for left in home.glob("mesh-*"):
                remove_unused(left)
            run = RunFolder(folder)
        finally:
            folder.close()
    except OSError as error:
        raise MeshError(
            f"{home} cannot hold the files of an ingress: {error.strerror}; set PYSERVE_HOME to a "
            f"directory that you may write to"
        ) from error
    try:
        yield run.path
    finally:
        run.close()


def _inherited(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    # Processes that this one starts do not get it.
    found.set_inheritable(False)
    return found


def _say(
    settings: MeshSettings, report_fd: int | None, answer: Mapping[str, object], line: str
) -> None:
    if report_fd is not None:
        tell(report_fd, answer)
    else:
        sys.stdout.write(f"{said(line, settings.logs.encoding, 'ingress')}\n")
        sys.stdout.flush()


def tell(report_fd: int, answer: object) -> None:
    """Report to the process that started this one, by a line of JSON on its pipe."""
    # The reader may have given up; then the report is not needed.
    with contextlib.suppress(BrokenPipeError):
        os.write(report_fd, f"{json.dumps(answer)}\n".encode())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pyserve.gateway", description="One ingress; it follows a controller."
    )
    parser.add_argument(
        "--address",
        action="append",
        default=[],
        help="host:port to listen at, may be repeated; port 0 picks one",
    )
    parser.add_argument(
        "--listen-fd",
        action="append",
        default=[],
        type=int,
        help="bound socket to listen at, in place of addresses; may be repeated",
    )
    parser.add_argument("--report-fd", type=int, help="pipe for lines of JSON")
    parser.add_argument("--liveness-fd", type=int, help="pipe whose end is the starter's own")
    return parser.parse_args(arguments)


# Asks a controller how its mesh is, for an ingress that is a process of its own.

# A controller asks every ingress first, and waits a second for one that is stuck.
_TIMEOUT_S = 5.0


async def mesh_status(
    controller: MeshAddress | None, tls: MeshTls | None
) -> control_pb2.StatusReply:
    """Return the state of the mesh.

    Raises:
        ConnectionError: No controller answers.
    """
    if controller is None:
        raise ConnectionError("the mesh has no controller now")
    async with dial(controller.controller, tls) as channel:
        stub: control_pb2_grpc.ControlAsyncStub = control_pb2_grpc.ControlStub(channel)
        try:
            return await stub.Status(
                control_pb2.StatusRequest(), metadata=proof(controller.token), timeout=_TIMEOUT_S
            )
        except RpcError as error:
            raise ConnectionError(f"{controller.controller}: {error.details()}") from error
