"""``python -m pyserve.control``: a controller and its launcher in one process.

Ingresses are processes of their own. The launcher and the pages of the controller are wired to it
here, so it is the one module of this layer that imports those above it. It ends,
after a drain, when it gets SIGTERM or SIGINT, when ``Control.Shutdown`` is called, or when the
socket behind ``--liveness-fd`` closes because the process that started it is gone; other runs of
``pyserve run`` that follow keep it until they end. A second signal ends it at once.

With ``--persistent`` its state is kept in the home directory: a controller that is killed leaves
its replicas running, and the next one finds them; with ``--lease`` only while the keeper lives.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING

from pyserve.garbage import end_uncollected, importing, settle

end_uncollected()
with importing():
    from pyserve.aio.certificates import mesh_tls
    from pyserve.bridge import raise_descriptor_limit
    from pyserve.config import MeshSettings, older_names, read_settings
    from pyserve.config.control import (
        MESH_ENDS,
        MESH_STAYS,
        SHUTDOWN_GRACE_S,
        STATE_COPY_PERIOD_S,
    )
    from pyserve.control.controller import Controller
    from pyserve.control.discovery import MeshHome, MeshRecord
    from pyserve.control.server.ingresses import Ingresses, add_ingress_service
    from pyserve.control.server.keeper import Keeper, TcpListener, UnixListener
    from pyserve.control.server.service import add_services
    from pyserve.control.server.transport import Server, make_server, same_place, tcp_place
    from pyserve.control.state.specs import Run
    from pyserve.control.store import Copies, SqliteStore
    from pyserve.errors import MeshError, MeshHeld, PyserveError, UsageError
    from pyserve.launch import (
        LastingLauncher,
        Site,
        can_find_again,
        make_launcher,
        notices_of,
        open_home,
        report,
    )
    from pyserve.observe.logs.formats import said
    from pyserve.observe.logs.sink import LogSink, set_up_logging
    from pyserve.observe.metrics import ProcessMetrics, ScrapePoint, on_loop
    from pyserve.types import DeploymentKey, MeshAddress, ReplicaId
    from pyserve.version import version
    from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from pyserve.admin import AdminServer
    from pyserve.control.server.rest import RestServer

_LOGGER = logging.getLogger(__name__)
# For the reply to Shutdown and the last messages of streams, the only ones still waited for.
_SERVER_GRACE_S = 0.5
_SOCKET = "controller.sock"
_STATE = "mesh.sqlite3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a mesh until it has to end; return 0 after a drain, 1 if it could not start."""
    options = _parse(arguments)
    raise_descriptor_limit()
    try:
        settings = read_settings()
        for line in older_names():
            warning = said(line, settings.logs.encoding, "controller", logging.WARNING)
            sys.stderr.write(f"{warning}\n")
        if options.persistent and not hasattr(os, "pidfd_open"):
            raise UsageError("--persistent needs Linux, where processes can be found again")
        sink = set_up_logging("controller", settings.logs, screen=options.screen_fd)
    except (PyserveError, OSError) as error:
        report(options.report_fd, {"error": str(error)})
        return 1
    try:
        with open_home(options, settings) as home:
            return asyncio.run(_run(options, settings, home, sink))
    except PyserveError as error:
        is_held = isinstance(error, MeshHeld)
        report(options.report_fd, {"error": str(error), "is_held": is_held})
        return 1
    finally:
        sink.close()


async def _run(
    options: argparse.Namespace, settings: MeshSettings, home: MeshHome, sink: LogSink
) -> int:
    mesh = _Mesh(options, settings, home, sink)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, mesh.on_signal)
    try:
        record = await mesh.start()
        if options.liveness_fd is not None:
            loop.add_reader(options.liveness_fd, mesh.on_liveness, options.liveness_fd)
        if options.keeper_fd is not None:
            loop.add_reader(options.keeper_fd, mesh.on_keeper_gone, options.keeper_fd)
        # The keeper has to know whether another controller would find the replicas.
        lasts = {} if options.keeper_fd is None else {"lasts": mesh.is_lasting}
        report(options.report_fd, {**json.loads(record.to_json()), **lasts})
        await mesh.ended.wait()
    finally:
        await mesh.close()
    return 1 if mesh.hurried else 0


class _Mesh:
    """The parts of one mesh, and the order in which they start and end."""

    def __init__(
        self,
        options: argparse.Namespace,
        settings: MeshSettings,
        home: MeshHome,
        sink: LogSink,
    ) -> None:
        self.ended = asyncio.Event()
        self.hurried = False
        self._shutdown: asyncio.Task[None] | None = None
        self._settings = settings
        self._home = home
        self._tls = mesh_tls(settings.node.tls)
        self._followers: list[asyncio.Task[None]] = []
        self._starter = options.run_id
        self._starter_is_gone = False
        self._ending: asyncio.Task[None] | None = None
        self._address = MeshAddress(controller=f"unix:{home.run_dir / _SOCKET}", token=home.token)
        self._is_kept = options.keeper_fd is not None and can_find_again(settings.launcher)
        self.is_lasting: bool = options.persistent or self._is_kept
        self._keeper_fd: int | None = options.keeper_fd if self._is_kept else None
        self._is_of_driver = options.liveness_fd is not None
        self._launcher = make_launcher(settings.launcher, self._site(sink))
        self._ingresses = Ingresses()
        state = (home.run_dir if self._is_kept else home.home) / _STATE
        store = SqliteStore(state) if self.is_lasting else None
        # What lives as long as a program needs none.
        self._copies = Copies(state, lambda: store.writes) if store and options.persistent else None
        self._controller = Controller(
            self._launcher,
            development=options.development,
            addresses=self._ingresses.addresses,
            ingress=self._ingresses.total,
            visible=self._ingresses.visible,
            say=lambda line: sink.tell(f"pyserve: {line}"),
            notices=lambda: [*self._notices(), *notices_of(self._launcher)],
            interval_s=settings.control_interval_s,
            store=store,
        )
        self._controller.runs.on_left = self._end_unless_followed
        self._controller.runs.on_lost = self._on_lost
        self._unix = UnixListener(home.run_dir / _SOCKET, self._make_server)
        former = home.former.controller_tcp if home.former is not None else ""
        self._tcp_place = same_place(tcp_place(settings), former)
        self._tcp = TcpListener(self._tcp_place, self._make_server, self._tls)
        self._keeper = Keeper(home, self._unix, self._tcp)
        self._metrics = self._make_metrics()
        self._scrape_point: ScrapePoint | None = None
        self._admin = None if options.no_admin else self._make_admin()
        # A mesh that ends with its driver is not for others.
        self._rest = (
            self._make_rest(settings.dashboard)
            if settings.dashboard is not None and not self._is_of_driver
            else None
        )

    def _site(self, sink: LogSink) -> Site:
        return Site(
            controller=self._controller_for_replicas,
            controller_tcp=self._controller_for_others,
            node=self._settings.node.node_id,
            token_file=self._home.token_file,
            token=self._home.token,
            run_dir=self._home.run_dir,
            home=self._settings.home,
            is_lasting=self.is_lasting,
            options=self._settings.launcher.options,
            on_line=sink.write_output,
            on_output=self._keep_output,
            spares=self._settings.spare_replicas,
            liveness=self._keeper_fd,
        )

    def _make_metrics(self) -> ProcessMetrics:
        metrics = ProcessMetrics("controller")
        loop = asyncio.get_running_loop()
        metrics.add(on_loop(loop, self._controller.add_metrics))
        metrics.add(on_loop(loop, self._ingresses.add_metrics))
        if self._tls is not None:
            metrics.add(self._tls.add_metrics)
        return metrics

    def _make_admin(self) -> AdminServer | None:
        from pyserve.admin import make_admin

        return make_admin(
            self._settings,
            own=self._metrics,
            token=self._home.token,
            home=self._home.home,
            run_dir=self._home.run_dir,
            status=self._status,
            front=None,
            is_of_driver=self._is_of_driver,
        )

    async def _status(self) -> control_pb2.StatusReply:
        await self._ingresses.look()
        reply = self._controller.status()
        reply.ingresses.extend(self._ingresses.statuses())
        return reply

    def _make_rest(self, address: str) -> RestServer:
        # Imported only here: meshes without REST need not load it.
        from pyserve.control.server.rest import RestServer

        return RestServer(
            self._controller,
            address=address,
            mesh=self._address,
            token_file=self._home.token_file,
            tls=self._settings.security.tls,
            takes_plain_token=self._settings.node.plain_tcp,
        )

    def _make_server(self) -> Server:
        server = make_server(self._home.token)
        add_services(server, self._controller, self.shut_down, self._ingresses, self.leave)
        add_ingress_service(server, self._ingresses)
        return server

    async def start(self) -> MeshRecord:
        """Start the controller; publish and return where it listens."""
        if self._tls is not None:
            self._follow(self._tls.follow())
        await self._launcher.open()
        if self.is_lasting:
            self._controller.resume()
        if self._copies is not None:
            self._follow(self._copies.keep(STATE_COPY_PERIOD_S))
        await self._unix.open()
        if self._tcp_place is not None:
            try:
                await self._tcp.open()
            except RuntimeError as error:
                text = f"the controller cannot listen for other machines: {error}"
                raise MeshError(text) from error
        self._show_metrics()
        if self._rest is not None:
            await self._rest.start()
        record = MeshRecord(
            controller=self._address.controller,
            controller_tcp=self._tcp.address,
            token_file=str(self._home.token_file),
            pid=os.getpid(),
            version=version(),
            addresses=tuple(self._ingresses.addresses()),
        )
        self._home.publish(record)
        # Among thousands of replicas a full collection stands in the way of news for 0.3 s.
        settle()
        self._follow(self._keeper.keep())
        return record

    def _show_metrics(self) -> None:
        """Show this process's metrics, through the ingress of this node or its own admin server."""
        if self._admin is None:
            # The ingress of this node shows it.
            if self._settings.metrics.port is not None:
                self._scrape_point = ScrapePoint(
                    self._metrics, self._home.run_dir, self._home.token
                )
            return
        from pyserve.admin import advertised_address

        self._admin.start()
        place = self._tcp_place
        self._controller.admin = advertised_address(
            self._settings.node, self._admin.address, "" if place is None else place.advertised_host
        )

    def _follow(self, work: Coroutine[None, None, None]) -> None:
        """Run a task beside the mesh, until the mesh ends."""
        task = asyncio.create_task(work)
        task.add_done_callback(_log_failure)
        self._followers.append(task)

    async def shut_down(self, grace_s: float) -> None:
        """Drain everything; the process ends after it. Later calls wait for the first one."""
        if self._shutdown is None:
            self._shutdown = asyncio.create_task(self._drain(grace_s, is_whole=True))
        # Shielded, because a caller that goes away must not stop the shutdown half-way.
        await asyncio.shield(self._shutdown)

    async def leave(self, run: Run, grace_s: float) -> Sequence[Run]:
        """End what a run deployed last; the mesh too if the run started it and no other follows.

        Returns:
            The runs that the mesh stays for.
        """
        others = self._controller.runs.others(run.id)
        if run.id == self._starter and not others:
            await self.shut_down(grace_s)
            return ()
        await self._controller.end_run(run.id)
        return others

    async def _drain(self, grace_s: float, *, is_whole: bool = False) -> None:
        """Drain this process's parts and replicas; ``is_whole``: every ingress of the mesh too."""
        loop = asyncio.get_running_loop()
        ingress = self._settings.ingress
        # Ingresses drain first, for all deployments at once; the replicas get the rest.
        grace_s = min(grace_s, self._controller.state.longest_grace_s())
        deadline = loop.time() + min(ingress.drain_s + grace_s, ingress.hard_stop_after_s)
        self._controller.ends_by = deadline
        try:
            # Else they go on with their last view, until another controller comes.
            if is_whole:
                # Not while ingresses take connections: who reconnects would be closed again.
                announced_s = min(ingress.drain_s, ingress.hard_stop_after_s)
                closing = loop.call_later(announced_s, self._controller.close_web_sockets)
                await self._ingresses.drain(grace_s, deadline - loop.time())
                closing.cancel()  # The end of replicas closes them too.
            await self._controller.drain(max(deadline - loop.time(), 0.0))
        finally:
            self._controller.runs.close()
            self.ended.set()

    def on_signal(self) -> None:
        """Drain at the first signal, end at the second.

        Applications of a persistent mesh come back after its next start, since service managers and
        a shutdown of the machine end it by a signal. Replicas in a cluster go on.
        """
        if self._shutdown is not None:
            self.hurried = True
            self.ended.set()
        elif self.is_lasting and self._launcher.capabilities.are_elsewhere:
            self.ended.set()
        else:
            self._controller.recovery.keep_applications()
            self._begin_end(SHUTDOWN_GRACE_S)

    def on_keeper_gone(self, descriptor: int) -> None:
        """The keeper, which has the ingress and starts controllers, is gone: everything ends."""
        asyncio.get_running_loop().remove_reader(descriptor)
        if self._shutdown is None:
            self._begin_end(0.0)
        else:  # Nobody waits for the drain any more.
            self.ended.set()

    def _begin_end(self, grace_s: float) -> None:
        self._shutdown = asyncio.create_task(self._drain(grace_s, is_whole=self._is_of_driver))

    def on_liveness(self, descriptor: int) -> None:
        """The process that started this one has ended, has let go of it, or is in a hurry."""
        others = self._controller.runs.others(self._starter)
        if os.read(descriptor, 1):
            with contextlib.suppress(OSError):  # It may have gone meanwhile.
                os.write(descriptor, MESH_STAYS if others else MESH_ENDS)
            if others:
                self._controller.hurry_run(self._starter)
            return
        asyncio.get_running_loop().remove_reader(descriptor)
        self._starter_is_gone = True
        self._end_unless_followed()
        if self._shutdown is None:
            self._ending = asyncio.create_task(self._controller.end_all_but(others))

    def _on_lost(self, run: Run) -> None:
        """A run is gone without leaving; for the starter, the liveness socket decides instead."""
        if self._shutdown is None and (run.id != self._starter or self._starter_is_gone):
            self._controller.lose_run(run)

    def _end_unless_followed(self) -> None:
        """End the mesh once its starter is gone, unless other runs still follow."""
        others = self._controller.runs.others(self._starter)
        if self._starter_is_gone and not others and self._shutdown is None:
            self._begin_end(SHUTDOWN_GRACE_S)

    async def close(self) -> None:
        """End every part, whatever state it is in."""
        if self._shutdown is not None:
            self._shutdown.cancel()
            await asyncio.wait([self._shutdown])
            if not self._shutdown.cancelled() and (error := self._shutdown.exception()):
                _LOGGER.error("the drain failed; what is left is killed", exc_info=error)
        if self._ending is not None:
            self._ending.cancel()
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        if self._rest is not None:
            await self._rest.close()
        if self._admin is not None:
            await self._admin.close()
        if self._scrape_point is not None:
            # It may wait for this loop.
            await asyncio.to_thread(self._scrape_point.close)
        if isinstance(self._launcher, LastingLauncher) and self._shutdown is None:
            # It could not start, so running replicas are left alone.
            self._launcher.let_go()
            await self._controller.close(goes_on=True)
        else:
            await self._controller.close()
            self._home.is_in_use = False
        if self._copies is not None:
            await asyncio.to_thread(self._copies.copy)
        listeners = (self._unix, self._tcp)
        await asyncio.gather(*(each.close(_SERVER_GRACE_S) for each in listeners))
        # The rest of the directory is its replicas' while they live.
        (self._home.run_dir / _SOCKET).unlink(missing_ok=True)

    def _controller_for_others(self) -> str:
        """Return the address at which other machines reach the controller once it listens there."""
        planned = "" if self._tcp_place is None else self._tcp_place.bind
        return self._tcp.address or planned

    async def _controller_for_replicas(self) -> str:
        return await self._keeper.controller()

    def _keep_output(self, key: DeploymentKey, replica_id: ReplicaId, line: str) -> None:
        self._controller.output.add(key, replica_id, line)

    def _notices(self) -> Sequence[str]:
        rest = [] if self._rest is None else [f"REST is answered at {self._rest.address}"]
        return [*rest, *self._keeper.notices()]


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log at once that a task beside the mesh has failed, since nothing awaits it."""
    if not task.cancelled() and (error := task.exception()):
        _LOGGER.error("%s has ended", task.get_coro(), exc_info=error)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what ``python -m pyserve.control`` is told; None: by this process's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m pyserve.control",
        description="The controller of a mesh and its launcher.",
    )
    parser.add_argument(
        "--no-admin", action="store_true", help="an ingress of this node shows the metrics"
    )
    parser.add_argument(
        "--development", action="store_true", help="texts of exceptions may reach clients"
    )
    parser.add_argument(
        "--liveness-fd", type=int, help="socket that the starter holds open; the mesh ends with it"
    )
    parser.add_argument(
        "--persistent",
        action="store_true",
        help="keep the applications in the home directory, for the next start, and let replicas "
        "outlive this process",
    )
    parser.add_argument(
        "--screen-fd", type=int, help="pipe for lines, to whoever draws on the terminal"
    )
    parser.add_argument(
        "--lease",
        help="descriptors and run directory of a home that the keeper of this process has; the "
        "state lies there",
    )
    parser.add_argument(
        "--keeper-fd", type=int, help="pipe that the keeper holds open; the mesh ends with it"
    )
    parser.add_argument("--run-id", default="", help="of the `pyserve run` that starts it")
    parser.add_argument(
        "--report-fd", type=int, help="pipe for one line of JSON: where it listens, or the error"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
