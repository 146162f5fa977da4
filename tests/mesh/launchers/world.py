"""A controller with its server and one launcher, in the test's own loop; no ingress."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pyserve.api.code import import_attribute
from pyserve.api.graph import pack
from pyserve.config.launchers import LauncherConfig
from pyserve.control.controller import Controller
from pyserve.control.server.ingresses import Ingresses
from pyserve.control.server.keeper import TcpListener, UnixListener
from pyserve.control.server.service import add_services
from pyserve.control.server.transport import Server, TcpPlace, make_server
from pyserve.control.state.mesh import Replica
from pyserve.control.state.specs import Run
from pyserve.control.store import SqliteStore
from pyserve.driver.client import spec_of
from pyserve.launch import LastingLauncher, Launcher, Site, make_launcher
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId
from pyserve.wire.v1 import control_pb2
from tests.mesh.commands import ROOT
from tests.support.waiting import eventually

TIMEOUT_S = 40.0
SHOP = ApplicationName("shop")


@dataclass(frozen=True)
class Engine:
    """One launcher, and what is particular to it.

    Attributes:
        name: of the launcher, or its import path.
        is_lasting: its replicas outlive it.
        starts: it starts replicas itself; of others somebody else does.
        knows_ends: it tells how replicas have ended.
        refuses: an option that it cannot act upon, and a value.
        options: what it is told besides.
        host: where its replicas reach the controller over TCP; "": they are on this machine.
    """

    name: str
    is_lasting: bool = False
    starts: bool = True
    knows_ends: bool = True
    refuses: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    host: str = ""

    @property
    def label(self) -> str:
        """Its name in the names of tests."""
        return f"{self.name.partition(':')[0]}{'-lasting' if self.is_lasting else ''}"


class World:
    """One controller after another on one folder, and the replicas that others have started."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.lines: list[str] = []
        self.launcher: Launcher
        self.controller: Controller
        self._token = secrets.token_bytes(16)
        self._token_file = folder / "token"
        self._token_file.touch(0o600)
        self._token_file.write_text(self._token.hex())
        self._listener: UnixListener
        self._tcp: TcpListener
        self._port = 0
        self._others: list[asyncio.subprocess.Process] = []
        self._children: list[subprocess.Popen[bytes]] = []
        for name in ("run", "home"):
            (folder / name).mkdir(0o700)

    @property
    def address(self) -> str:
        """Where the controller listens."""
        return f"unix:{self.folder / 'c.sock'}"

    async def begin(self) -> None:
        """Start a controller, on what the one before has left."""
        host = self.engine.host
        place = TcpPlace(f"{host}:{self._port}", host) if host else None
        self._tcp = TcpListener(place, self._make_server, None)
        self.launcher = make_launcher(LauncherConfig(name=self.engine.name), self._site())
        await self.launcher.open()
        store = SqliteStore(self.folder / "home" / "mesh.sqlite3") if self._is_restarted() else None
        self.controller = Controller(self.launcher, development=True, store=store)
        if store is not None:
            self.controller.resume()
        self._listener = UnixListener(self.folder / "c.sock", self._make_server)
        await self._listener.open()
        if host:
            await self._tcp.open()
            self._port = int(self._tcp.address.rpartition(":")[2])

    def _is_restarted(self) -> bool:
        return self.engine.is_lasting or not self.engine.starts

    def _site(self) -> Site:
        return Site(
            controller=self._address,
            controller_tcp=lambda: self._tcp.address or self.engine.host,
            token_file=self._token_file,
            token=self._token,
            run_dir=self.folder / "run",
            home=self.folder / "home",
            is_lasting=self.engine.is_lasting,
            options=self.engine.options,
            on_line=self.lines.append,
            on_output=self._keep,
        )

    async def _address(self) -> str:
        return self.address

    def _keep(self, key: DeploymentKey, replica_id: ReplicaId, line: str) -> None:
        self.controller.output.add(key, replica_id, line)

    def _make_server(self) -> Server:
        server = make_server(self._token)
        add_services(server, self.controller, self._shut_down, Ingresses(), self._leave)
        return server

    async def _shut_down(self, grace_s: float) -> None:
        await self.controller.drain(grace_s)

    async def _leave(self, *_: object) -> Sequence[Run]:
        return ()

    async def end(self) -> None:
        """End everything, whatever state it is in."""
        for process in self._others:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await self.controller.close()
        await self._close_listeners()
        for child in self._children:
            await asyncio.to_thread(child.wait, TIMEOUT_S)

    async def lose_controller(self) -> None:
        """Let the controller be gone without a word to its replicas."""
        self.controller.recovery._recorder.close()
        if isinstance(self.launcher, LastingLauncher):
            # They are this process's children all the same, which it has to ask for in the end.
            processes = getattr(self.launcher, "_processes", {}).values()
            self._children += [each._child for each in processes]
            self.launcher.let_go()
        await self._close_listeners()
        await self.controller.close()

    async def _close_listeners(self) -> None:
        await self._listener.close(0)
        await self._tcp.close(0)

    def deploy(self, name: str, count: int = 1, **options: object) -> None:
        """Ask for replicas of one of the apps, as a driver does."""
        found = import_attribute(f"tests.mesh.launchers.apps:{name}")
        packed = pack(found, SHOP)  # type: ignore[arg-type]  # an application, by its name
        (deployment,) = packed.deployments
        wanted = deployment.options.updated({"num_replicas": count, **options})
        spec = spec_of(packed, deployment)
        spec.options_json = wanted.to_json()
        self.controller.deploy(
            control_pb2.DeployRequest(
                application=SHOP, deployments=[spec], ingress_deployment=deployment.name
            )
        )

    async def serve(self, name: str, count: int = 1) -> list[Replica]:
        """Start replicas of one of the apps by any launcher, and wait until they serve."""
        if self.engine.starts:
            self.deploy(name, count)
        else:
            for _ in range(count):
                await self.start_another(name)
        await eventually(lambda: count == len(self.serving()), TIMEOUT_S)
        return self.serving()

    async def start_another(self, name: str) -> None:
        """Start a replica that no launcher knows of."""
        with (self.folder / "others.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "pyserve", "replica"),
                f"tests.mesh.launchers.apps:{name}",
                *("--deployment", name.capitalize(), "--application", SHOP),
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYSERVE_HOME": str(self.folder / "home"),
                    "PYSERVE_CONTROLLER": self.address,
                    "PYSERVE_TOKEN_FILE": str(self._token_file),
                    "PYSERVE_METRICS_PORT": "",
                },
                stdout=output,
                stderr=output,
            )
        self._others.append(process)

    def serving(self) -> list[Replica]:
        """Return the replicas that serve."""
        return [each for each in self.controller.state.replicas.values() if each.serves]

    def ended(self) -> str:
        """Return how those have ended that were not to, one line each."""
        (key,) = self.controller.state.deployments
        return "\n".join(each.summary for each in self.controller.output.ended(key))

    def last_lines(self, replica: Replica) -> list[str]:
        """Return what a replica that has ended wrote last."""
        ended = self.controller.output.ended(replica.key)
        return [line for each in ended if each.replica_id == replica.id for line in each.lines]


def kill(replica: Replica) -> None:
    """Kill a replica's process from outside."""
    os.kill(replica.pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    """Say whether a process has ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def unknown() -> ReplicaId:
    """Return the id of a replica that nobody has started."""
    return ReplicaId("Plain#zzzzz")


@asynccontextmanager
async def standing(engine: Engine) -> AsyncIterator[World]:
    """Have a world for a test; what failed in it is shown with its last lines."""
    # Short, because the path of a Unix socket has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pyserve-launchers-", dir="/tmp"))
    world = World(engine, folder)
    await world.begin()
    try:
        yield world
    except BaseException as error:
        error.add_note("\n".join(world.lines[-50:]))
        raise
    finally:
        await world.end()
        shutil.rmtree(folder, ignore_errors=True)
