"""A mesh as a process: what it reports, and that nothing of it is left, however it ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.aio.mesh_channel import proof
from pyserve.config import DeploymentOptions, read_settings
from pyserve.control.discovery import find_mesh, read_record
from pyserve.control.server.transport import UNIX_OPTIONS
from pyserve.errors import MeshError
from pyserve.launch import MeshProcess
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.reflected import VERSIONS, files_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TIMEOUT_S = 30.0
ANYWHERE = ("127.0.0.1:0",)


@pytest.fixture
def home(tmp_path_factory, monkeypatch):
    """A home of its own, on a path that is short enough for sockets."""
    home = tmp_path_factory.mktemp("h")
    monkeypatch.setenv("PYSERVE_HOME", str(home))
    return home


@pytest.fixture
def mesh(home):
    mesh = MeshProcess.start(ANYWHERE)
    try:
        yield mesh
    finally:
        mesh.close(TIMEOUT_S)


@contextlib.contextmanager
def control_of(address: MeshAddress):
    with grpc.insecure_channel(address.controller, UNIX_OPTIONS) as channel:
        yield control_pb2_grpc.ControlStub(channel), proof(address.token)


def deploy(address, **options):
    spec = mesh_pb2.DeploymentSpec(
        name="Small",
        options_json=DeploymentOptions.of(options).to_json(),
        arguments=cloudpickle.dumps(((), {})),
        code=mesh_pb2.Code(
            import_path="tests.mesh.apps.small:Small",
            sys_path=[str(Path.cwd()), *filter(None, sys.path)],
            working_directory=str(Path.cwd()),
        ),
    )
    request = control_pb2.DeployRequest(application="default", deployments=[spec])
    with control_of(address) as (control, metadata):
        *_, last = control.Deploy(request, metadata=metadata, timeout=TIMEOUT_S)
    assert "deployed" == last.WhichOneof("kind"), last


def replica_pids(address):
    with control_of(address) as (control, metadata):
        status = control.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=TIMEOUT_S)
    return [
        replica.pid
        for application in status.applications
        for deployment in application.deployments
        for replica in deployment.replicas
        if replica.state == "RUNNING"
    ]


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def controller_in(home):
    """Return the process id of the controller; the ingress is in the process of the mesh."""
    record = read_record(home)
    assert record is not None
    return record.pid


def left_in(home):
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def test_mesh_serves_and_leaves_nothing(mesh, home):
    address = mesh.address()
    assert find_mesh(read_settings()) == address
    deploy(address, num_replicas=2)
    pids = replica_pids(address)

    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        reply = stub.Echo(echo_pb2.EchoRequest(payload=b"hello"), timeout=TIMEOUT_S)

    assert b"hello" == reply.payload
    assert 0 == mesh.close(TIMEOUT_S)
    assert ["mesh.lock"] == left_in(home)
    assert [] == [pid for pid in pids if is_running(pid)]


def test_files_of_a_mesh_are_for_their_owner_only(mesh, home):
    modes = {
        path.name: oct(path.stat().st_mode & 0o777)
        for path in (home / "mesh.json", Path(mesh.record.token_file))
    }

    assert {"mesh.json": "0o600", "token": "0o600"} == modes
    assert 0 == Path(mesh.record.token_file).parent.stat().st_mode & 0o077
    token = mesh.address().token
    for pid in (mesh.pid, controller_in(home)):
        shown = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()
        assert token not in b"".join(shown)
        assert token.hex().encode() not in b"".join(shown)


def listening_ports(pid):
    sockets = psutil.Process(pid).net_connections(kind="tcp")
    return sorted(each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN)


# The ingress's, the one of what the ingress answers itself, and the one of its node's metrics.
PORTS_OF_AN_INGRESS = 3


def test_controller_of_one_machine_listens_at_no_port(mesh, home):
    assert "" == mesh.record.controller_tcp
    assert [] == listening_ports(controller_in(home))
    assert PORTS_OF_AN_INGRESS == len(listening_ports(mesh.pid))


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({"PYSERVE_CONTROLLER": "127.0.0.1:0"}, "127.0.0.1"),
        ({"PYSERVE_CONTROLLER": "[::1]:0"}, "[::1]"),
        ({"PYSERVE_ADVERTISE_HOST": "127.0.0.1"}, "127.0.0.1"),
    ],
)
def test_controller_listens_for_other_machines_where_it_is_told_to(home, environment, host):
    mesh = MeshProcess.start(ANYWHERE, environment=environment)
    try:
        place = mesh.record.controller_tcp
        assert host == place.rpartition(":")[0]
        assert [int(place.rpartition(":")[2])] == listening_ports(controller_in(home))
        settings = read_settings({"PYSERVE_HOME": str(home), "PYSERVE_CONTROLLER": place})
        address = find_mesh(settings)
        assert address is not None
        assert place == address.controller
        assert [] == replica_pids(address)
    finally:
        assert 0 == mesh.close(TIMEOUT_S)


def test_taken_port_is_named_with_what_to_do(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MeshError) as caught:
            MeshProcess.start((f"127.0.0.1:{port}",))

    assert f"port {port} is taken" in str(caught.value)
    assert "--address" in str(caught.value)
    assert ["mesh.lock"] == left_in(home)


def test_mesh_that_does_not_answer_is_killed_by_whoever_is_in_a_hurry(mesh):
    os.kill(mesh.pid, signal.SIGSTOP)

    assert mesh.hurry() is False

    wait_until(lambda: mesh.poll() is not None, TIMEOUT_S)


def test_second_mesh_in_one_home_is_refused(mesh, home):
    with pytest.raises(MeshError) as caught:
        MeshProcess.start(ANYWHERE)

    assert f"process {controller_in(home)}" in str(caught.value)
    assert "PYSERVE_HOME" in str(caught.value)
    assert mesh.poll() is None


def test_killed_mesh_leaves_a_stale_record_that_the_next_one_replaces(mesh, home):
    deploy(mesh.address(), num_replicas=2)
    pids = replica_pids(mesh.address())
    controller = controller_in(home)

    # In this order nobody is there to start another controller, or to tidy up.
    os.kill(mesh.pid, signal.SIGSTOP)
    os.kill(controller, signal.SIGKILL)
    os.kill(mesh.pid, signal.SIGKILL)
    assert -signal.SIGKILL == mesh.close(TIMEOUT_S)

    wait_until(lambda: not any(is_running(pid) for pid in pids), TIMEOUT_S)
    assert find_mesh(read_settings()) is None
    again = MeshProcess.start(ANYWHERE)
    try:
        assert controller != controller_in(home)
        assert again.address() == find_mesh(read_settings())
    finally:
        assert 0 == again.close(TIMEOUT_S)
    assert ["mesh.lock"] == left_in(home)


def test_all_ends_with_the_process_of_the_ingress(mesh, home):
    deploy(mesh.address(), num_replicas=2)
    pids = [controller_in(home), *replica_pids(mesh.address())]

    os.kill(mesh.pid, signal.SIGKILL)

    wait_until(lambda: not any(is_running(pid) for pid in pids), TIMEOUT_S)
    assert ["mesh.lock"] == left_in(home)


def test_sigterm_lets_a_call_finish_and_exits_0(mesh, home):
    deploy(mesh.address())
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        stub.Echo(echo_pb2.EchoRequest(), timeout=TIMEOUT_S)
        request = echo_pb2.PerformRequest(payload=b"late", delay_s=1.0)
        call = stub.Perform.future(request, timeout=TIMEOUT_S)
        wait_until(lambda: in_flight(mesh.address()) == 1, TIMEOUT_S)

        os.kill(mesh.pid, signal.SIGTERM)

        assert b"late" == call.result().payload
    assert 0 == mesh.close(TIMEOUT_S)
    assert ["mesh.lock"] == left_in(home)


def in_flight(address):
    with control_of(address) as (control, metadata):
        status = control.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=TIMEOUT_S)
    return status.ingress.in_flight


def test_second_signal_ends_the_mesh_at_once(mesh, home):
    deploy(mesh.address())
    pids = replica_pids(mesh.address())
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        call = stub.Perform.future(echo_pb2.PerformRequest(delay_s=60), timeout=TIMEOUT_S)
        wait_until(lambda: in_flight(mesh.address()) == 1, TIMEOUT_S)
        begun = time.monotonic()

        os.kill(mesh.pid, signal.SIGTERM)
        os.kill(mesh.pid, signal.SIGINT)

        assert 1 == mesh.close(TIMEOUT_S)
        # Otherwise its calls have twenty seconds.
        assert time.monotonic() - begun < 15
        assert grpc.StatusCode.UNAVAILABLE == call.code()
    assert [] == [pid for pid in pids if is_running(pid)]
    assert ["mesh.lock"] == left_in(home)


def test_shutdown_by_call_ends_the_process(mesh, home):
    deploy(mesh.address(), num_replicas=2)
    with control_of(mesh.address()) as (control, metadata):
        control.Shutdown(
            control_pb2.ShutdownRequest(grace_s=5), metadata=metadata, timeout=TIMEOUT_S
        )

    wait_until(lambda: mesh.poll() is not None, TIMEOUT_S)
    assert 0 == mesh.poll()
    assert ["mesh.lock"] == left_in(home)


def test_mesh_ends_when_its_driver_is_killed(home):
    code = (
        "from pyserve.launch import MeshProcess\n"
        "import time\n"
        f"mesh = MeshProcess.start({ANYWHERE!r})\n"
        "print(mesh.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        deploy(find_mesh(read_settings()), num_replicas=2)
        pids = [pid, *replica_pids(find_mesh(read_settings()))]

        driver.kill()

        wait_until(lambda: not any(is_running(pid) for pid in pids), TIMEOUT_S)
    assert ["mesh.lock"] == left_in(home)


def test_replica_killed_is_replaced_and_calls_go_on(mesh):
    address = mesh.address()
    deploy(address, num_replicas=2)
    victim, other = replica_pids(address)

    os.kill(victim, signal.SIGKILL)

    def is_replaced():
        pids = set(replica_pids(address))
        return len(pids) == 2 and victim not in pids

    wait_until(is_replaced, TIMEOUT_S)
    assert other in replica_pids(address)
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        replies = [
            stub.Echo(echo_pb2.EchoRequest(payload=b"x"), timeout=TIMEOUT_S) for _ in range(20)
        ]
    assert [b"x"] * 20 == [reply.payload for reply in replies]


@pytest.mark.long
def test_no_call_fails_while_a_new_version_replaces_the_old(mesh):
    address = mesh.address()
    deploy(address, num_replicas=2)
    before = set(replica_pids(address))
    stop = threading.Event()
    pids: set[int] = set()
    failures: list[grpc.RpcError] = []

    def call_on():
        with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            while not stop.is_set():
                try:
                    reply = stub.Perform(echo_pb2.PerformRequest(), timeout=TIMEOUT_S)
                    pids.add(reply.facts.pid)
                except grpc.RpcError as error:
                    failures.append(error)

    callers = [threading.Thread(target=call_on) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        wait_until(lambda: pids >= before, TIMEOUT_S)
        for _ in range(2):
            deploy(address, num_replicas=2)
        after = set(replica_pids(address))
        wait_until(lambda: pids >= after, TIMEOUT_S)
    finally:
        stop.set()
        for caller in callers:
            caller.join(TIMEOUT_S)

    assert [] == failures
    assert not before & after


def test_health_follows_the_deployments(mesh):
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        whole = health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert health_pb2.HealthCheckResponse.SERVING == whole.status
        request = health_pb2.HealthCheckRequest(service="services.echo.Echo")
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(request, timeout=TIMEOUT_S)
        assert grpc.StatusCode.NOT_FOUND == caught.value.code()

        deploy(mesh.address())

        reply = health.Check(request, timeout=TIMEOUT_S)
        assert health_pb2.HealthCheckResponse.SERVING == reply.status


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_shows_services_and_their_files(mesh, version):
    deploy(mesh.address())
    own = f"grpc.reflection.{version}.ServerReflection"
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="services.echo.Echo"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=own),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="services.echo.Nothing"),
    ]
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        reflect = channel.stream_stream(
            f"/{own}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        names, echo, reflection, nothing = reflect(iter(requests), timeout=TIMEOUT_S)

    listed = [service.name for service in names.list_services_response.service]
    assert {"services.echo.Echo", "grpc.health.v1.Health", own} <= set(listed)
    assert echo.file_descriptor_response.file_descriptor_proto
    assert reflection.file_descriptor_response.file_descriptor_proto
    assert grpc.StatusCode.NOT_FOUND.value[0] == nothing.error_response.error_code


@pytest.mark.parametrize("version", VERSIONS)
def test_reflection_finds_symbols_of_every_kind(mesh, version):
    deploy(mesh.address())
    echo, health = "services/echo/echo.proto", "grpc_health/v1/health.proto"
    own = {
        "v1": "grpc/reflection/v1/reflection.proto",
        "v1alpha": reflection_pb2.DESCRIPTOR.name,
    }[version]
    not_found = grpc.StatusCode.NOT_FOUND.value[0]
    expected = {
        "services.echo.Echo": echo,
        "services.echo.Echo.Perform": echo,
        "services.echo.Echo.Converse": echo,
        "services.echo.EchoReply": echo,
        "services.echo.EchoReply.payload": echo,
        "grpc.health.v1.Health.Watch": health,
        "grpc.health.v1.HealthCheckResponse.ServingStatus": health,
        "grpc.health.v1.HealthCheckResponse.NOT_SERVING": health,
        f"grpc.reflection.{version}.ServerReflection.ServerReflectionInfo": own,
        "services.echo.Echo.Nothing": not_found,
        "services.echo.Echo.Perform.Nothing": not_found,
        "services.echo.Nothing.Perform": not_found,
        "services.echo": not_found,
        "": not_found,
    }
    with grpc.insecure_channel(mesh.record.addresses[0]) as channel:
        found = files_of(channel, version, list(expected))

    assert expected == dict(zip(expected, found, strict=True))


@pytest.mark.alone
def test_idle_mesh_uses_next_to_no_processor_time(mesh, home):
    deploy(mesh.address(), num_replicas=2)
    pids = (mesh.pid, controller_in(home), *replica_pids(mesh.address()))
    processes = [psutil.Process(pid) for pid in pids]

    def used_s():
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    # The time itself is what is measured here: it has to pass.
    time.sleep(1.0)
    before_s, begun = used_s(), time.monotonic()
    time.sleep(5.0)

    share = (used_s() - before_s) / (time.monotonic() - begun)
    # The target is 0.5 %; one tick of the kernel's clock is 10 ms, so this allows two more.
    assert share < 0.01
