"""The ingresses of a mesh: their status reports, and a stream of commands to each.

Ingresses are processes of their own, which attend while they are connected. Nothing here decides
about deployments. For one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import grpc

from pyserve.control.server.transport import Server, converse
from pyserve.observe.metrics import Scrape
from pyserve.wire.v1 import control_pb2, ingress_pb2, ingress_pb2_grpc

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[ingress_pb2.IngressMessage, ingress_pb2.IngressCommand]

_LOGGER = logging.getLogger(__name__)
# An ingress answers in milliseconds; a request for the status waits at most this long.
_LOOK_TIMEOUT_S = 1.0
# An ingress has a view within 20 ms; a busy machine takes longer.
_SHOW_TIMEOUT_S = 10.0
# Commands that wait for an ingress to read them; one that leaves this many unread is stuck.
_COMMANDS_MAX = 64
# Ingresses that have gone are shown for a minute, the time for which restarts are remembered. If
# many come and go, the oldest are dropped.
_REMEMBERED_S = 60.0
_REMEMBERED_MAX = 100
# Time for the network and the event loops, in addition to that of the drain itself.
_DRAIN_MARGIN_S = 2.0


class IngressState(StrEnum):
    """The state of an ingress, with Ray Serve's names."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


@dataclass(eq=False, slots=True)
class RegisteredIngress:
    """One ingress in a process of its own, while its stream is open and for some time after.

    Attributes:
        status: its last report.
        is_silent: it did not answer in time.
        is_connected: its stream is open.
        since: Unix time of the last change of these.
    """

    status: control_pb2.IngressStatus
    since: float
    is_silent: bool = False
    is_connected: bool = True
    _number: int = 0
    _answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _commands: asyncio.Queue[ingress_pb2.IngressCommand | None] = field(
        default_factory=lambda: asyncio.Queue(_COMMANDS_MAX)
    )

    @property
    def state(self) -> IngressState:
        """Its state, as far as it is known here."""
        try:
            said = IngressState(self.status.state)
        except ValueError:  # Of a version with more states.
            said = IngressState.UNHEALTHY
        is_there = said is IngressState.DRAINED or (self.is_connected and not self.is_silent)
        return said if is_there else IngressState.UNHEALTHY

    async def next(self) -> ingress_pb2.IngressCommand | None:
        """Return the next command, ``None`` to end the stream."""
        return await self._commands.get()

    def send(self, command: ingress_pb2.IngressCommand) -> asyncio.Future[None]:
        """Queue a command; the future is done when it is answered, or the ingress has gone."""
        answer = asyncio.get_running_loop().create_future()
        self._number += 1
        command.number = self._number
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            self.end()
            answer.set_result(None)
        else:
            self._answers[self._number] = answer
        return answer

    def end(self) -> None:
        """End the stream."""
        while self._commands.full():
            self._commands.get_nowait()
        self._commands.put_nowait(None)

    def on_answer(self, number: int) -> None:
        """Note that a command has been carried out."""
        answer = self._answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def forget_answers(self) -> None:
        """Release all who wait for this ingress."""
        for number in list(self._answers):
            self.on_answer(number)


class Ingresses:
    """All ingresses of a mesh.

    Args:
        clock: Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._registered_ingresses: dict[str, RegisteredIngress] = {}
        self._settings: ingress_pb2.IngressSettings | None = None
        self._drain: ingress_pb2.DrainIngress | None = None

    # Events of the streams of ingresses.

    def attend(self, first: control_pb2.IngressStatus) -> RegisteredIngress:
        """Register an ingress; an earlier registration of the same process is dropped."""
        former = self._registered_ingresses.pop(first.id, None)
        if former is not None:
            former.end()
        registered = RegisteredIngress(first, self._clock())
        # A new one on a node takes the place of those that have gone.
        for each in [each for each in self._registered_ingresses.values() if not each.is_connected]:
            if each.status.node == first.node:
                del self._registered_ingresses[each.status.id]
        self._registered_ingresses[first.id] = registered
        if self._settings is not None:
            registered.send(ingress_pb2.IngressCommand(settings=self._settings))
        if self._drain is not None:
            registered.send(ingress_pb2.IngressCommand(drain=self._drain))
        return registered

    def hear(self, registered: RegisteredIngress, message: ingress_pb2.IngressMessage) -> None:
        """Take one message of an ingress that attends."""
        before, name = registered.state, registered.status.id
        registered.status = message.status
        registered.status.id = name
        registered.is_silent = False
        self._note_state(registered, before)
        registered.on_answer(message.answers)

    def leave(self, registered: RegisteredIngress) -> None:
        """Note that an ingress's stream has ended; it stays to be seen for a minute."""
        before = registered.state
        registered.is_connected = False
        self._note_state(registered, before)
        registered.forget_answers()
        self._forget_gone()
        if registered.state is IngressState.UNHEALTHY:
            status = registered.status
            _LOGGER.warning("lost the ingress of %s (process %d)", status.node, status.pid)

    def _note_state(self, registered: RegisteredIngress, before: IngressState) -> None:
        if registered.state is not before:
            registered.since = self._clock()

    # Queries.

    def addresses(self) -> Sequence[str]:
        """Return where they listen."""
        found = (address for each in self._connected() for address in each.status.addresses)
        # Two nodes that say the same host reach the same clients.
        return tuple(dict.fromkeys(found))

    def statuses(self) -> list[control_pb2.IngressStatus]:
        """Return the status of each of them, and of those that have gone in the last minute."""
        found = []
        self._forget_gone()
        for each in self._registered_ingresses.values():
            status = control_pb2.IngressStatus()
            status.CopyFrom(each.status)
            status.state, status.since = each.state, each.since
            status.message = _message(each)
            if not each.is_connected:
                # Nobody knows what is in it, if it is there at all.
                status.ClearField("in_flight_of_replica")
                status.in_flight = status.parked = 0
                del status.addresses[:]
            found.append(status)
        return found

    def total(self) -> control_pb2.IngressStatus:
        """Return all that are connected as if they were one."""
        parts = [each.status for each in self._connected()]
        listening = [each for each in parts if each.node]
        counts, of_replica = Counter[str](), Counter[str]()
        for each in parts:
            counts.update(each.counts)
            of_replica.update(each.in_flight_of_replica)
        return control_pb2.IngressStatus(
            in_flight=sum(each.in_flight for each in parts),
            parked=sum(each.parked for each in parts),
            in_flight_of_replica=of_replica,
            counts=counts,
            speaks_tls=any(each.speaks_tls for each in parts),
            node=listening[0].node if listening else "",
            is_draining=bool(listening) and all(each.is_draining for each in listening),
            deployments=_together(parts),
            uptime_s=max((each.uptime_s for each in listening), default=0.0),
            limits=listening[0].limits if listening else {},
        )

    def add_metrics(self, scrape: Scrape) -> None:
        """Add the state of each; in the loop of these."""
        for status in self.statuses():
            name, pid = "pyserve_ingress_status", str(status.pid)
            scrape.add(name, 1, ingress_node=status.node, ingress_pid=pid, status=status.state)

    # Commands.

    async def look(self) -> None:
        """Ask every ingress for its status, for a moment; one that does not answer is silent."""
        command = ingress_pb2.IngressCommand(look=ingress_pb2.Look())
        await self._ask(self._connected(), command, _LOOK_TIMEOUT_S)

    async def visible(self, version: int) -> None:
        """Wait until every ingress that takes calls knows a version of the view."""
        taking = [
            each
            for each in self._connected()
            if each.state in (IngressState.STARTING, IngressState.HEALTHY)
        ]
        command = ingress_pb2.IngressCommand(show=ingress_pb2.Show(version=version))
        await self._ask(taking, command, _SHOW_TIMEOUT_S)

    def set_request_timeout(self, timeout_s: float | None) -> None:
        """Set another default for all current and future ingresses; ``None``: no limit."""
        self._settings = ingress_pb2.IngressSettings(request_timeout_s=timeout_s or 0.0)
        for each in self._connected():
            each.send(ingress_pb2.IngressCommand(settings=self._settings))

    async def drain(self, grace_s: float, timeout_s: float) -> None:
        """Drain all of them: no new calls, a wait for the last ones, and then their end.

        Args:
            grace_s: how long calls may take after the last one was taken.
            timeout_s: how long to wait for their processes.
        """
        self._drain = ingress_pb2.DrainIngress(grace_s=grace_s)
        command = ingress_pb2.IngressCommand(drain=self._drain)
        await self._ask(self._connected(), command, timeout_s + _DRAIN_MARGIN_S)

    async def _ask(
        self,
        registered_ingresses: Sequence[RegisteredIngress],
        command: ingress_pb2.IngressCommand,
        timeout_s: float,
    ) -> None:
        """Send all of them a command and wait for the answers; a late ingress becomes silent."""
        waiting = {}
        for each in registered_ingresses:
            copy = ingress_pb2.IngressCommand()
            copy.CopyFrom(command)
            waiting[each.send(copy)] = each
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=timeout_s)
        for each in (waiting[answer] for answer in late):
            if each.is_silent:
                continue  # It has been told.
            before, each.is_silent = each.state, True
            self._note_state(each, before)
            _LOGGER.warning(
                "the ingress of %s did not answer %s within %g s",
                each.status.node,
                command.WhichOneof("kind"),
                timeout_s,
            )

    def _connected(self) -> list[RegisteredIngress]:
        return [each for each in self._registered_ingresses.values() if each.is_connected]

    def _forget_gone(self) -> None:
        gone = [each for each in self._registered_ingresses.values() if not each.is_connected]
        gone.sort(key=lambda each: each.since)
        oldest = self._clock() - _REMEMBERED_S
        for index, each in enumerate(gone):
            if each.since < oldest or index < len(gone) - _REMEMBERED_MAX:
                del self._registered_ingresses[each.status.id]


def _together(parts: Sequence[control_pb2.IngressStatus]) -> list[control_pb2.RoutedDeployment]:
    """Return the combined counts of several ingresses for each deployment."""
    found: dict[tuple[str, str], control_pb2.RoutedDeployment] = {}
    for routed in (each for part in parts for each in part.deployments):
        of_all = found.setdefault(
            (routed.key.application, routed.key.name),
            control_pb2.RoutedDeployment(key=routed.key),
        )
        of_all.in_flight += routed.in_flight
        of_all.parked += routed.parked
        for name, count in routed.counts.items():
            of_all.counts[name] += count
    return list(found.values())


def _message(registered: RegisteredIngress) -> str:
    if registered.state is not IngressState.UNHEALTHY:
        return registered.status.message
    if registered.is_connected:
        return "it does not answer the controller"
    return "the controller has lost it; it serves on with what it knew, unless it has ended"


# `Ingresses` on the wire: the streams of ingresses that are processes of their own.

# An ingress is unknown until its first status, which follows the call at once.
_FIRST_TIMEOUT_S = 30.0


def add_ingress_service(server: Server, ingresses: Ingresses) -> None:
    """Register the service; ``server`` is not started yet, and checks the mesh token."""
    ingress_pb2_grpc.add_IngressesServicer_to_server(IngressService(ingresses), server)


class IngressService(ingress_pb2_grpc.IngressesServicer):
    """What ingresses call."""

    def __init__(self, ingresses: Ingresses) -> None:
        self._ingresses = ingresses

    # The stub knows generators only; the library takes a handler that writes as well.
    async def Attend(  # type: ignore[override]
        self, request_iterator: AsyncIterator[ingress_pb2.IngressMessage], context: Context
    ) -> None:
        """Hold one ingress's stream: what it says in, commands out, until either side ends it."""
        first = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_TIMEOUT_S):
                first = await anext(aiter(request_iterator), None)
        if first is None or not (first.status.id and first.status.node):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the first message of Attend must be a status with id and node",
            )
        registered = self._ingresses.attend(first.status)
        if first.status.addresses:
            _confirm(registered)
        try:
            await converse(context, registered.next, self._read(request_iterator, registered))
        finally:
            # Also when the reader failed: the ingress has left, whatever ended its messages.
            self._ingresses.leave(registered)

    async def _read(
        self, messages: AsyncIterator[ingress_pb2.IngressMessage], registered: RegisteredIngress
    ) -> None:
        try:
            async for message in messages:
                is_new = bool(message.status.addresses) and not registered.status.addresses
                self._ingresses.hear(registered, message)
                if is_new:
                    _confirm(registered)
        finally:
            registered.end()


def _confirm(registered: RegisteredIngress) -> None:
    # It has not said before this that it listens.
    registered.send(ingress_pb2.IngressCommand(look=ingress_pb2.Look()))
