"""Over real HTTP: who may look, what comes, and what it costs before anybody looks."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from pyserve.admin import (
    AdminContext,
    AdminServer,
    NodeGathering,
    ThreadedAdmin,
    advertised_address,
)
from pyserve.admin.access import viewing_key
from pyserve.config import NodeSettings
from pyserve.errors import MeshError
from pyserve.observe.metrics import (
    MODELS,
    Family,
    ProcessMetrics,
    Sample,
    Scrape,
    Source,
    Tally,
)
from pyserve.wire.v1 import control_pb2

TOKEN = b"\x01" * 32
BEARER = {"authorization": f"Bearer {TOKEN.hex()}"}
KEY = {"authorization": f"Bearer {viewing_key(TOKEN)}"}
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def add(scrape: Scrape) -> None:
    tally = Tally([0.5, 2])
    tally.add(1)
    family = Family("work_seconds", "histogram", "A time.")
    family.add_histogram(tally, {"what": 'a "b"\n'}, {1: ("cafe", 1.0, 5.0)})
    scrape.add_family(family)


def make_server(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    status=None,
    is_guarded: bool = False,
    source: Source = add,
    takes_plain_token: bool = False,
) -> AdminServer:
    metrics = ProcessMetrics("ingress")
    metrics.add(source)
    admin_context = AdminContext(gathering=NodeGathering(metrics, TOKEN, None), status=status)
    return AdminServer(
        admin_context,
        host=host,
        port=port,
        token=TOKEN,
        is_guarded=is_guarded,
        takes_plain_token=takes_plain_token,
    )


@asynccontextmanager
async def serving(**options) -> AsyncIterator[httpx.AsyncClient]:
    server = make_server(**options)
    server.start()
    base = f"http://{server.address.replace('0.0.0.0', '127.0.0.1')}"
    try:
        async with httpx.AsyncClient(base_url=base, timeout=20, trust_env=False) as client:
            yield client
    finally:
        await server.close()


async def test_prometheus_reads_its_own_format():
    async with serving() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {each.name: each for each in read_text(answer.text)}
    buckets = [each.value for each in found["work_seconds"].samples if "le" in each.labels]
    assert [0, 1, 1] == buckets
    assert {'a "b"\n'} == {each.labels["what"] for each in found["work_seconds"].samples}
    assert 1 == found["pyserve_info"].samples[0].value


async def test_names_of_models_are_for_the_page_alone():
    def add_model(scrape: Scrape) -> None:
        samples = [Sample("_hits", {"model": "of a customer"}, 1)]
        scrape.add_family(Family(MODELS, "unknown", "", samples))

    async with serving(source=add_model) as client:
        pages = [await client.get("/metrics", headers=each) for each in ({}, OPENMETRICS)]
    for page in pages:
        assert "pyserve_info" in page.text
        assert "of a customer" not in page.text


async def test_exemplars_come_in_openmetrics():
    async with serving() as client:
        answer = await client.get("/metrics", headers=OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    found = {each.name: each for each in read_openmetrics(answer.text)}
    (exemplar,) = filter(None, (each.exemplar for each in found["work_seconds"].samples))
    assert ({"trace_id": "cafe"}, 1.0, 5.0) == (
        exemplar.labels,
        exemplar.value,
        float(exemplar.timestamp),
    )


@pytest.mark.parametrize("version", ["1.x", "x", "*/*", '"1.0', "\xb2", "1" * 900])
async def test_an_accept_header_that_cannot_be_read_is_as_none(version: str):
    accept = f"application/openmetrics-text; version={version}, */*".encode("latin-1")
    async with serving() as client:
        answer = await client.get("/metrics", headers={b"accept": accept})
    assert 200 == answer.status_code
    assert "work_seconds" in answer.text


async def test_two_ask_at_once_and_both_are_answered():
    async with serving() as client:
        answers = await asyncio.gather(*(client.get("/metrics") for _ in range(8)))
    assert [200] * 8 == [each.status_code for each in answers]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:1"}, 200),
        # A page whose name was made to lead here, and a page that sends without reading.
        ({"host": "evil.example:9101"}, 401),
        ({"origin": "http://evil.example"}, 401),
        ({"host": "evil.example:9101", **BEARER}, 200),
        ({"host": "evil.example:9101", "authorization": "Bearer 00"}, 401),
        ({"x-forwarded-for": "10.0.0.1"}, 200),
    ],
)
async def test_loopback_is_open_to_programs_and_not_to_pages(headers, status):
    async with serving() as client:
        answer = await client.get("/metrics", headers=headers)
    assert status == answer.status_code
    assert ("pyserve_info" in answer.text) == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), (KEY, 200), (BEARER, 200)],
)
async def test_where_rules_hide_names_others_of_the_machine_need_a_key(headers, status):
    async with serving(is_guarded=True) as client:
        answers = [await client.get(path, headers=headers) for path in ("/metrics", "/-/none")]
    assert [status, 401 if status == 401 else 404] == [each.status_code for each in answers]
    assert ("pyserve_info" in answers[0].text) == (status == 200)


@pytest.mark.parametrize("takes_plain_token", [False, True])
async def test_from_elsewhere_the_key_is_asked_for_and_the_token_not_in_plain_text(
    takes_plain_token,
):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent; it only asks which address this machine has.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host = probe.getsockname()[0]
    server = make_server(host="0.0.0.0", takes_plain_token=takes_plain_token)
    server.start()
    place = f"http://{host}:{server.address.rpartition(':')[2]}/metrics"
    try:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
            refused = await client.get(place)
            by_key = await client.get(place, headers=KEY)
            by_token = await client.get(place, headers=BEARER)
    finally:
        await server.close()
    assert (401, "Bearer") == (refused.status_code, refused.headers["www-authenticate"])
    assert "pyserve_info" not in refused.text
    assert "`pyserve viewing-key`" in refused.text
    assert 200 == by_key.status_code
    if takes_plain_token:
        assert 200 == by_token.status_code
    else:
        assert 401 == by_token.status_code
        assert "the mesh token is not for a network" in by_token.text
        assert "pyserve_info" not in by_token.text
    for each in (refused, by_token):
        assert TOKEN.hex() not in each.text


async def test_targets_are_those_that_the_controller_knows():
    async def status() -> control_pb2.StatusReply:
        return control_pb2.StatusReply(admin="10.0.0.2:9101")

    async with serving(status=status) as client:
        answer = await client.get("/-/targets")
    assert [
        {
            "targets": ["10.0.0.2:9101"],
            "labels": {"pyserve_node": "", "pyserve_role": "controller"},
        }
    ] == answer.json()


async def test_without_a_controller_prometheus_keeps_its_targets():
    async def status() -> control_pb2.StatusReply:
        raise ConnectionError("nobody answers")

    async with serving(status=status) as client:
        answer = await client.get("/-/targets")
    assert (503, {"error": "nobody answers"}) == (answer.status_code, answer.json())


async def test_a_taken_port_is_no_reason_not_to_serve(caplog):
    caplog.set_level("INFO")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with serving(port=port) as client:
            assert client.base_url.port != port
            assert 200 == (await client.get("/metrics")).status_code
    assert 1 == caplog.text.count(f"port {port} is taken")


async def test_a_host_of_another_machine_is_refused_with_advice():
    with pytest.raises(MeshError, match="PYSERVE_METRICS_PORT=off"):
        make_server(host="192.0.2.1").start()


async def test_it_closes_whether_anybody_came_or_not():
    server = make_server()
    server.start()
    await server.close()
    await server.close()
    with pytest.raises(httpx.ConnectError):
        await httpx.AsyncClient(timeout=30, trust_env=False).get(f"http://{server.address}/metrics")


def test_a_thread_of_its_own_serves_while_this_one_does_not():
    admin = ThreadedAdmin(make_server())
    try:
        answer = httpx.get(f"http://{admin.address}/metrics", timeout=20, trust_env=False)
    finally:
        admin.close()
        admin.close()
    assert 200 == answer.status_code


def test_the_end_of_one_that_is_held_up_is_waited_for_no_longer_than_allowed(monkeypatch, caplog):
    monkeypatch.setattr("pyserve.admin.server._END_TIMEOUT_S", 0.1)
    server = make_server()
    admin = ThreadedAdmin(server)
    end = server.close

    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(server, "close", never)
    admin.close()

    assert "the admin server did not end within 0.1 s" in caplog.text
    assert not admin._thread.is_running
    asyncio.run(end())


def test_what_answers_http_is_loaded_when_somebody_comes():
    code = (
        "import asyncio, sys\n"
        "import pyserve, pyserve.admin as admin\n"
        "from pyserve.observe.metrics import ProcessMetrics\n"
        "gathering = admin.NodeGathering(ProcessMetrics('x'), b'x', None)\n"
        "context = admin.AdminContext(gathering=gathering)\n"
        "async def main():\n"
        "    server = admin.AdminServer(context, host='127.0.0.1', port=0, token=b'x')\n"
        "    server.start()\n"
        "    await server.close()\n"
        "asyncio.run(main())\n"
        "found = {'uvicorn', 'starlette', 'prometheus_client'} & sys.modules.keys()\n"
        "assert not found, found\n"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


@pytest.mark.parametrize(
    ("bound", "advertised", "reached_at", "expected"),
    [
        ("127.0.0.1:9101", None, "", "127.0.0.1:9101"),
        ("10.0.0.1:9101", None, "", "10.0.0.1:9101"),
        ("0.0.0.0:9101", None, "", "here:9101"),
        ("0.0.0.0:9101", None, "controller", "controller:9101"),
        # An address that only this machine reaches is of no use to others.
        ("0.0.0.0:9101", None, "127.0.0.1", "here:9101"),
        ("[::]:9101", "fd00::1", "controller", "[fd00::1]:9101"),
    ],
)
def test_others_are_told_where_they_reach_it(bound, advertised, reached_at, expected):
    node = NodeSettings(node_id="here", advertise_host=advertised)
    assert expected == advertised_address(node, bound, reached_at)
