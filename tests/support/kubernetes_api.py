"""An API server of Kubernetes in the test's process, with a node that runs pods as processes.

It answers what the launcher asks for, by the shapes of the API (core/v1): lists with versions,
watches with bookmarks and 410, reviews of rights, logs, deletion with grace. What a cluster may do
besides, tests script: refuse, be gone, break its watches.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from pyserve.loop_thread import LoopThread

Object = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
NAMESPACE = "shop"
NODES = {"node-a": "zone-a", "node-b": "zone-b"}
_SIGNALS_FROM = 128


@dataclass
class FakeCluster:
    """The objects of the server, and its behaviour.

    Attributes:
        folder: where Secrets are mounted.
        rights: what may not be done, as ``verb resource``.
        refuse: returns status, reason and message for a pod that shall not be made.
        hold: says of a pod why it does not get a node, or how its container waits.
        runs: whether pods run as processes; else they stay as they are.
        keeps: pods whose node does not confirm their end.
        created: pods that were asked for, in order.
        deleted: names of pods, and the grace of each deletion.
    """

    folder: Path
    rights: set[str] = field(default_factory=set)
    refuse: Callable[[Object], tuple[int, str, str] | None] = lambda _: None
    hold: Callable[[Object], Object] = lambda _: {}
    runs: bool = True
    keeps: set[str] = field(default_factory=set)
    created: list[Object] = field(default_factory=list)
    deleted: list[tuple[str, int]] = field(default_factory=list)
    pods: dict[str, Object] = field(default_factory=dict)
    secrets: dict[str, Object] = field(default_factory=dict)
    version: int = 100
    oldest: int = 0
    _history: list[tuple[int, str, Object]] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _watches: set[asyncio.Task[Any]] = field(default_factory=set)
    _lives: set[asyncio.Task[None]] = field(default_factory=set)
    _processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _output: dict[str, list[str]] = field(default_factory=dict)

    # What tests do.

    def break_watches(self) -> None:
        """End every watch in its midst, as a proxy does that is restarted."""
        for each in self._watches:
            each.cancel()

    def forget(self) -> None:
        """Know none of the versions any more that were told until now."""
        self.oldest = self.version
        self._history.clear()

    async def change(self, name: str, status: Object | None = None, **metadata: Any) -> None:
        """Let a pod have another status, or other metadata."""
        pod = self.pods[name]
        pod["metadata"].update(metadata)
        pod["status"].update(status or {})
        await self._tell("MODIFIED", pod)

    async def remove(self, name: str) -> None:
        """Let a pod be no more, whatever it was."""
        if name in self.pods:
            await self._tell("DELETED", self.pods.pop(name))

    async def close(self) -> None:
        """End every process and every answer."""
        self.break_watches()
        for task in self._lives:
            task.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        # Without that the loop might end before it has noticed their ends and closed their pipes.
        await asyncio.gather(*(process.communicate() for process in self._processes.values()))

    # What clients ask for.

    def application(self) -> web.Application:
        """Return the server's routes."""
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        app = web.Application()
        app.add_routes(
            [
                web.get("/version", _plain({"major": "1", "minor": "31"})),
                web.get("/api/v1", _plain({"kind": "APIResourceList"})),
                web.get("/api/v1/namespaces/{name}", self._namespace),
                web.get("/api/v1/nodes/{name}", self._node),
                web.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._may),
                web.get(pods, self._list),
                web.post(pods, self._create),
                web.delete(pods + "/{name}", self._delete),
                web.get(pods + "/{name}/log", self._log),
                web.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", self._make_secret),
                web.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/{{name}}", self._delete_secret),
            ]
        )
        return app

    async def _namespace(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _json({}) if name == NAMESPACE else _no(404, "NotFound", f'namespaces "{name}"')

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in NODES:
            return _no(404, "NotFound", f'nodes "{name}" not found')
        labels = {"topology.kubernetes.io/zone": NODES[name]}
        ready = {"type": "Ready", "status": "True"}
        return _json(
            {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [ready]}}
        )

    async def _may(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]["resourceAttributes"]
        what = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return _json({"status": {"allowed": f"{asked['verb']} {what}" not in self.rights}})

    async def _make_secret(self, request: web.Request) -> web.Response:
        secret = await request.json()
        name = secret["metadata"]["name"]
        if name in self.secrets:
            return _no(409, "AlreadyExists", f'secrets "{name}" already exists')
        self.secrets[name] = secret
        return _json(secret, 201)

    async def _delete_secret(self, request: web.Request) -> web.Response:
        self.secrets.pop(request.match_info["name"], None)
        return _json({})

    async def _create(self, request: web.Request) -> web.Response:
        pod = await request.json()
        name = pod["metadata"]["name"]
        if (refused := self.refuse(pod)) is not None:
            return _no(*refused)
        if name in self.pods:
            return _no(409, "AlreadyExists", f'pods "{name}" already exists')
        pod["metadata"]["uid"] = str(uuid.uuid4())
        pod["status"] = {"phase": "Pending"}
        self.pods[name] = pod
        self.created.append(pod)
        await self._tell("ADDED", pod)
        if self.runs:
            task = asyncio.create_task(self._live(pod))
            self._lives.add(task)
            task.add_done_callback(self._lives.discard)
        return _json(pod, 201)

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        pod = self.pods.get(name)
        if pod is None:
            return _no(404, "NotFound", f'pods "{name}" not found')
        grace_s = int((await request.json()).get("gracePeriodSeconds", 30))
        self.deleted.append((name, grace_s))
        process = self._processes.get(name)
        if process is not None and process.returncode is not None:
            process = None
        if grace_s == 0 or (process is None and name not in self.keeps):
            await self.remove(name)
        elif process is None:
            await self.change(name, deletionTimestamp="2026-01-01T00:00:00Z")
        else:
            await self.change(name, deletionTimestamp="2026-01-01T00:00:00Z")
            _send(process, signal.SIGTERM)
        if process is not None:
            asyncio.get_running_loop().call_later(grace_s, _send, process, signal.SIGKILL)
        return _json(pod)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        name, _, value = request.query["labelSelector"].partition("=")
        if request.query.get("watch") == "true":
            return await self._watch(request, name, value)
        items = [each for each in self.pods.values() if each["metadata"]["labels"][name] == value]
        return _json({"items": items, "metadata": {"resourceVersion": str(self.version)}})

    async def _watch(self, request: web.Request, label: str, value: str) -> web.StreamResponse:
        seen = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            while True:
                if seen < self.oldest:
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
                    await response.write(_line({"type": "ERROR", "object": gone}))
                    return response
                for version, kind, pod in list(self._history):
                    if version > seen and pod["metadata"]["labels"][label] == value:
                        await response.write(_line({"type": kind, "object": pod}))
                seen = max(seen, self.version)
                async with self._news:
                    await self._news.wait_for(lambda: self.version > seen)  # noqa: B023
        except ConnectionResetError:
            return response  # Nobody listens any more.
        finally:
            self._watches.discard(task)

    async def _log(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._output:
            return _no(404, "NotFound", f'pods "{name}" not found')
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0 if request.query.get("tailLines") != "0" else len(self._output[name])
        while True:
            is_over = self._processes[name].returncode is not None
            lines = self._output[name][sent:]
            sent += len(lines)
            for line in lines:
                await response.write(f"{line}\n".encode())
            if is_over:
                return response
            await asyncio.sleep(0.02)

    # The node.

    async def _live(self, pod: Object) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        if held := self.hold(pod):
            await self.change(name, held)
            return
        node = sorted(NODES)[len(self.created) % len(NODES)]
        pod["spec"]["nodeName"] = node
        await self.change(name, _state("waiting", {"reason": "ContainerCreating"}))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *container["command"][1:], *container["args"]),
            env={**os.environ, "PYTHONPATH": str(ROOT), **self._variables(pod, node)},
            cwd=container.get("workingDir", ROOT),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes[name] = process
        lines = self._output[name] = []
        await self.change(name, {"phase": "Running", **_state("running", {})})
        assert process.stdout is not None
        async for line in process.stdout:
            stamp = f"2026-01-01T00:00:00.{len(lines):09}Z"
            lines.append(f"{stamp} {line.decode(errors='replace').rstrip()}")
        status = await process.wait()
        if name in self.pods:
            await self.change(name, _ended(status, lines[-1].partition(" ")[2] if lines else ""))
        if "deletionTimestamp" in pod["metadata"]:
            await self.remove(name)

    def _variables(self, pod: Object, node: str) -> dict[str, str]:
        mounts = {}
        for volume in pod["spec"]["volumes"]:
            secret = self.secrets[volume["secret"]["secretName"]]
            place = self.folder / volume["secret"]["secretName"]
            place.mkdir(exist_ok=True)
            for file, text in secret["data"].items():
                (place / file).touch(0o600)
                (place / file).write_bytes(base64.b64decode(text))
            mounts[volume["name"]] = place
        container = pod["spec"]["containers"][0]
        found = {each["name"]: each.get("value", node) for each in container["env"]}
        for mount in container["volumeMounts"]:
            for name, value in found.items():
                if value.startswith(mount["mountPath"]):
                    found[name] = value.replace(mount["mountPath"], str(mounts[mount["name"]]))
        # Pods have ports of their own; processes of one machine take any.
        return {**found, "PYSERVE_HOME": str(self.folder / "home"), "PYSERVE_METRICS_PORT": "0"}

    async def _tell(self, kind: str, pod: Object) -> None:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self._history.append((self.version, kind, json.loads(json.dumps(pod))))
        async with self._news:
            self._news.notify_all()


@contextlib.asynccontextmanager
async def serving_cluster(folder: Path) -> AsyncIterator[tuple[FakeCluster, Path]]:
    """Run a cluster until the block ends; yield it with a kubeconfig."""
    cluster = FakeCluster(folder)
    runner = web.AppRunner(cluster.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    file = folder / "kubeconfig.json"
    file.write_text(json.dumps(kubeconfig(f"http://{host}:{port}")))
    try:
        yield cluster, file
    finally:
        await cluster.close()
        await runner.cleanup()


@contextlib.contextmanager
def cluster_beside(folder: Path) -> Iterator[tuple[FakeCluster, Path]]:
    """Run a cluster in a thread until the block ends, for tests that wait for commands."""
    thread = LoopThread("cluster", waits_for_threads=True)
    serving = serving_cluster(folder)
    try:
        yield thread.run(serving.__aenter__()).result(30)
    finally:
        thread.run(serving.__aexit__(None, None, None)).result(30)
        thread.close()


def kubeconfig(server: str) -> Object:
    """Return a kubeconfig for a server that asks nobody who he is."""
    context = {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": context}],
        "clusters": [{"name": "fake", "cluster": {"server": server}}],
        "users": [{"name": "fake", "user": {}}],
    }


def _ended(status: int, last: str) -> Object:
    code = _SIGNALS_FROM - status if status < 0 else status
    terminated = {"exitCode": code, "reason": "Error" if code else "Completed"}
    if code:
        terminated["message"] = last
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, **_state("terminated", terminated)}


def _state(kind: str, state: Mapping[str, object]) -> Object:
    return {"containerStatuses": [{"name": "replica", "state": {kind: dict(state)}}]}


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _plain(answer: Object) -> Callable[[web.Request], Any]:
    async def handle(_: web.Request) -> web.Response:
        return _json(answer)

    return handle


def _json(answer: Object, status: int = 200) -> web.Response:
    return web.json_response(answer, status=status)


def _no(status: int, reason: str, message: str) -> web.Response:
    return _json({"kind": "Status", "reason": reason, "message": message}, status)


def _line(event: Object) -> bytes:
    return json.dumps(event).encode() + b"\n"
