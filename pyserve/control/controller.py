"""The thin driver around state, reconcile and registry: one loop, no polling.

Every event changes the state and requests one step at the end of the loop's turn. A step carries
out the actions of ``reconcile`` until there are no more, offers the new views to the registry,
notifies the waiting drivers, and sets one timer for the next relevant time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence

from pyserve.config import DeploymentOptions
from pyserve.control.admission import Admission, Admissions, Applied, DeployWatch
from pyserve.control.autoscaling.driver import Autoscaling
from pyserve.control.reconcile.cordon import Cordoned, cordon, cordon_notices
from pyserve.control.reconcile.decide import (
    NOT_NEEDED,
    Action,
    CompleteVersion,
    FailVersion,
    ForgetDeployment,
    KillReplica,
    StartReplica,
    StopReplica,
    next_wakeup,
    reconcile,
)
from pyserve.control.reconcile.rollout import Reconfiguring
from pyserve.control.reconcile.start_limits import Waits, held_back, limit_starts
from pyserve.control.recording import Memory, Recorder
from pyserve.control.recovery import Recovery
from pyserve.control.registry import Registry
from pyserve.control.replicas.identity import new_replica
from pyserve.control.replicas.launching import Launcher
from pyserve.control.replicas.members import Members
from pyserve.control.replicas.output import Output
from pyserve.control.replicas.sessions import Session, watch_liveness
from pyserve.control.replicas.starting import Processes
from pyserve.control.report import add_controller, add_mesh, application_statuses
from pyserve.control.runs import Runs
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import Desired, MeshState, Phase
from pyserve.control.state.specs import Run
from pyserve.control.steps import Conditions, Steps
from pyserve.control.store import Store
from pyserve.control.views import News
from pyserve.errors import MeshNotFound
from pyserve.observe.metrics import Scrape
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, mesh_pb2

_LOGGER = logging.getLogger(__name__)
# Rounds of one step. Each round's actions change what the next one sees, and a replica's life
# has three phases, so a handful is enough; more is a bug that must not hang the loop.
_ROUNDS_MAX = 20
# How long a successful deploy waits for older replicas, whose calls may last.
_OLDER_WAIT_S = 1.0


class Controller:
    """The mesh's desired and observed state, and everything that acts upon it.

    Args:
        launcher: starts and ends replicas.
        development: whether the texts of exceptions may reach clients.
        addresses: returns where ingresses listen.
        ingress: returns the state of all of them.
        visible: waits until ingresses route by a version of the registry.
        say: takes lines for people about applications whose ``pyserve run`` has gone.
        notices: returns what people should know about the mesh as a whole, a line each.
        interval_s: how long it may rest when nothing happens; ``None``: any time.
        store: keeps what a new controller needs; None: there will be none.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        development: bool,
        addresses: Callable[[], Sequence[str]] = tuple,
        ingress: Callable[[], control_pb2.IngressStatus | None] = lambda: None,
        visible: Callable[[int], Awaitable[None]] | None = None,
        say: Callable[[str], None] = _LOGGER.warning,
        notices: Callable[[], Sequence[str]] = tuple,
        interval_s: float | None = None,
        store: Store | None = None,
    ) -> None:
        self.registry = Registry()
        self.runs = Runs()
        self.output = Output()
        self.state = MeshState()
        self.development = development
        self.addresses = addresses
        self.ingress = ingress
        self.visible = visible
        self.admin = ""  # As in StatusReply.
        self.ends_by: float | None = None  # Where the mesh ends: when no call may go on.
        self._say = say
        self._notices = notices
        self._interval_s = interval_s
        self._liveness: asyncio.Task[None] | None = None
        self._launcher = launcher
        self._loop = asyncio.get_running_loop()
        self._steps = Steps(self._step, self.registry.publish, self.registry.next_wakeup)
        self._changed, self.next_step = self._steps.ask, self._steps.next
        self._news = News(self.state)
        self._applications = Applications()
        self.autoscaling = Autoscaling(self.state, self._applications, self._changed)
        self.set_target = self.autoscaling.set_target
        self._refused_prefixes: tuple[tuple[DeploymentKey, str, DeploymentKey], ...] = ()
        self._specs: dict[str, mesh_pb2.DeploymentSpec] = {}
        self._sessions = Members(
            self.state, self._specs, self._applications, self.output, development=development
        )
        self.close_web_sockets = self._sessions.close_web_sockets
        self._reconfiguring = Reconfiguring()
        engine = (launcher.name, launcher.capabilities)
        self._admissions = Admissions(
            self.state, self._applications, self._specs, self._reconfiguring, self._limit, engine
        )
        self._processes = Processes(
            launcher, self.state, self._loop.time, self._changed, self.output.end
        )
        parts = (self.state, self._applications, self._reconfiguring, self._specs)
        recorder = Recorder(store, time.time() - self._loop.time())
        memory = Memory(*parts, self._processes.memos)
        self.recovery = Recovery(memory, recorder, self._processes, self.registry)
        self._watches: set[DeployWatch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits = self._told_waits = Waits()
        self._conditions = Conditions(self.state, self._reconfiguring.former, self._loop.time)

    def resume(self) -> None:
        """Continue where an earlier controller ended, see ``Recovery.resume``."""
        self.recovery.resume(self.runs, self._loop.time())
        self._changed()

    # Requests of drivers.

    def deploy(self, request: control_pb2.DeployRequest) -> DeployWatch:
        """Replace or make an application.

        Raises:
            UsageError: the request names something twice, an option is not allowed, or another
                application has the route prefix.
            MeshError: the mesh is about to end, or what is deployed cannot be kept.
        """
        (admission,) = self._kept([self._admissions.check(request, self.recovery.deploys)])
        return self._admit(admission)

    def apply(self, request: control_pb2.ApplyRequest) -> Applied:
        """Replace the applications of files by those of this file: all of them, or none.

        Raises:
            UsageError, MeshError: as of ``deploy``.
        """
        admissions = self._kept(self._admissions.check_file(request, self.recovery.deploys))
        ending = {name: self._end(name) for name in self._admissions.leaving(request)}
        return Applied(tuple(self._admit(each) for each in admissions), ending, self._gone)

    def declarations(self) -> list[control_pb2.Declaration]:
        """Return what the files of applications declared."""
        return self._applications.declarations()

    def target_capacity(self) -> float | None:
        """Return how much of its numbers of replicas the last file wanted, in percent."""
        return self._applications.target_capacity(self.state)

    def _kept(self, admissions: Sequence[Admission]) -> Sequence[Admission]:
        """Store what deploys bring, all of it or nothing, before acting on it."""
        versions = [pair for each in admissions for pair in each.versions.values()]
        self.recovery.admit({made.id: spec for made, spec in versions}, len(admissions))
        return admissions

    def _admit(self, admission: Admission) -> DeployWatch:
        application, info = admission.application, admission.info
        self._fail_watches(application, "a newer deploy of the same application replaced it")
        former = self._applications.infos.get(application)
        watch = self._admissions.admit(admission)
        if former is not None and former.run != info.run:
            watch.notice(self.runs.take_over(application, former.run, info.run))
        self._watches.add(watch)
        self._changed()
        return watch

    def _limit(self, key: DeploymentKey, options: DeploymentOptions) -> None:
        if told := self.state.on_limits(key, options):
            self._sessions.tell_limits(map(self.state.replicas.__getitem__, told), options)

    def _reconfigure(self) -> None:
        """Go on with changes that replicas take on while they serve."""
        for key, former in self._reconfiguring.taken_back(self.state).items():
            self._specs[former.version] = former.spec
            self._limit(key, former.options)
        for replica_id, told in self._reconfiguring.tell(self.state):
            self._sessions[replica_id].send(mesh_pb2.ReplicaCommand(reconfigure=told))
        self._reconfiguring.settle(self.state)

    def forget(self, watch: DeployWatch) -> None:
        """Drop a watch; the deploy itself goes on."""
        self._watches.discard(watch)

    async def delete(self, name: str) -> None:
        """Drain and end an application; return when nothing of it is left.

        Raises:
            MeshNotFound: there is none of that name.
        """
        application = ApplicationName(name)
        if application not in self._applications.infos:
            known = ", ".join(sorted(self._applications.infos)) or "none"
            raise MeshNotFound(f"there is no application {name!r}; there is: {known}")
        await self._gone(self._end(application))

    def _end(self, application: ApplicationName) -> list[Desired]:
        self._fail_watches(application, "the application was deleted")
        self._reconfiguring.end(application)
        leaving = list(self.state.of_application(application))
        self.state.on_delete(application)
        self._changed()
        return leaving

    async def _gone(self, leaving: Sequence[Desired]) -> None:
        # One that a newer deploy took over meanwhile is not waited for.
        while any(
            item.target is None and self.state.deployments.get(item.key) is item for item in leaving
        ):
            await self.next_step()

    async def end_run(self, run_id: str) -> None:
        """End what a ``pyserve run`` deployed last; what it was about to replace serves on."""
        ending = []
        for name in self._applications.of_run(run_id):
            if self._applications.withdraw(name):
                self._fail_watches(name, "its pyserve run has ended")
                self._reconfiguring.end(name)
                self.state.on_withdraw(name)
                self.runs.serves_on(name, self._applications.owner_of(name))
                self._changed()
            else:
                ending.append(self.delete(name))
        await asyncio.gather(*ending)

    def hurry_run(self, run_id: str) -> None:
        """End what a ``pyserve run`` deployed last without its grace: calls in flight break."""
        now = self._loop.time()
        for name in self._applications.of_run(run_id):
            if not self._applications.replaces_another(name):
                self.state.on_hurry(name, now=now)
        self._spawn(self.end_run(run_id))
        self._changed()

    def lose_run(self, run: Run) -> None:
        """End what a ``pyserve run`` deployed last that has gone without a word."""
        if names := self._applications.wanted_of(run.id, self.state):
            self._say(f"{run} is gone, and what it deployed ends: {', '.join(names)}")
            self._spawn(self.end_run(run.id))

    async def end_all_but(self, runs: Collection[Run]) -> None:
        """End the applications that none of these runs deployed last."""
        ending = [name for name, info in self._applications.infos.items() if info.run not in runs]
        await asyncio.gather(*map(self.delete, ending))

    async def cordon(self, target: str, *, undo: bool) -> Cordoned:
        """Do what ``cordon.cordon`` does; return when the routers have been notified."""
        outcome = cordon(self.state, target, undo=undo)
        self._changed()
        await self.next_step()
        await self.published()
        return outcome

    def status(self) -> control_pb2.StatusReply:
        """Return the state of everything."""
        changing, ends_by = self._reconfiguring.former, self.ends_by
        self._conditions.look_now()
        return control_pb2.StatusReply(
            version=version(),
            addresses=self.addresses(),
            applications=application_statuses(
                self.state, self._applications, self._waits, changing, self.output.ended
            ),
            controller_pid=os.getpid(),
            ingress=self.ingress(),
            admin=self.admin,
            development=self.development,
            target_capacity=self.target_capacity(),
            drain_left_s=None if ends_by is None else max(ends_by - self._loop.time(), 0.0),
            notices=[*self._notices(), *cordon_notices(self.state), *self.recovery.notices()],
        )

    def add_metrics(self, scrape: Scrape) -> None:
        """Add this controller's metrics; in its loop."""
        add_mesh(scrape, self.status(), self.state.counts)
        add_controller(scrape, self._steps.times, self.registry.counts())
        self.autoscaling.add_metrics(scrape)

    async def drain(self, grace_s: float) -> None:
        """Take no new application, drain every replica for ``grace_s`` and wait for their end."""
        self._admissions.are_closed = True
        for watch in self._watches:
            watch.failed(watch.application, "the mesh is shutting down")
        for name in self._applications.infos:
            self.state.on_delete(name, ends_by=self._loop.time() + grace_s)
        self._changed()
        while self.state.replicas or self.state.deployments:
            await self.next_step()

    async def close(self, *, goes_on: bool = False) -> None:
        """Kill what is left, unless it ``goes_on``. The state stays readable. Idempotent."""
        self._admissions.are_closed = True
        self.autoscaling.close()
        self.runs.forget_absent()
        self._steps.close(goes_on=goes_on)
        for session in self._sessions.values():
            session.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._processes.close()
        self.recovery.close(self._loop.time())

    def _fail_watches(self, application: ApplicationName, why: str) -> None:
        for watch in self._watches:
            if watch.application == application:
                watch.failed(application, why)

    # Messages of replicas.

    def join(self, hello: mesh_pb2.Hello) -> Session:
        """Take a replica in, see ``Members``."""
        session = self._sessions.join(hello, self._loop.time())
        # Its constructor may call deployments that start together with it.
        self.registry.publish_new()
        replica = self.state.replicas[session.replica_id]
        if replica.phase is Phase.STOPPING:
            # It may not have heard of that, or from a controller before.
            self._spawn(self._drain(session, replica.grace_left_s(self._loop.time())))
        if self._liveness is None:
            self._liveness = self._spawn(watch_liveness(self.state, self._sessions, self._changed))
        self._changed()
        return session

    def hear(self, session: Session, message: mesh_pb2.ReplicaMessage) -> None:
        """Take one message of a replica that has joined."""
        if self._sessions.hear(session, message, self._loop.time()):
            self._changed()

    def leave(self, session: Session) -> None:
        """The replica's stream has ended."""
        if self._sessions.leave(session, self._loop.time()):
            self._changed()

    # Steps.

    def _step(self, now: float) -> Iterable[float | None]:
        self.recovery.look(now)
        self.autoscaling.follow()
        self._reconfigure()
        for _ in range(_ROUNDS_MAX):
            actions = self._next_actions(now)
            if not actions:
                break
            for action in actions:
                self._carry_out(action, now)
        else:
            _LOGGER.error("reconcile does not come to rest; its last actions: %s", actions)
        self.state.notes += self._waits.news(self._told_waits)
        self._told_waits = self._waits
        self._offer(now)
        self._conditions.look(now)
        # Before anything of it begins, or is known to others.
        self.recovery.record(now)
        self.registry.publish(now)
        self._tell()
        return (
            next_wakeup(self.state.deployments, self.state.replicas, now),
            self._waits.next_wakeup(now),
            self._conditions.next_wakeup(),
            *self.recovery.next_wakeups(),
            None if self._interval_s is None else now + self._interval_s,
        )

    def _next_actions(self, now: float) -> Sequence[Action]:
        """Return what to do now; starts wait while there is not enough room."""
        actions = reconcile(self.state.deployments, self.state.replicas, now)
        wanted = self.recovery.allowed(actions)
        if not any(isinstance(action, StartReplica) for action in wanted):
            self._waits = Waits()
            return wanted
        room = self._launcher.room()
        begun = limit_starts(wanted, self.state.replicas, room.starts_max)
        self._waits = Waits(held_back(wanted, begun), room)
        return begun

    def _offer(self, now: float) -> None:
        for name, run in self._applications.settle(self.state):
            self.runs.serves_on(name, run)
        routes = self._applications.routes(self.state)
        self._refused_prefixes = routes.refused
        self.registry.offer(self._news.since_last(routes, self._applications.infos), now)

    def _carry_out(self, action: Action, now: float) -> None:
        match action:
            case StartReplica(key, version_id, slot):
                self._start(key, version_id, slot, now)
            case StopReplica(replica_id, grace_s, reason):
                is_starting = self.state.replicas[replica_id].phase is Phase.STARTING
                self._on_end(replica_id, "drains", reason, now)
                self.state.on_stop(replica_id, grace_s=grace_s, now=now)
                if replica_id in self._sessions:
                    self._spawn(self._drain(self._sessions[replica_id], grace_s))
                if is_starting or replica_id not in self._sessions:
                    self._processes.stop(replica_id, grace_s)
            case KillReplica(replica_id, reason, failure):
                self._on_end(replica_id, "is killed", reason, now)
                self.state.on_kill(replica_id, failure=failure, now=now)
                self._sessions.end(replica_id)
                self._launcher.stop(replica_id, 0)
            case FailVersion(key, failure):
                self.state.on_version_failed(key, failure)
            case CompleteVersion(key):
                self.state.on_version_completed(key)
            case ForgetDeployment(key):
                self.state.on_forget(key)

    def _on_end(self, replica_id: ReplicaId, how: str, reason: str, now: float) -> None:
        _LOGGER.info("replica %s %s: it %s", replica_id, how, reason)
        if reason != NOT_NEEDED and self.state.replicas[replica_id].phase is Phase.RUNNING:
            self.state.on_replaced(replica_id, f"{how}: it {reason}", now)

    def _start(self, key: DeploymentKey, version_id: str, slot: int, now: float) -> None:
        target = self.state.version_of(key, version_id)
        assert target is not None, "reconcile starts versions that exist"
        replica = new_replica(key, target, slot, now, self.state.replicas)
        self.state.on_start(replica)
        self._spawn(self._processes.launch(replica, self._specs[version_id]))

    def _tell(self) -> None:
        """Pass on events, and the result to drivers whose deploy has ended."""
        notes, self.state.notes = self.state.notes, []
        for key, note in notes:
            _LOGGER.info("%s: %s", key, note)
        incidents, self.state.incidents = self.state.incidents, []
        for key, incident in incidents:
            line = f"{key.deployment}: {incident}"
            if not self.runs.tell(self._applications.owner_of(key.application), line):
                self._say(line)
        for watch in self._watches:
            watch.follow(self.state, notes)
            if watch.done or watch.finishing:
                continue
            outcome = watch.outcome(self.state)
            if outcome is True and watch.application not in self._reconfiguring.former:
                watch.finishing = True
                self._spawn(self._finish(watch))
            elif outcome and outcome is not True:
                assert outcome.failure is not None
                failure = outcome.failure
                watch.failed(outcome.key.deployment, failure.summary, failure.traceback)

    async def _finish(self, watch: DeployWatch) -> None:
        # Views that are requested from now on include the deployment.
        await self.published()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OLDER_WAIT_S):
                while watch.has_older(self.state):
                    await self.next_step()
        watch.tell_failures(self.state)
        watch.tell_refused(self._refused_prefixes)
        watch.deployed(tuple(self.addresses()), self.registry.version)

    async def _drain(self, session: Session, grace_s: float) -> None:
        # Told first, a router sends nothing more: no call meets a replica that is closing.
        await self.published()
        session.send(mesh_pb2.ReplicaCommand(drain=mesh_pb2.Drain(grace_s=grace_s)))

    async def published(self) -> None:
        """Wait until the routers have been sent the current views, and ours has applied them."""
        version = self.registry.pending_version
        while self.registry.version < version:
            await self.next_step()
        if self.visible is not None:
            await self.visible(version)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
