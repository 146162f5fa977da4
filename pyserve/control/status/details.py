"""The state of a mesh in the words of Ray Serve's REST interface. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyserve.config import DeploymentOptions
from pyserve.control.state.mesh import MeshState
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2

Json = dict[str, object]


def instance_details(
    status: control_pb2.StatusReply,
    declarations: Iterable[control_pb2.Declaration],
    state: MeshState,
) -> Json:
    """Return what ``GET /api/serve/applications/`` answers.

    What belongs to Ray's actors (their ids, names and log files) is left out; what stands here
    means what it means there.
    """
    declared = {each.application: json.loads(each.json) for each in declarations}
    ingress = status.ingress
    proxies: Json = {}
    if ingress.node:
        state_of_proxy = "DRAINING" if ingress.is_draining else "HEALTHY"
        proxies[ingress.node] = {"node_id": ingress.node, "status": state_of_proxy}
    return {
        "controller_info": {"pid": status.controller_pid},
        "proxy_location": "EveryNode" if status.addresses else "Disabled",
        "http_options": _http_options(status.addresses),
        "proxies": proxies,
        "applications": {
            each.name: _application(each, declared, state) for each in status.applications
        },
        "target_capacity": status.target_capacity if status.HasField("target_capacity") else None,
    }


def _http_options(addresses: Iterable[str]) -> Json | None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        return {"host": host.strip("[]"), "port": int(port)}
    return None


def _application(
    application: control_pb2.ApplicationStatus, declared: Mapping[str, Json], state: MeshState
) -> Json:
    name = application.name
    return {
        "name": name,
        "route_prefix": application.route_prefix or None,
        "docs_path": None,
        "status": application.state,
        "message": application.message,
        "last_deployed_time_s": application.deployed_at,
        "deployed_app_config": declared.get(name),
        "source": "declarative" if name in declared else "imperative",
        "deployments": {
            each.name: _deployment(name, each, state) for each in application.deployments
        },
    }


def _deployment(
    application: str, deployment: control_pb2.DeploymentStatus, state: MeshState
) -> Json:
    key = DeploymentKey(ApplicationName(application), DeploymentName(deployment.name))
    desired = state.deployments.get(key)
    target = None if desired is None else desired.target
    options: Json = {} if target is None else _options(target.options)
    return {
        "name": deployment.name,
        "status": deployment.state,
        "status_trigger": deployment.trigger,
        "message": deployment.message,
        "deployment_config": {**options, "name": deployment.name},
        "target_num_replicas": deployment.wanted,
        "replicas": [
            {
                "replica_id": each.replica_id,
                "state": each.state,
                "pid": each.pid,
                "node_id": each.node,
            }
            for each in deployment.replicas
        ],
    }


def _options(options: DeploymentOptions) -> Json:
    """Return the options for display, with the defaults that are sent unset."""
    written = json.loads(options.to_json())
    written["request_router_config"]["policy"] = options.request_router_config.policy
    return dict(written)
