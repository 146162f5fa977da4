"""The mesh that this process drives: attached to, or started as a child and owned."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pyserve.api.context import attach, attachment
from pyserve.config import (
    MeshSettings,
    TracingSettings,
    default_addresses,
    older_names,
    read_settings,
    unknown_names,
)
from pyserve.config.control import (
    CONTROLLER_RETURN_TIMEOUT_S,
    CONTROLLER_START_TIMEOUT_S,
    KILL_MARGIN_S,
    SHUTDOWN_GRACE_S,
)
from pyserve.config.environment import read_tracing
from pyserve.control.discovery import find_mesh, wait_while_held
from pyserve.control.returning import wait_for_next
from pyserve.driver.client import ControlClient
from pyserve.driver.ingress_options import IngressOptions
from pyserve.driver.progress import Draining
from pyserve.errors import MeshError, MeshHeld, RuntimeForked
from pyserve.installed import check
from pyserve.launch import MeshProcess
from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity
from pyserve.routing.in_process import InProcessRouter
from pyserve.types import MeshAddress

if TYPE_CHECKING:
    import asyncio

    from pyserve import aio
    from pyserve.api.handles.calls import Caller
    from pyserve.control.state.specs import Run
    from pyserve.driver.screen import Screen
    from pyserve.references import References
    from pyserve.types import DeploymentKey
    from pyserve.wire.v1 import control_pb2


# An ingress joins its controller in some 30 ms.
_INGRESS_LOOK_INTERVAL_S = 0.02


class Session:
    """A driver's connection to its mesh; handles of this process go through it.

    Attributes:
        address: The controller.
        process: The child that runs the mesh, ``None`` when this driver attached to another's.
        screen: The terminal, where this driver shows what its mesh has to; ``None``: there is none.
        client: Calls to the controller.
        serving: The applications that ``run`` has deployed here, with their deployments.
    """

    def __init__(
        self,
        address: MeshAddress,
        process: MeshProcess | None,
        screen: Screen | None = None,
        router: InProcessRouter | None = None,
    ) -> None:
        self.address = address
        self.process = process
        self.screen = screen
        self.serving: dict[str, Collection[str]] = {}
        settings = read_settings()
        # The ingress's delay before it drains, if it has the same environment as this process.
        self._drain_s = settings.ingress.drain_s
        self.client = ControlClient(address, settings.node.tls)
        # A replica has one, which serves its handles too.
        self._owns_router = router is None
        self._router = router or InProcessRouter(
            address,
            settings.node,
            settings.run_dir,
            settings.routing,
            shows_metrics=settings.metrics.port is not None,
        )

    def open_channel(self, key: DeploymentKey) -> aio.Channel:
        """Return a channel that is routed in this process to one deployment's replicas."""
        return self._router.open_channel(key)

    @property
    def references(self) -> References:
        """The values that this process holds, and its way to those of others."""
        return self._router.references

    def caller(self, key: DeploymentKey) -> Caller:
        """Return what makes the calls of handles to one deployment."""
        return self._router.caller(key)

    def await_view(self, version: int) -> None:
        """Wait until the handles of this process know a version of the controller's view.

        Raises:
            MeshUnavailable: The controller does not send it.
        """
        self._router.await_view(version)

    def prepare(self) -> None:
        """Start what the first call of a handle will need."""
        self._router.prepare()

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for calls from threads without a running loop."""
        return self._router.calls_loop()

    def is_running(self) -> bool:
        """Return whether the mesh runs, as far as is known without a question to it."""
        return self.process is None or self.process.poll() is None

    def leave(self, run: Run, grace_s: float = SHUTDOWN_GRACE_S) -> Sequence[int]:
        """End a run: what it deployed last, and its own mesh unless another run needs it.

        Returns:
            Process ids of the runs that the mesh stays for.
        """
        with Draining(self.client, self.screen):
            others = self.client.leave(run, grace_s)
        if others and self.process is not None:
            # In this order, so that a signal never finds a mesh of others to kill.
            process, self.process = self.process, None
            process.let_go()
        return others

    def shutdown(self, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Drain and end the whole mesh, also one that this driver only attached to."""
        try:
            if self.is_running():
                with Draining(self.client, self.screen):
                    self.client.shutdown(grace_s, margin_s=self._drain_s)
        finally:
            self.close(grace_s)

    def close(self, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Let go of the mesh; one that this driver owns drains and ends. Idempotent."""
        if self._owns_router:
            self._router.close()
        self.client.close()
        if self.process is not None:
            self.process.close(grace_s + self._drain_s + 2 * KILL_MARGIN_S)
        if self.screen is not None:
            self.screen.close(has_ended=self.process is not None)


def current_session() -> Session | None:
    """Return the session of this process, if there is one whose mesh still lives.

    In a replica it is one of the mesh that the replica is in.

    Raises:
        RuntimeForked: This process is a fork of the one that opened the session.
    """
    mesh = attachment()
    if mesh is None:
        return None
    if isinstance(mesh, InProcessRouter):
        return _session_of_replica(mesh)
    assert isinstance(mesh, Session), "drivers and replicas have one of the two"
    if mesh.is_running():
        return mesh
    end_session()
    return None


@lru_cache(maxsize=1)
def _session_of_replica(router: InProcessRouter) -> Session:
    return Session(router.controller, None, router=router)


def open_session(
    addresses: Sequence[str] | None = None,
    settings: MeshSettings | None = None,
    options: IngressOptions | None = None,
    run: Run | None = None,
    environment: Mapping[str, str] | None = None,
) -> Session:
    """Return the session of this process; attach to a running mesh or start one if need be.

    Args:
        addresses: Where the ingress of a mesh that is started listens, and that of a running one
            has to; ``None``: as the options say, else the default.
        settings: Which mesh; by default what the environment says.
        options: What its ingress shall be. Of a mesh that runs, only the time limit of requests
            can be changed.
        run: The ``pyserve run`` that this process is.
        environment: Further variables of a mesh that is started.

    Raises:
        MeshError: The mesh cannot be reached or started; the text says why and what to do.
    """
    options = options or IngressOptions()
    session = current_session()
    tracing = read_tracing(options.environment())
    if session is not None:
        asked = _asked(addresses, options)
        if asked:
            _check_addresses(asked, _status(session.client, asked).addresses)
        options.apply(session.client)
    else:
        variables = {**options.environment(), **(environment or {})}
        settings = settings or read_settings()
        session = _attach_or_start(addresses, settings, options, run, variables)
        if run is None:  # A command makes no calls of its own.
            _trace(tracing)
        attach(session)
        atexit.register(_end_at_exit)
    return session


def find_session(settings: MeshSettings | None = None) -> Session | None:
    """Return the session of this process, or one attached to a running mesh; start none.

    Args:
        settings: Which mesh, for a command, which makes no calls that could be traced; ``None``:
            what the environment says, for a script.
    """
    session = current_session()
    if session is None:
        address = find_mesh(settings or read_settings())
        if address is not None:
            session = Session(address, None)
            if settings is None:
                _trace(read_tracing({}))
            attach(session)
            atexit.register(_end_at_exit)
    return session


def await_session(settings: MeshSettings | None = None) -> Session | None:
    """Do what ``find_session`` does; where a controller was killed, wait for the next one."""
    session = find_session(settings)
    if session is None and _is_followed(settings or read_settings()):
        session = find_session(settings)
    return session


def _is_followed(settings: MeshSettings) -> bool:
    """Say whether another controller has taken the place of one that was killed; it may take it."""
    return settings.controller is None and wait_for_next(settings.home, CONTROLLER_RETURN_TIMEOUT_S)


def _trace(settings: TracingSettings) -> None:
    """Trace the calls of this process's handles, if the settings say so.

    Before the end of the session is arranged: it brings the last spans, and exporters end after it.
    """
    node = read_settings().node.node_id
    instance = f"{node}-{os.getpid()}"
    identity = ProcessIdentity(service="pyserve-driver", instance=instance, node=node)
    PROCESS_TRACING.start(settings, identity)


def end_session() -> None:
    """Close the session of this process, if there is one. An owned mesh ends with it."""
    atexit.unregister(_end_at_exit)
    try:
        session = attachment()
    except RuntimeForked:  # The parent's mesh is not ours to end.
        return
    if isinstance(session, Session):
        attach(None)
        session.close()


def _end_at_exit() -> None:
    # A program whose output another one reads knows what it does.
    if (serving := _serving()) and sys.stderr.isatty():
        sys.stderr.write(
            f"pyserve: the program ends, and what it serves with it ({', '.join(serving)}); "
            f"pyserve.run(..., blocking=True) goes on until Ctrl-C, and pyserve.shutdown() ends "
            f"it without this line\n"
        )
    end_session()
    # Calls that errors have kept go before grpc's threads do, as in ``pyserve.cli.commands``.
    gc.collect()


def _serving() -> list[str]:
    """Return the applications that end with this process."""
    try:
        session = attachment()
    except RuntimeForked:  # They are the parent's.
        return []
    if not isinstance(session, Session) or session.process is None or not session.is_running():
        return []
    return sorted(session.serving)


def _warn(line: str) -> None:
    sys.stderr.write(f"pyserve: warning: {line}\n")


def warn_of_names(warn: Callable[[str], object] = _warn) -> None:
    """Write a line on each variable that has an older name, or looks like a setting and is none.

    For drivers and commands: one process of a mesh says it, not all of them.

    Args:
        warn: Writes it, by default to standard error.

    Raises:
        OptionError: A variable has a value that cannot be used.
    """
    for line in older_names():
        warn(line)
    warn_of_unknown_names(warn)


def warn_of_unknown_names(warn: Callable[[str], object] = _warn) -> None:
    """Do so for the latter only.

    Raises:
        OptionError: A variable has a value that cannot be used.
    """
    for line in unknown_names():
        warn(line)


def _attach_or_start(
    addresses: Sequence[str] | None,
    settings: MeshSettings,
    options: IngressOptions,
    run: Run | None,
    environment: Mapping[str, str],
) -> Session:
    warn_of_names()
    if find_mesh(settings) is None:
        # A mesh of its own would take the home that the next controller is about to have.
        _is_followed(settings)
    deadline = time.monotonic() + CONTROLLER_START_TIMEOUT_S
    while (address := find_mesh(settings)) is None:
        try:
            return _start(addresses, settings, options, run, environment)
        except MeshHeld:
            sys.stderr.write("pyserve: another mesh starts or ends here; waiting for it\n")
            if not wait_while_held(settings.home, deadline) or time.monotonic() >= deadline:
                raise
    session = Session(address, None)
    reply = _status(session.client, _asked(addresses, options))
    sys.stderr.write(
        f"pyserve: attached to the mesh of process {reply.controller_pid} "
        f"at {', '.join(reply.addresses) or address.controller}\n"
    )
    for warning in _without_effect(addresses, settings, reply):
        sys.stderr.write(f"pyserve: warning: {warning}\n")
    # Of files that options name, ``apply`` says it.
    of_variables = settings.security.tls is not None and options.tls is None
    if of_variables and not reply.ingress.speaks_tls:
        sys.stderr.write(
            "pyserve: warning: the certificate in PYSERVE_TLS_CERT_FILE has no effect, because "
            "that mesh was started without one; clients speak to it in plain text\n"
        )
    try:
        _check_addresses(_asked(addresses, options), reply.addresses)
        options.apply(session.client)
    except BaseException:
        session.close()
        raise
    return session


def _start(
    addresses: Sequence[str] | None,
    settings: MeshSettings,
    options: IngressOptions,
    run: Run | None,
    environment: Mapping[str, str],
) -> Session:
    check()
    if addresses is None:
        addresses = options.addresses()
    screen = _screen(is_own=run is not None)
    pipe = None if screen is None else screen.open_pipe()
    try:
        process = MeshProcess.start(
            default_addresses(settings) if addresses is None else addresses,
            development=settings.development,
            run_id="" if run is None else run.id,
            environment=environment,
            screen=pipe,
        )
    finally:
        if pipe is not None:
            os.close(pipe)
    return Session(process.address(), process, screen)


def _screen(*, is_own: bool) -> Screen | None:
    if not sys.stderr.isatty():
        return None
    from pyserve.driver.screen import Screen

    return Screen(sys.stderr, is_own=is_own)


def _without_effect(
    addresses: Sequence[str] | None, settings: MeshSettings, reply: control_pb2.StatusReply
) -> Iterator[str]:
    """Yield what was asked for and cannot be had, because a mesh runs already."""
    instead = "end that mesh with `pyserve shutdown`, or set PYSERVE_HOME to another directory"
    present = ", ".join(reply.addresses)
    for address in addresses or ():
        if address.endswith(":0") and reply.addresses:
            yield f"{address} picks no port, because that mesh listens at {present}; {instead}"
    if settings.development and not reply.development:
        yield (
            "development mode has no effect, because that mesh was started without it: clients "
            f"are not told the texts of exceptions; {instead}"
        )


def _asked(addresses: Sequence[str] | None, options: IngressOptions) -> Sequence[str]:
    return options.asked_addresses() if addresses is None else addresses


def _status(client: ControlClient, asked: Sequence[str]) -> control_pb2.StatusReply:
    """Return the status; where addresses are asked for, once an ingress has said its own.

    A controller that has just started does not know them yet.
    """
    deadline = time.monotonic() + CONTROLLER_RETURN_TIMEOUT_S
    news = threading.Event()  # Never set: an ingress tells the controller, and nobody else.
    while True:
        reply = client.status()
        if reply.addresses or not asked or time.monotonic() >= deadline:
            return reply
        news.wait(_INGRESS_LOOK_INTERVAL_S)


def _check_addresses(asked: Sequence[str], present: Sequence[str]) -> None:
    """Refuse to take a mesh for one that listens elsewhere; port 0 is any port of the host.

    Raises:
        MeshError: The mesh does not listen where somebody wants it to.
    """
    hosts = {address.rpartition(":")[0] for address in present}
    for address in asked:
        host, _, port = address.rpartition(":")
        if address not in present and not (port == "0" and host in hosts):
            raise MeshError(
                f"a mesh runs already and listens at {', '.join(present)}, not at {address}; leave "
                f"the address out to use it, end it with `pyserve shutdown`, or set PYSERVE_HOME "
                f"to another directory"
            )
