"""The processes of a mesh that runs: who answers, with which version and clock, how they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from pyserve.config import MeshSettings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.doctor.findings import Finding, notice, ok, wrong
from pyserve.driver.doctor.probes import Door, Probe, ask_ingress, ask_port, ask_replica
from pyserve.errors import MeshError
from pyserve.types import MeshAddress
from pyserve.version import version
from pyserve.wire.v1 import control_pb2

# A larger difference of clocks makes the order of log lines of two machines misleading. Arbitrary:
# the date of an HTTP answer is in whole seconds, and a replica's hello may take one to arrive.
_CLOCKS_APART_MAX_S = 2.0
# A controller on this machine answers in milliseconds; if not, its loop is blocked. Arbitrary.
_SLOW_S = 1.0
_PROBES_AT_ONCE = 16
_SERVING = ("RUNNING", "CORDONED", "SILENT", "UNHEALTHY")


def check_mesh(settings: MeshSettings) -> Iterator[Finding] | None:
    """Look at every process of the mesh; ``None`` when none runs."""
    try:
        address = find_mesh(settings)
    except MeshError as error:
        remedy = "copy the token file from where the mesh was started; see guide/staying.md"
        return iter([wrong("controller", str(error), remedy)])
    return None if address is None else _check(settings, address)


def _check(settings: MeshSettings, address: MeshAddress) -> Iterator[Finding]:
    client = ControlClient(address, settings.node.tls)
    began = time.time()
    try:
        reply = client.status()
    except MeshError as error:
        yield wrong(
            "controller",
            str(error),
            "look at its output or PYSERVE_LOG_DIR/controller.log; start it anew if it is gone",
        )
        return
    finally:
        client.close()
    took_s = time.time() - began
    where = f"{address.controller} (process {reply.controller_pid})"
    if took_s > _SLOW_S:
        text = f"{where} answers after {took_s:.1f} s: its event loop is held up"
        yield notice("controller", text, "give its machine more processors, or fewer tasks")
    else:
        yield ok("controller", f"{where} answers in {took_s * 1e3:.0f} ms")
    yield from _versions(reply)
    yield from _clocks(reply, began + took_s / 2)
    yield from _applications(reply)
    probes = [*_ingresses(reply), *_admins(reply), *_replicas(settings, address, reply)]
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
        yield from chain.from_iterable(pool.map(Probe.run, probes))
    yield from (notice("mesh", line, "") for line in reply.notices)


def _versions(reply: control_pb2.StatusReply) -> Iterator[Finding]:
    ours = version()
    others = {("the controller", reply.version)}
    others |= {(f"the ingress on {each.node}", each.version) for each in reply.ingresses}
    others |= {(each.replica_id, each.version) for each in _all_replicas(reply)}
    different = sorted((who, what) for who, what in others if what and what != ours)
    for who, what in different:
        text = f"{who} runs pyserve {what}, this command {ours}"
        yield notice("versions", text, "finish the upgrade; see concepts/versions.md")
    if not different:
        yield ok("versions", f"every process runs pyserve {ours}")


def _clocks(reply: control_pb2.StatusReply, here: float) -> Iterator[Finding]:
    apart = {"the controller's clock": reply.now - here} if reply.now else {}
    apart |= {
        f"the clock of {each.replica_id} on {each.node}": each.clock_ahead_s
        for each in _all_replicas(reply)
    }
    late = {who: s for who, s in apart.items() if abs(s) > _CLOCKS_APART_MAX_S}
    for who, seconds in late.items():
        word = "ahead" if seconds > 0 else "behind"
        text = f"{who} is {abs(seconds):.0f} s {word}; times of logs and traces mislead"
        yield wrong("clocks", text, "let both machines follow the same time (chrony, timesyncd)")
    if not late:
        yield ok("clocks", f"{len(apart)} clocks agree to {_CLOCKS_APART_MAX_S:g} s")


def _applications(reply: control_pb2.StatusReply) -> Iterator[Finding]:
    for application in reply.applications:
        for each in application.deployments:
            name = f"{application.name}/{each.name}"
            remedy = f"`pyserve logs {each.name} --application {application.name}` says more"
            if each.state in ("UNHEALTHY", "DEPLOY_FAILED"):
                yield wrong("deployments", f"{name} is {each.state}: {each.message}", remedy)
            for ended in each.ended:
                how = f"{ended.replica_id} has ended: {ended.summary}"
                yield notice(
                    "replicas", how, f"`pyserve logs {ended.replica_id}` has its last lines"
                )
    if not reply.applications:
        yield ok("deployments", "no application is there")


def _ingresses(reply: control_pb2.StatusReply) -> Iterator[Probe]:
    speaks_tls = reply.ingress.speaks_tls
    for each in reply.ingresses:
        if each.state in ("STARTING", "HEALTHY", "UNHEALTHY"):
            for address in each.addresses:
                yield Probe(
                    f"ingress on {each.node} at {address}", ask_ingress, address, speaks_tls
                )


def _admins(reply: control_pb2.StatusReply) -> Iterator[Probe]:
    for address in {each.admin for each in reply.ingresses} | {reply.admin}:
        if address:
            yield Probe(f"metrics at {address}", ask_port, address)


def _replicas(
    settings: MeshSettings, address: MeshAddress, reply: control_pb2.StatusReply
) -> Iterator[Probe]:
    for each in _all_replicas(reply):
        if each.state not in _SERVING:
            continue
        doors = [each.endpoints.address]
        if each.node == settings.node.node_id and each.endpoints.unix_path:
            doors.append(f"unix:{each.endpoints.unix_path}")
        for target in doors:
            door = Door(target, address.token, settings.node.tls)
            yield Probe(f"{each.replica_id} at {target}", ask_replica, door)


def _all_replicas(reply: control_pb2.StatusReply) -> list[control_pb2.ReplicaStatus]:
    return [
        replica
        for application in reply.applications
        for deployment in application.deployments
        for replica in deployment.replicas
    ]
