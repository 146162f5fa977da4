"""Plays scenario files: a mesh without processes, on virtual time, one command a line.

A line that begins in the first column is a command, or a comment behind ``#``; the indented lines
below it are what the mesh does then. ``play`` returns the script with what it has done in fact.

    mesh            another mesh, at 0 s
    deploy A=2 B=1 [A>B] [option=value]   a deploy, in which A has a handle of B; options are
                    those of all its deployments
    limits A option=value           a deploy that A's replicas take on while they serve
    delete [SECONDS]                the application ends, within a time if one is given
    ready [ID...]                   they have constructed their classes; none named: all that start
    fail ID...                      their constructors raise
    die ID...                       their processes are killed from outside
    end [ID...]                     those that drain have ended; none named: all of them
    unhealthy ID... / healthy ID...   they report a check
    hang ID...                      they give no sign of life
    leave ID... / rejoin ID...      their streams break, or come back
    cordon ID|node:here / uncordon ID|node:here   somebody takes them out of rotation, or back
    wait SECONDS                    time passes, with everything that comes due meanwhile
    next                            as long as it takes until something comes due
    status                          how the application and its deployments are
    replicas                        what there is
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyserve.control.health import (
    application_health,
    deployment_health,
    observe,
    replica_word,
)
from pyserve.control.reconcile.cordon import cordon
from pyserve.control.reconcile.decide import (
    Action,
    CompleteVersion,
    FailVersion,
    ForgetDeployment,
    KillReplica,
    StartReplica,
    StopReplica,
    next_wakeup,
)
from pyserve.control.state.mesh import Phase, Replica
from pyserve.types import DeploymentName, ReplicaId
from tests.unit.control.world import APPLICATION, World, key


def play(script: str) -> str:
    """Return the script with what the mesh does in it."""
    stage = _Stage()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith((" ", "\t")):
            continue
        lines.append(line)
        if line == "mesh":
            stage = _Stage()
        elif line and not line.startswith("#"):
            lines += (f"  {said}" for said in stage.perform(*line.split()))
    return "\n".join(lines) + "\n"


class _Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.said: list[str] = []

    def perform(self, command: str, *arguments: str) -> list[str]:
        """Carry a command out; return what follows from it."""
        self.said = []
        method: Callable[..., None] = getattr(self, f"do_{command}")
        method(*arguments)
        self._look()
        return self.said

    def _look(self) -> None:
        self.settle()
        observe(self.state, (), self.now)

    def _carry_out(self, action: Action) -> None:
        super()._carry_out(action)
        self.said.append(self._text(action))

    def _text(self, action: Action) -> str:
        match action:
            case StartReplica(_, version, slot):
                return f"start {list(self.state.replicas)[-1]}: {version}, place {slot}"
            case StopReplica(replica_id, grace_s, reason):
                return f"drain {replica_id} for {grace_s:g} s: it {reason}"
            case KillReplica(replica_id, reason, failure):
                said = "" if failure is None else f" ({failure.summary})"
                return f"kill {replica_id}: it {reason}{said}"
            case FailVersion(of, failure):
                return f"give {of.deployment} up: {failure.summary}"
            case CompleteVersion(of):
                return f"{of.deployment} is complete"
            case ForgetDeployment(of):
                return f"forget {of.deployment}"

    def _named(self, names: tuple[str, ...]) -> list[Replica]:
        return [self.state.replicas[ReplicaId(name)] for name in names]

    def do_deploy(self, *arguments: str) -> None:
        self.calls = {}
        for pair in (each.split(">") for each in arguments if ">" in each):
            self.calls.setdefault(pair[0], set()).add(pair[1])
        given = dict(each.split("=", 1) for each in arguments if ">" not in each)
        counts = {name: int(given.pop(name)) for name in list(given) if name[0].isupper()}
        options = {name: json.loads(value) for name, value in given.items()}
        self.deploy(**{name: {"num_replicas": n, **options} for name, n in counts.items()})

    def do_limits(self, name: str, *arguments: str) -> None:
        options = {a: json.loads(b) for a, b in (each.split("=", 1) for each in arguments)}
        target = self.state.deployments[key(name)].target
        assert target is not None
        self.state.on_limits(key(name), target.options.updated(options))

    def do_delete(self, within_s: str = "") -> None:
        self.state.on_delete(APPLICATION, ends_by=self.now + float(within_s) if within_s else None)

    def do_ready(self, *names: str) -> None:
        starting = [item for item in self.state.replicas.values() if item.phase is Phase.STARTING]
        if ready := self._named(names) or starting:
            self.make_ready(*ready)

    def do_fail(self, *names: str) -> None:
        self.fail(*self._named(names))

    def do_die(self, *names: str) -> None:
        self.die(*self._named(names))

    def do_end(self, *names: str) -> None:
        for replica in self._named(names) or self.replicas_stopping():
            assert replica.phase is Phase.STOPPING, f"{replica.id} was not told to end"
            self.die(replica)

    def do_unhealthy(self, *names: str) -> None:
        for name in names:
            self.state.on_health(
                ReplicaId(name), healthy=False, now=self.now, reason="check_health raised"
            )
            self.settle()

    def do_healthy(self, *names: str) -> None:
        for name in names:
            self.state.on_health(ReplicaId(name), healthy=True, now=self.now)

    def do_hang(self, *names: str) -> None:
        for name in names:
            self.state.on_silent(ReplicaId(name))
            self.state.on_hang(ReplicaId(name))

    def do_leave(self, *names: str) -> None:
        for name in names:
            self.state.on_left(ReplicaId(name), now=self.now)

    def do_rejoin(self, *names: str) -> None:
        self.make_ready(*self._named(names))

    def do_cordon(self, target: str) -> None:
        self.said += cordon(self.state, target, undo=False).warnings

    def do_uncordon(self, target: str) -> None:
        self.said += cordon(self.state, target, undo=True).warnings

    def do_wait(self, seconds: str) -> None:
        end = self.now + float(seconds)
        while (due := self._due()) is not None and due <= end:
            self._go(due)
        self.now = end

    def do_next(self) -> None:
        due = self._due()
        if due is None:
            self.said.append("nothing comes due")
        else:
            self._go(due)

    def _due(self) -> float | None:
        return next_wakeup(self.state.deployments, self.state.replicas, self.now)

    def _go(self, due: float) -> None:
        self.now = due
        self.said.append(f"at {due:g} s")
        self._look()

    def do_status(self) -> None:
        observe(self.state, (), self.now)
        desired = list(self.state.of_application(APPLICATION))
        if not desired:
            self.said.append("there is nothing")
            return
        parts = [
            deployment_health(each, list(self.state.of_deployment(each.key))) for each in desired
        ]
        whole = application_health(self.state, APPLICATION, parts, ())
        since = self.state.conditions[APPLICATION].since
        self.said.append(f"{whole.word} since {since:g} s")
        for each, part in zip(desired, parts, strict=True):
            since = self.state.conditions[each.key].since
            name = each.key.deployment
            self.said.append(f"{name}: {part.word} since {since:g} s: {part.reason}")

    def do_replicas(self) -> None:
        names: list[DeploymentName] = [each.deployment for each in self.state.deployments]
        for name in names:
            found = [
                f"{item.id} {item.version} {replica_word(item)}"
                for item in self.state.of_deployment(key(name))
            ]
            self.said.append(f"{name}: {', '.join(found) or 'none'}")
