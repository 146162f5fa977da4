"""Both stores: what is written is what is loaded, and what is wrong with a file is said."""

import contextlib
import sqlite3
import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config import AutoscalingPolicy
from pyserve.control.state.applications import ApplicationInfo
from pyserve.control.state.mesh import Phase
from pyserve.control.state.replica import Failure, Place
from pyserve.control.state.specs import Run
from pyserve.control.store import Changes, MemoryStore, Records, SqliteStore, changes_between
from pyserve.control.store.records import (
    ApplicationRecord,
    DeploymentRecord,
    Key,
    MeshFacts,
    Record,
    ReplicaRecord,
    SlotRecord,
    SpecRecord,
    Table,
    VersionRecord,
    decode,
    encode,
)
from pyserve.control.store.sqlite import MIGRATIONS
from pyserve.errors import MeshError
from pyserve.types import ApplicationName, ReplicaId, ReplicaRank, ServiceName
from pyserve.wire.v1 import mesh_pb2

NAMES = st.text("abZ#é'/", min_size=1, max_size=4)
NUMBERS = st.integers(0, 2**53)
TIMES = st.floats(0, 1e12, allow_nan=False)
FAILURES = st.none() | st.builds(Failure, st.text(), st.text(), st.booleans())
RUNS = st.none() | st.builds(Run, NAMES, NUMBERS)
INFOS = st.builds(ApplicationInfo, NAMES, NAMES, st.booleans(), st.none(), RUNS, TIMES)
RECORDS = {
    Table.MESH: st.builds(MeshFacts, deploys=NUMBERS),
    Table.APPLICATIONS: st.builds(
        ApplicationRecord,
        name=NAMES,
        position=NUMBERS,
        info=st.builds(ApplicationInfo, NAMES, NAMES, st.booleans(), INFOS, RUNS, TIMES),
    ),
    Table.DEPLOYMENTS: st.builds(
        DeploymentRecord,
        application=NAMES,
        name=NAMES,
        position=NUMBERS,
        target=st.none() | NAMES,
        fallback=st.none() | NAMES,
        failure=FAILURES,
        services=st.tuples(NAMES.map(ServiceName)),
        file_descriptors=st.tuples(st.binary(), st.binary()),
        http=st.booleans(),
        http_prefixes=st.tuples(NAMES),
    ),
    Table.VERSIONS: st.builds(
        VersionRecord,
        id=NAMES,
        slots=st.tuples(
            st.builds(SlotRecord, index=NUMBERS, start_not_before=TIMES, last_end=st.text())
        ),
        proven=st.booleans(),
        first_failure=FAILURES,
        config=NUMBERS,
    ),
    Table.REPLICAS: st.builds(
        ReplicaRecord,
        id=NAMES.map(ReplicaId),
        application=NAMES,
        deployment=NAMES,
        version=NAMES,
        slot=st.integers(-1, 9),
        created_at=TIMES,
        phase=st.sampled_from(Phase),
        ready_at=st.none() | TIMES,
        rank=st.none() | st.builds(ReplicaRank, NUMBERS, NUMBERS, NUMBERS),
        place=st.builds(Place, NAMES, NAMES, NAMES, NAMES),
    ),
}
CONTENTS = st.dictionaries(
    st.sampled_from(list(RECORDS)).flatmap(lambda table: st.tuples(st.just(table), NAMES)),
    st.none(),
    max_size=5,
).flatmap(lambda keys: st.fixed_dictionaries({key: RECORDS[key[0]] for key in keys}))
FACTS = (Table.MESH, "facts")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.sqlite3")
    with contextlib.closing(store):
        yield store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.sqlite3"


def facts(deploys):
    return Changes({FACTS: MeshFacts(deploys=deploys)})


@given(st.lists(CONTENTS, min_size=1, max_size=4))
def test_what_the_changes_make_is_what_the_next_one_loads(tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("s") / "s.sqlite3"
    for store in (MemoryStore(), SqliteStore(path)):
        before: Records = {}
        for after in contents:
            store.write(changes_between(before, after))
            before = after
            assert after == store.load()
        store.close()
    with contextlib.closing(SqliteStore(path)) as again:
        assert contents[-1] == again.load()


def test_a_spec_is_kept_byte_for_byte_and_only_written_when_it_is_another_one(store):
    spec = mesh_pb2.DeploymentSpec(name="Echo", arguments=bytes(range(256)))
    key = (Table.SPECS, "v1")
    store.write(Changes({key: SpecRecord(spec)}))
    (found,) = store.load().values()
    assert spec == found.spec
    copy = mesh_pb2.DeploymentSpec.FromString(spec.SerializeToString())
    assert not changes_between({key: SpecRecord(spec)}, {key: SpecRecord(spec)})
    assert changes_between({key: SpecRecord(spec)}, {key: SpecRecord(copy)})


def test_a_change_is_kept_as_a_whole_or_not_at_all(path):
    unknown: Any = object()
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(1))
        with pytest.raises(TypeError):
            store.write(Changes({FACTS: MeshFacts(deploys=2), (Table.MESH, "x"): unknown}))
        assert {FACTS: MeshFacts(deploys=1)} == store.load()
        store.write(facts(3))


def test_fields_of_another_release_are_left_out_and_missing_ones_have_their_default():
    known = encode(VersionRecord(id="v1", proven=True))
    newer = known.replace(b'"id"', b'"colour":"blue","id"')
    older = known.replace(b',"config":0', b"")
    assert known not in (newer, older)
    assert decode(Table.VERSIONS, newer) == decode(Table.VERSIONS, older)
    assert VersionRecord(id="v1", proven=True) == decode(Table.VERSIONS, newer)


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"id": 7}', b"no JSON"])
def test_a_value_that_is_no_record_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011  # each has its own text
        decode(Table.VERSIONS, value)


def test_the_file_is_for_its_user_only(path):
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(1))
        files = list(path.parent.iterdir())
    assert {path.name, f"{path.name}-wal", f"{path.name}-shm"} == {file.name for file in files}
    with contextlib.closing(SqliteStore(path)):
        assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}


def test_a_file_of_a_newer_release_is_refused_and_left_as_it_is(path):
    SqliteStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(MeshError, match=r"schema 99, and this release .* up to 1; start the newer"):
        SqliteStore(path)
    assert before == path.read_bytes()


def test_a_file_of_an_older_release_gets_the_steps_that_it_lacks(path):
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(4))

    def rename(connection):
        connection.execute("UPDATE mesh SET key = 'all'")

    with contextlib.closing(SqliteStore(path, [*MIGRATIONS, rename])) as store:
        assert {(Table.MESH, "all"): MeshFacts(deploys=4)} == store.load()
    with contextlib.closing(SqliteStore(path, [*MIGRATIONS, rename])) as store:
        assert 1 == len(store.load())


def test_a_step_that_fails_leaves_the_older_file(path):
    SqliteStore(path).close()

    def fail(connection):
        connection.execute("DROP TABLE mesh")
        connection.execute("no SQL")

    with pytest.raises(MeshError, match="cannot be opened"):
        SqliteStore(path, [*MIGRATIONS, fail])
    with contextlib.closing(SqliteStore(path)) as store:
        assert {} == store.load()


def test_a_file_of_another_program_is_refused(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title)")
        connection.commit()
    with pytest.raises(MeshError, match="a database of another program; move it away"):
        SqliteStore(path)


def test_a_file_that_is_no_database_is_refused(path):
    path.write_text("a poem, long enough to be no header of a database" * 20)
    with pytest.raises(MeshError, match="not a database; move the file away and deploy again"):
        SqliteStore(path)


def test_a_record_that_is_spoilt_is_named(path):
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(1))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE mesh SET value = 'x'")
        connection.commit()
    with (
        contextlib.closing(SqliteStore(path)) as store,
        pytest.raises(MeshError, match="spoilt at 'facts'"),
    ):
        store.load()


def test_a_full_disk_is_said_and_what_was_written_stays(path):
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(1))
        # What SQLite meets on a full disk, as its own tests have it.
        (pages,) = store._open().execute("PRAGMA page_count").fetchone()
        store._open().execute(f"PRAGMA max_page_count = {pages}")
        large = SpecRecord(mesh_pb2.DeploymentSpec(arguments=bytes(100_000)))
        with pytest.raises(MeshError, match="disk is full; free some space on its disk"):
            store.write(Changes({(Table.SPECS, "v1"): large}))
        assert {FACTS: MeshFacts(deploys=1)} == store.load()
        store._open().execute("PRAGMA max_page_count = 100000")
        store.write(Changes({(Table.SPECS, "v1"): large}))


def test_a_file_that_somebody_has_locked_is_said(path):
    with (
        contextlib.closing(SqliteStore(path)) as store,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MeshError, match="end the process that has the file locked"):
            store.write(facts(1))
        other.execute("ROLLBACK")
        store.write(facts(2))
        assert {FACTS: MeshFacts(deploys=2)} == store.load()


def test_a_file_that_is_removed_is_known_to_be_and_made_anew(path):
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(facts(1))
        assert not store.is_lost()
        path.unlink()
        assert store.is_lost()
        store.write(facts(2))
        assert not store.is_lost()
    with contextlib.closing(SqliteStore(path)) as again:
        assert {FACTS: MeshFacts(deploys=2)} == again.load()


def test_a_link_in_its_place_is_refused(path):
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(MeshError, match="cannot be opened"):
        SqliteStore(path)


def test_what_scales_an_application_is_kept(store):
    policy = AutoscalingPolicy(policy_function="policies:decide", policy_kwargs={"least": [1, 2]})
    info = ApplicationInfo("/shop", "Cart", autoscaling_policy=policy, declaration_json="{}")
    record = ApplicationRecord(name=ApplicationName("shop"), position=0, info=info)
    version = VersionRecord(id="v1", reached=2, num_replicas=3, is_external=True)
    kept: dict[Key, Record] = {
        (Table.APPLICATIONS, "shop"): record,
        (Table.VERSIONS, "v1"): version,
    }
    store.write(Changes(kept))

    assert kept == store.load()
