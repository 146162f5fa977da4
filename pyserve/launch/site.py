"""The mesh for which a launcher starts replicas, and the variables that apply to all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.config import inherited_environment
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.launch.local import line_taker, replica_environment
from pyserve.types import DeploymentKey, ReplicaId


@dataclass(frozen=True, kw_only=True)
class Site:
    """The mesh for which a launcher starts replicas.

    Attributes:
        controller: returns where a replica on this machine finds the controller; to be called
            before each start.
        controller_tcp: returns where a replica on another machine does, "" if the controller does
            not listen for other machines.
        token_file: has the mesh token; only its owner may read it.
        token: what it has.
        run_dir: the mesh's own folder on this machine, for sockets.
        home: where the mesh keeps its lasting state.
        node: this machine's name in the mesh.
        is_lasting: a controller that is killed is followed by another one, which should find the
            replicas if possible.
        options: the launcher's options.
        on_line: shows a line, with whose it is before it.
        on_output: keeps a line of a replica, for ``pyserve logs`` and ``status``.
        spares: how many interpreters should wait for replicas to start.
        liveness: of lasting replicas: pipe whose other end closes when all of them must end;
            ``None``: they stay until they are ended.
    """

    controller: Callable[[], Awaitable[str]]
    token_file: Path
    token: bytes
    run_dir: Path
    home: Path
    controller_tcp: Callable[[], str] = lambda: ""
    node: str = ""
    is_lasting: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    on_line: Callable[[str], None] = lambda _: None
    on_output: Callable[[DeploymentKey, ReplicaId, str], None] = lambda *_: None
    spares: int = 0
    liveness: int | None = None

    def environment(self, order: ReplicaOrder) -> dict[str, str]:
        """Return all variables of a replica on this machine, among them where the token is."""
        variables = replica_environment(order.environment, self.run_dir)
        return {**variables, "PYSERVE_TOKEN_FILE": str(self.token_file)}

    def said(self, order: ReplicaOrder, line: str) -> None:
        """Take a line that a replica has written, without its end."""
        line_taker(order, self.on_line, self.on_output)(line)


# The variables of this process that also apply to replicas on other machines.

# Variables of this machine or process, rather than of the whole mesh.
_OF_THIS_PROCESS = frozenset(
    {
        *("ADVERTISE_HOST", "BIND_HOST", "CONTROLLER", "HOME", "LAUNCHER", "LAUNCHER_OPTIONS"),
        *("NODE_ID", "RUN_DIR", "TOKEN_FILE", "ZONE"),
    }
)


def mesh_variables(*more: str, but: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of this process that apply to every replica of its mesh.

    Args:
        more: prefixes of others than pyserve's own.
        but: names after ``PYSERVE_`` that hold for this process alone, where its replicas run.
    """
    left_out = {f"PYSERVE_{name}" for name in (*_OF_THIS_PROCESS, *but)}
    return {
        name: value
        for name, value in inherited_environment({}).items()
        if name.startswith(("PYSERVE_", *more)) and name not in left_out
    }
