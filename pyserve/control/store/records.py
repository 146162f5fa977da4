"""The records of a mesh, as plain values and as bytes, and the interface of their store.

A field that is added later needs a default: a file that an older release wrote lacks it, and one
that a newer release wrote may have more. Times are Unix times, since a reboot ends other clocks.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from pyserve.config.parts import Part
from pyserve.control.state.applications import ApplicationInfo
from pyserve.control.state.history import Condition
from pyserve.control.state.mesh import Phase
from pyserve.control.state.replica import Failure, Place
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
    engine_models: tuple[bytes, ...] = ()
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


# The interface of a store of records, and a store in memory.


@dataclass(frozen=True, slots=True)
class Changes:
    """One transaction: all of it is kept, or nothing."""

    put: Mapping[Key, Record] = field(default_factory=dict)
    removed: Set[Key] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)


class Store(Protocol):
    """Keeps records. One process uses it, in one thread."""

    def load(self) -> Records:
        """Return everything that is kept.

        Raises:
            MeshError: it cannot be read; the text says what to do.
        """

    def is_lost(self) -> bool:
        """Say whether everything was removed, so that it has to be written again."""

    def write(self, changes: Changes) -> None:
        """Keep a change; a controller that is killed right after it does not undo it.

        Raises:
            MeshError: nothing of it is kept; the text says why, and what to do.
        """

    def close(self) -> None:
        """Close it. Idempotent."""


class MemoryStore:
    """Keeps records as long as it lives: for tests, as a fake of the other one."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}

    def load(self) -> Records:
        """Return what was written; see ``Store.load``."""
        return dict(self._records)

    def is_lost(self) -> bool:
        """It cannot be lost; see ``Store.is_lost``."""
        return False

    def write(self, changes: Changes) -> None:
        """Keep it as long as this lives; see ``Store.write``."""
        self._records.update(changes.put)
        for key in changes.removed:
            self._records.pop(key, None)

    def close(self) -> None:
        """Do nothing; see ``Store.close``."""


def changes_between(before: Records, after: Records) -> Changes:
    """Return what makes ``after`` of ``before``."""
    return Changes(
        put={
            key: record
            for key, record in after.items()
            # The very same is equal, which data classes find out field by field.
            if (former := before.get(key)) is not record and former != record
        },
        removed=before.keys() - after.keys(),
    )


# Records as bytes and back: JSON by the types of their fields, and specs as they travel.
#
# Unknown fields are ignored and missing ones get their defaults, so that a file can be read by the
# releases after and before the one that wrote it.


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    if isinstance(record, SpecRecord):
        return record.spec.SerializeToString()
    return orjson.dumps(record, default=_encode_other)


def decode(table: Table, value: bytes) -> Record:
    """Return the record of those bytes.

    Raises:
        ValueError: they are not a record of that table.
    """
    if TYPES[table] is SpecRecord:
        return SpecRecord(mesh_pb2.DeploymentSpec.FromString(value))
    try:
        record: Record = _read(TYPES[table], orjson.loads(value))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a record of {table.value!r}: {error}") from error
    return record


def _encode_other(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"records hold no {type(value).__name__}")


# Any: what JSON holds, and what the types say that it is.
def _read(kind: Any, value: Any) -> Any:
    if isinstance(kind, typing.NewType):
        return _read(kind.__supertype__, value)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (other,) = (each for each in typing.get_args(kind) if each is not type(None))
        return None if value is None else _read(other, value)
    if origin is tuple:
        item, *_ = typing.get_args(kind)
        return tuple(_read(item, each) for each in value)
    if isinstance(kind, type) and issubclass(kind, Part):
        return kind.of(kind.__name__, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        fields = _fields(kind)
        return kind(**{name: _read(fields[name], value[name]) for name in fields if name in value})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is bytes:
        return base64.b64decode(value)
    if kind is float:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, str) and isinstance(value, str):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    assert dataclasses.is_dataclass(kind), "asked for data classes only"
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}
