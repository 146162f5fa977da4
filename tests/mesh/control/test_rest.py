"""REST as of Ray Serve's dashboard: over real HTTP, with the command that loads user code."""

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from pyserve.control.server.rest import RestServer
from pyserve.errors import MeshError
from pyserve.schema import (
    ApplicationStatus,
    DeploymentSchema,
    DeploymentStatus,
    ReplicaState,
    ServeInstanceDetails,
)
from pyserve.types import MeshAddress
from tests.mesh.control.test_applying import Files, application
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN, Mesh

PATH = "/api/serve/applications/"
_APP = """
import pyserve

@pyserve.deployment
class Hello:
    def __call__(self, request):
        return "hello"

    def reconfigure(self, config):
        assert config["rate"] == 1e-05, config
        assert config["large"] == 1e16, config
        assert config["text"] == "1e-05", config
        assert len(config["sign"]) == 1, config

app = Hello.bind()
"""


class Rest:
    """A REST server in front of a mesh, and a client that has the token."""

    def __init__(self, server, mesh):
        self.server = server
        self.mesh = mesh
        self.files = Files(mesh)
        self.client = httpx.AsyncClient(
            base_url=f"http://{server.address}",
            headers={"authorization": f"Bearer {TOKEN.hex()}"},
            timeout=40,
            trust_env=False,
        )


@asynccontextmanager
async def serving(folder):
    mesh = Mesh(folder / "c.sock")
    await mesh.server.start()
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(TOKEN.hex())
    server = RestServer(
        mesh.controller,
        address="127.0.0.1:0",
        mesh=MeshAddress(controller=f"unix:{folder / 'c.sock'}", token=TOKEN),
        token_file=token_file,
        tls=None,
    )
    await server.start()
    rest = Rest(server, mesh)
    try:
        yield rest
    finally:
        await rest.client.aclose()
        await server.close()
        await mesh.channel.close()
        await mesh.controller.close()
        await mesh.server.stop(0)


@pytest.fixture
async def rest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rest_hello.py").write_text(_APP)
    (tmp_path / "rest_broken.py").write_text("raise OSError('no model')\n")
    async with serving(tmp_path) as found:
        yield found


@pytest.mark.parity("G-64")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "given", [{}, {"authorization": "Bearer 00"}, {"authorization": "Basic x"}]
)
async def test_nobody_without_the_token_is_heard(rest, method, given):
    await rest.files.apply(application("shop"))
    async with httpx.AsyncClient(
        base_url=rest.client.base_url, timeout=40, trust_env=False
    ) as stranger:
        answer = await stranger.request(method, PATH, headers=given, content=b"{}")

    assert (401, "Bearer") == (answer.status_code, answer.headers["www-authenticate"])
    assert {"shop"} == (await rest.files.prefixes()).keys()


@pytest.mark.parity("G-64")
async def test_what_runs_is_told_in_the_words_of_ray_serve(rest):
    await rest.files.apply(application("shop", Main={"num_replicas": 2}))
    await rest.mesh.deploy("Echo")  # Another "shop"; by a program.
    await rest.files.apply(application("blog"))

    found = (await rest.client.get(PATH)).json()
    blog, shop = (found["applications"][name] for name in ("blog", "shop"))

    assert {"host": "127.0.0.1", "port": 8000} == found["http_options"]
    assert ("RUNNING", "declarative", {"name": "blog"}) == (
        blog["status"],
        blog["source"],
        blog["deployed_app_config"],
    )
    assert ("imperative", None) == (shop["source"], shop["deployed_app_config"])
    main = blog["deployments"]["Main"]
    assert ("HEALTHY", 1, ["RUNNING"], 1) == (
        main["status"],
        main["target_num_replicas"],
        [each["state"] for each in main["replicas"]],
        main["deployment_config"]["num_replicas"],
    )


@pytest.mark.parity("G-64")
async def test_the_details_are_read_by_their_models(rest):
    await rest.mesh.deploy("Echo")  # "shop"; by a program.
    await rest.files.apply(application("blog"))
    found = (await rest.client.get(PATH)).json()
    # As a later release may answer.
    found["applications"]["shop"]["deployments"]["Echo"]["deployment_config"]["newer"] = 1

    details = ServeInstanceDetails(**found)

    blog, shop = (details.applications[name] for name in ("blog", "shop"))
    assert ApplicationStatus.RUNNING is blog.status
    main = blog.deployments["Main"]
    assert isinstance(main.deployment_config, DeploymentSchema)
    assert (1, DeploymentStatus.HEALTHY) == (main.deployment_config.num_replicas, main.status)
    assert [ReplicaState.RUNNING] == [each.state for each in main.replicas]
    newer = shop.deployments["Echo"].deployment_config
    assert isinstance(newer, dict)
    assert 1 == newer["newer"]
    assert ServeInstanceDetails(**ServeInstanceDetails.get_empty_schema_dict()).applications == {}


async def test_brackets_in_brackets_are_no_number(rest):
    path = "/api/v1/applications/shop/deployments/Echo/scale"
    await rest.mesh.deploy("Echo")
    for body in (b"[" * 100_000, b'{"target_num_replicas":' + b"[" * 5_000 + b"]" * 5_000 + b"}"):
        answer = await rest.client.post(path, content=body)
        assert (400, True) == (answer.status_code, "target_num_replicas" in answer.text)


@pytest.mark.slow
@pytest.mark.parity("G-64")
async def test_a_configuration_is_put_and_deleted(rest):
    # In YAML 1.1 the number is a text, and the escape of JSON two halves of a character.
    config = {"rate": 1e-05, "large": 1e16, "sign": "\U0001f600", "text": "1e-05"}
    deployments = [{"name": "Hello", "user_config": config}]
    hello = {"name": "hello", "import_path": "rest_hello:app", "deployments": deployments}
    content = {"applications": [hello]}

    # httpx writes characters as they are, and Python's own module as escapes.
    answer = await rest.client.put(PATH, content=json.dumps(content))
    assert (200, "") == (answer.status_code, answer.text)
    async with asyncio.timeout(TIMEOUT_S):
        while "RUNNING" != (await _status(rest)).get("hello"):
            await rest.mesh.controller.next_step()
    config = (await rest.client.get(PATH)).json()["applications"]["hello"]["deployed_app_config"]
    assert content["applications"][0] == config

    assert 200 == (await rest.client.delete(PATH)).status_code
    assert {} == await _status(rest)


async def _status(rest):
    found = (await rest.client.get(PATH)).json()["applications"]
    return {name: each["status"] for name, each in found.items()}


@pytest.mark.slow
@pytest.mark.parity("G-64")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"applicatons": []}, "did you mean 'applications'?"),
        ({"applications": [{"import_path": "rest_nowhere:app"}]}, "there is no module"),
        ({"applications": [{"import_path": "rest_broken:app"}]}, "OSError: no model"),
    ],
)
async def test_a_configuration_that_cannot_be_is_refused_and_changes_nothing(rest, content, said):
    await rest.files.apply(application("shop"))

    answer = await rest.client.put(PATH, json=content)

    assert (400, True) == (answer.status_code, said in answer.text), answer.text
    assert {"shop": "RUNNING"} == await _status(rest)


async def test_a_body_without_end_is_refused(rest):
    async def endless():
        for _ in range(100):
            yield bytes(1 << 20)

    # The refusal may be overtaken by the end of the connection.
    with contextlib.suppress(httpx.TransportError):
        assert 413 == (await rest.client.put(PATH, content=endless())).status_code
    assert {} == await _status(rest)


async def test_an_address_that_is_taken_is_told(rest):
    second = RestServer(
        rest.mesh.controller,
        address=rest.server.address,
        mesh=MeshAddress(controller="unix:/nowhere", token=TOKEN),
        token_file=Path("/nowhere"),
        tls=None,
    )

    with pytest.raises(MeshError, match="PYSERVE_DASHBOARD_ADDRESS=127"):
        await second.start()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8265", "[::]:0"])
async def test_the_token_does_not_come_in_plain_text_from_other_machines(rest, address):
    opened = RestServer(
        rest.mesh.controller,
        address=address,
        mesh=MeshAddress(controller="unix:/nowhere", token=TOKEN),
        token_file=Path("/nowhere"),
        tls=None,
    )

    with pytest.raises(MeshError, match=r"PYSERVE_TLS_CERT_FILE.*PYSERVE_MESH_PLAIN_TCP=1"):
        await opened.start()


async def test_other_paths_are_not_there(rest):
    assert 404 == (await rest.client.get("/")).status_code
    assert 405 == (await rest.client.post(PATH, content=json.dumps({}))).status_code


@pytest.mark.parity("G-29", "G-64")
async def test_an_outer_scaler_sets_the_number_of_replicas(rest):
    scaled = application("shop")
    scaled.external_scaler_enabled = True
    await rest.files.apply(scaled)
    await rest.files.apply(scaled, application("blog"))

    async def scale(name, content):
        path = f"/api/v1/applications/{name}/deployments/Main/scale"
        return await rest.client.post(path, content=content)

    assert 200 == (await scale("shop", b'{"target_num_replicas": 3}')).status_code
    wanted = {
        each.name: each.deployments[0].wanted for each in rest.mesh.controller.status().applications
    }
    assert {"shop": 3, "blog": 1} == wanted
    for name, content, status in (
        ("blog", b'{"target_num_replicas": 3}', 412),
        ("nobody", b'{"target_num_replicas": 3}', 400),
        ("shop", b'{"target_num_replicas": -1}', 400),
        ("shop", b'{"target_num_replicas": true}', 400),
        ("shop", b"[]", 400),
        ("shop", b"nonsense", 400),
    ):
        answer = await scale(name, content)
        assert (status, True) == (answer.status_code, bool(answer.json()["error"])), answer.text
