"""Applications from a file, as a user deploys, changes, looks at and deletes them."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.mesh.commands import pyserve, status_of
from tests.mesh.start.processes import address_of, standing
from tests.support.waiting import wait_until

_SHOP = """
import os
import pyserve

@pyserve.deployment
class Cart:
    def __init__(self, word="cart"):
        self.word = word

    def __call__(self):
        print("the cart is asked")
        return f"{self.word} {os.environ.get('PLACE', '')}".strip()

@pyserve.deployment
class Front:
    def __init__(self, cart):
        self.cart = cart

    async def __call__(self, request):
        return await self.cart.remote()

app = Front.bind(Cart.bind())

def build(arguments):
    return Front.bind(Cart.bind(**arguments))
"""
_BLOG = """
import pyserve

@pyserve.deployment
class Blog:
    def __call__(self, request):
        return "blog"

    def reconfigure(self, config):
        pass

app = Blog.bind()
"""
_SHOP_APPLICATION: dict[str, Any] = {
    "name": "shop",
    "route_prefix": "/shop",
    "import_path": "shop:app",
}
_BLOG_APPLICATION = {"name": "blog", "route_prefix": "/blog", "import_path": "blog:app"}


class User:
    """Somebody with a folder of code, a file, and a mesh that runs."""

    def __init__(self, folder: Path, environment: dict[str, str], address: str) -> None:
        self.folder = folder
        self.environment = environment
        self.address = address
        self.write("shop.py", _SHOP)
        self.write("blog.py", _BLOG)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return pyserve(*arguments, environment=self.environment, cwd=self.folder)

    def deploy(self, *applications: dict[str, Any], **others: Any) -> str:
        """Deploy a file; return what the command prints."""
        result = self.deploying(*applications, **others)
        assert 0 == result.returncode, result.stderr
        return result.stdout

    def deploying(
        self, *applications: dict[str, Any], **others: Any
    ) -> subprocess.CompletedProcess[str]:
        content = {**others, "applications": list(applications)}
        self.write("serve.yaml", yaml.safe_dump(content, sort_keys=False))
        return self.command("deploy", "serve.yaml")

    def refusal(self, *applications: dict[str, Any]) -> str:
        """Deploy a file that is refused; return the one message."""
        result = self.deploying(*applications)
        assert 1 == result.returncode, result.stderr
        _, *messages = re.split("^Error: ", result.stderr, flags=re.MULTILINE)
        assert 1 == len(messages), result.stderr
        return messages[0]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def pids(self) -> dict[str, list[int]]:
        """Return the process ids of the replicas that run, by application and deployment."""
        return {
            f"{application['name']}/{deployment['name']}": [
                each["pid"] for each in deployment["replicas"] if each["state"] == "RUNNING"
            ]
            for application in status_of(self.environment)["applications"].values()
            for deployment in application["deployments"].values()
        }


@pytest.fixture
def user(tmp_path: Path, mesh_environment: dict[str, str]) -> Iterator[User]:
    with standing(mesh_environment):
        yield User(tmp_path, mesh_environment, address_of(mesh_environment))


@pytest.mark.slow
@pytest.mark.timeout(180)  # Eleven commands, and a mesh of five replicas.
@pytest.mark.parity("G-59")
@pytest.mark.parity("G-62")
@pytest.mark.parity("G-63")
def test_a_file_is_what_runs(user: User) -> None:
    said = user.deploy(
        {
            **_SHOP_APPLICATION,
            "import_path": "shop:build",
            "args": {"word": "basket"},
            "runtime_env": {"env_vars": {"PLACE": "here"}},
            "deployments": [{"name": "Cart", "num_replicas": 2}],
        },
        _BLOG_APPLICATION,
    )
    assert "application 'shop' is ready at " in said
    assert ("basket here", "blog") == (user.get("/shop"), user.get("/blog"))
    before = user.pids()
    assert {"shop/Cart": 2, "shop/Front": 1, "blog/Blog": 1} == {
        name: len(pids) for name, pids in before.items()
    }

    # The very same again, then one more replica's worth of environment, then without the blog.
    written = yaml.safe_load(user.command("config").stdout)["applications"]
    assert "is unchanged" in user.deploy(*reversed(written))
    assert before == user.pids()
    shop = next(each for each in written if each["name"] == "shop")
    shop["deployments"].append({"name": "Front", "env_vars": {"A": "1"}})
    said = user.deploy(shop)
    after = user.pids()
    assert "application 'blog' is deleted" in said
    assert (before["shop/Cart"], True) == (
        after["shop/Cart"],
        before["shop/Front"] != after["shop/Front"],
    )
    assert ["shop"] == [
        each["name"] for each in json.loads(user.command("config", "--json").stdout)["applications"]
    ]

    deleted = user.command("delete", "shop", "-y")
    assert (0, "pyserve: application 'shop' is deleted\n") == (deleted.returncode, deleted.stdout)
    assert {} == user.pids()
    assert "applications: []\n" == user.command("config").stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(120)  # Five commands that import, and three starts of replicas.
@pytest.mark.parity("G-31")
def test_a_file_may_want_a_share_of_its_replicas(user: User) -> None:
    shop = {**_SHOP_APPLICATION, "deployments": [{"name": "Cart", "num_replicas": 2}]}
    user.deploy(shop, target_capacity=100)
    whole = user.pids()

    user.deploy(shop, target_capacity=50)
    wait_until(lambda: (1, 1) == tuple(map(len, user.pids().values())))
    half = user.pids()
    assert "cart" == user.get("/shop")
    assert (True, whole["shop/Front"]) == (
        set(half["shop/Cart"]) < set(whole["shop/Cart"]),
        half["shop/Front"],
    )
    assert "shop (/shop)  RUNNING" in (said := user.command("status").stdout)
    assert "50 % of its replicas (target_capacity)" in said
    assert 50 == yaml.safe_load(user.command("config").stdout)["target_capacity"]

    user.deploy(shop, target_capacity=0)
    wait_until(lambda: (0, 0) == tuple(map(len, user.pids().values())))
    with pytest.raises(urllib.error.HTTPError) as refused:
        user.get("/shop")
    with refused.value as answer:
        assert 503 == answer.code

    user.deploy(shop)
    assert "cart" == user.get("/shop")
    assert {"shop/Cart": 2, "shop/Front": 1} == {
        name: len(pids) for name, pids in user.pids().items()
    }


@pytest.mark.slow
@pytest.mark.parity("G-62")
def test_an_edited_source_file_rolls_its_application_only(user: User) -> None:
    user.deploy(_SHOP_APPLICATION, _BLOG_APPLICATION)
    before = user.pids()

    user.write("blog.py", _BLOG.replace('"blog"', '"news"'))
    user.deploy(_SHOP_APPLICATION, _BLOG_APPLICATION)

    after = user.pids()
    assert "news" == user.get("/blog")
    assert [before[f"shop/{name}"] for name in ("Cart", "Front")] == [
        after[f"shop/{name}"] for name in ("Cart", "Front")
    ]


@pytest.mark.slow
@pytest.mark.parity("G-22")
def test_another_user_config_keeps_the_replicas(user: User) -> None:
    def blog(config: int) -> dict[str, Any]:
        return {**_BLOG_APPLICATION, "deployments": [{"name": "Blog", "user_config": config}]}

    user.deploy(blog(1))
    before = user.pids()
    user.deploy(blog(2))

    assert before == user.pids()


@pytest.mark.slow
@pytest.mark.timeout(120)  # Five commands that import, and two starts of replicas.
def test_what_is_wrong_is_one_message_and_changes_nothing(user: User) -> None:
    user.deploy(_SHOP_APPLICATION)
    before = user.pids()
    user.write("broken.py", "def half(:\n")
    raising = _BLOG.replace("reconfigure(self, config)", "__init__(self)")
    user.write("raises.py", raising.replace("pass", "raise OSError('no model')"))
    changed = {**_SHOP_APPLICATION, "import_path": "shop:build"}

    def also(**application: Any) -> str:
        return user.refusal(changed, {**_BLOG_APPLICATION, **application})

    assert "there is no 'route_prefx'; did you mean 'route_prefix'?" in also(route_prefx="/x")
    assert "serve.yaml:7:3: application 'blog': there is no module 'nowhere'" in also(
        import_path="nowhere:app"
    )
    syntax = also(import_path="broken:app")
    assert "importing broken failed" in syntax
    assert "def half(:" in syntax
    assert before == user.pids()

    # A constructor is run by replicas only; what is there serves on.
    raises = {**_SHOP_APPLICATION, "import_path": "raises:app"}
    failed = user.refusal(raises)
    assert "application 'shop': deployment 'Blog' failed: the constructor of Blog (" in failed
    assert "no model" in failed
    assert before == {name: pids for name, pids in user.pids().items() if pids}
    assert "cart" == user.get("/shop")


@pytest.mark.slow
def test_wrong_usage_is_two(user: User) -> None:
    for arguments, said in (
        (("deploy", "nowhere.yaml"), "there is no file 'nowhere.yaml'"),
        (("deploy", "serve.yaml", "--name", "x"), "write it in serve.yaml"),
        (("deploy",), "Missing argument"),
        (("logs",), "Missing argument"),
    ):
        result = user.command(*arguments)
        assert (2, True) == (result.returncode, said in result.stderr), result.stderr


def test_without_a_mesh_nothing_is_imported(
    tmp_path: Path, mesh_environment: dict[str, str]
) -> None:
    (tmp_path / "serve.yaml").write_text("applications: [{import_path: 'nowhere:app'}]\n")

    result = pyserve("deploy", "serve.yaml", environment=mesh_environment, cwd=tmp_path)

    assert 1 == result.returncode
    assert "no mesh runs here; start one with `pyserve start`" in result.stderr


@pytest.mark.slow
@pytest.mark.parity("G-63")
def test_logs_are_what_replicas_write_also_as_it_comes(user: User) -> None:
    user.deploy(_SHOP_APPLICATION)
    user.get("/shop")
    # The line comes through a pipe, after the answer.
    wait_until(lambda: "the cart is asked" in user.command("logs", "Cart").stdout, 20)

    follower = subprocess.Popen(
        [sys.executable, "-m", "pyserve", "logs", "Cart", "-f", "-n", "1"],
        cwd=user.folder,
        env={**user.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        first = follower.stdout.readline()
        user.get("/shop")
        assert [True] * 2 == [
            line.startswith("[") and line.endswith("] the cart is asked\n")
            for line in (first, follower.stdout.readline())
        ]
    finally:
        follower.kill()
        follower.wait()
        if follower.stdout is not None:
            follower.stdout.close()
    unknown = user.command("logs", "Crat")
    assert (1, True) == (unknown.returncode, "did you mean 'Cart'?" in unknown.stderr)


@pytest.mark.slow
@pytest.mark.parity("G-63")
def test_a_watched_status_has_a_line_for_each_change(user: User) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "pyserve", "status", "--watch"],
        cwd=user.folder,
        env={**user.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        user.deploy(_BLOG_APPLICATION)
        lines: list[str] = []
        while "blog  RUNNING\n" not in lines or not lines[-1].startswith("blog/Blog  HEALTHY"):
            clock, _, line = watching.stdout.readline().partition("  ")
            lines.append(line)
            assert line, lines
            assert time.strptime(clock, "%Y-%m-%d %H:%M:%S")
        assert lines[-1].startswith("blog/Blog  HEALTHY 1/1 replicas")
    finally:
        watching.kill()
        watching.wait()
        if watching.stdout is not None:
            watching.stdout.close()


@pytest.mark.slow
@pytest.mark.parity("G-61")
def test_a_file_runs_in_the_foreground_with_what_it_says_of_the_ingress(
    tmp_path: Path, mesh_environment: dict[str, str]
) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    content = {"http_options": {"port": 0}, "applications": [_SHOP_APPLICATION]}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(content))
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyserve", "run", "serve.yaml"],
            cwd=tmp_path,
            env=mesh_environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: process.poll() is not None or "plain HTTP at" in log.read_text(), 50)
        assert None is process.poll(), log.read_text()
        address = log.read_text().partition("plain HTTP at ")[2].split()[0]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"cart" == answer.read()
        process.terminate()
        assert 0 == process.wait(50), log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(180)  # Starts seven processes, one after the other.
@pytest.mark.parity("G-61")
def test_an_edit_is_reloaded_and_a_broken_one_leaves_the_version_before(
    tmp_path: Path, mesh_environment: dict[str, str]
) -> None:
    (tmp_path / "shop.py").write_text(_BLOG)
    (tmp_path / "blog.py").write_text(_BLOG)
    content = {"http_options": {"port": 0}, "applications": [_SHOP_APPLICATION, _BLOG_APPLICATION]}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(content))
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyserve", "run", "serve.yaml", "--reload"],
            cwd=tmp_path,
            env=mesh_environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def come(text: str, times: int = 1) -> None:
        wait_until(lambda: process.poll() is not None or log.read_text().count(text) >= times, 50)
        assert None is process.poll(), log.read_text()

    def blog() -> str:
        address = status_of(mesh_environment)["addresses"][0]
        with urllib.request.urlopen(f"http://{address}/blog", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def shop_pids() -> object:
        shop = status_of(mesh_environment)["applications"]["shop"]["deployments"]
        return [[each["pid"] for each in item["replicas"]] for item in shop.values()]

    try:
        come("plain HTTP at", times=2)
        before = shop_pids()
        (tmp_path / "blog.py").write_text(_BLOG.replace('"blog"', '"the news"'))
        come("blog.py: restarted blog/Blog in ")
        assert ("the news", before) == (blog(), shop_pids())

        (tmp_path / "blog.py").write_text("def half(:\n")
        come("the version before serves on")
        assert "SyntaxError" in log.read_text()
        assert ("the news", before) == (blog(), shop_pids())

        (tmp_path / "blog.py").write_text(_BLOG.replace('"blog"', '"mended"'))
        come("blog.py: restarted blog/Blog in ", times=2)
        assert ("mended", before) == (blog(), shop_pids())
        process.terminate()
        assert 0 == process.wait(50), log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_what_a_running_ingress_cannot_become_is_told(user: User) -> None:
    result = user.deploying(
        _BLOG_APPLICATION,
        proxy_location="HeadOnly",
        http_options={"host": "0.0.0.0", "root_path": "/gate"},
    )

    assert 0 == result.returncode, result.stderr
    assert "warning: the ingress listens at" in result.stderr
    assert "not at 0.0.0.0:8000; that takes a new mesh" in result.stderr
    assert "PYSERVE_INGRESS_ROOT_PATH is not what the mesh was started with" in result.stderr
    assert "LOCATION" not in result.stderr
