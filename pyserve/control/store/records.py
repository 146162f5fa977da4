"""The records of a mesh: plain values, each stored by the name of its table and a key.

A field that is added later needs a default: a file that an older release wrote lacks it, and one
that a newer release wrote may have more. Times are Unix times, since a reboot ends other clocks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.control.state.applications import ApplicationInfo
from pyserve.control.state.condition import Condition
from pyserve.control.state.mesh import Failure, Phase, Place
from pyserve.types import ApplicationName, DeploymentName, ReplicaId, ReplicaRank, ServiceName
from pyserve.wire.v1 import mesh_pb2


class Table(enum.Enum):
    """The kinds of records; the values name tables of a file."""

    MESH = "mesh"
    APPLICATIONS = "applications"
    DEPLOYMENTS = "deployments"
    VERSIONS = "versions"
    SPECS = "specs"
    FORMERS = "formers"
    REPLICAS = "replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshFacts:
    """Facts that do not belong to an application.

    Attributes:
        deploys: how many there have been; ids of versions hold their number.
        cordoned_nodes: whose replicas get no new calls.
    """

    deploys: int = 0
    cordoned_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRecord:
    """One application.

    Attributes:
        position: of its name among all, oldest first.
        condition: its health, and since when; None: not observed yet.
    """

    name: ApplicationName
    position: int
    info: ApplicationInfo
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """What one deployment should be, as ``Desired``.

    Attributes:
        position: of its name among all.
        target, fallback: ids of versions.
        ends_by: Unix time at which an ending deployment stops waiting.
        condition: its health, and since when; None: not observed yet.
    """

    application: ApplicationName
    name: DeploymentName
    position: int
    target: str | None
    fallback: str | None
    failure: Failure | None = None
    services: tuple[ServiceName, ...] = ()
    file_descriptors: tuple[bytes, ...] = ()
    http: bool = False
    http_prefixes: tuple[str, ...] = ()
    idempotent_methods: tuple[str, ...] = ()
    ends_by: float | None = None
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """One place of a version, as ``Slot``."""

    index: int
    deaths_in_a_row: int = 0
    start_failures_in_a_row: int = 0
    start_not_before: float = 0.0  # 0: at once
    failed_in_user_code: bool = False
    last_end: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """A version that serves or will serve, or an earlier one; its spec has its options.

    Attributes:
        slots: by their index.
        num_replicas: how many it is scaled to, where that is not what was deployed.
        scaling_reason: why that many; "": nothing was decided.
        scaled_at: when that was decided, Unix time.
    """

    id: str
    slots: tuple[SlotRecord, ...] = ()
    proven: bool = False
    completed: bool = False
    failed: bool = False
    reached: int = 0
    is_external: bool = False
    num_replicas: int | None = None
    scaling_reason: str = ""
    scaled_at: float = 0.0
    start_failures: int = 0
    first_failure: Failure | None = None
    config: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SpecRecord:
    """The spec that a version's replicas run, or ran before a change that is still being applied.

    Equal only if they hold the very same message: specs may be large, and are replaced as a whole.
    """

    spec: mesh_pb2.DeploymentSpec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpecRecord) and other.spec is self.spec

    __hash__ = None  # type: ignore[assignment]  # nothing looks it up


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """One replica that was started, or joined by itself.

    Attributes:
        slot: of its version; -1: it was started outside the mesh.
        created_at, ready_at, stopping_at, kill_at: Unix times.
        memo: how its launcher finds its process; "": it has not begun, or that is unknown.
        pid: for people.
        gang: as in ``Replica``.
    """

    id: ReplicaId
    application: ApplicationName
    deployment: DeploymentName
    version: str
    slot: int
    created_at: float
    phase: Phase
    ready_at: float | None = None
    stopping_at: float | None = None
    kill_at: float | None = None
    killed: bool = False
    pid: int = 0
    memo: str = ""
    rank: ReplicaRank | None = None
    place: Place = field(default_factory=Place)
    metadata_json: str = ""
    config: int = 0
    cordoned: bool = False
    gang: str = ""


Record = (
    MeshFacts | ApplicationRecord | DeploymentRecord | VersionRecord | SpecRecord | ReplicaRecord
)
Key = tuple[Table, str]
Records = Mapping[Key, Record]

TYPES: dict[Table, type[Record]] = {
    Table.MESH: MeshFacts,
    Table.APPLICATIONS: ApplicationRecord,
    Table.DEPLOYMENTS: DeploymentRecord,
    Table.VERSIONS: VersionRecord,
    Table.SPECS: SpecRecord,
    Table.FORMERS: SpecRecord,
    Table.REPLICAS: ReplicaRecord,
}
