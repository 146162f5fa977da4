"""Where a mesh is in its cluster, what it may do there, and the launcher's options."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pyserve.config import inherited_environment
from pyserve.config.launchers import check_pod_template
from pyserve.config.validation import check_mapping, check_switch, check_text
from pyserve.errors import MeshError
from pyserve.launch.on_kubernetes.api import Api, ApiError, ApiUnreachableError, Object

_MESH_LENGTH = 12
# What a launcher does with pods, as an access review asks for it: verb, resource, part of it.
RIGHTS = (
    ("create", "pods", ""),
    ("delete", "pods", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("get", "pods", "log"),
)
_NOT_FOUND, _FORBIDDEN = 404, 403


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod that the controller runs in.

    Attributes:
        image: of its container.
        owner: a reference to its controlling object, such as a StatefulSet; none: it has none.
        uid: of that, or of the pod.
    """

    image: str
    owner: Object | None
    uid: str


async def own_pod(api: Api, namespace: str) -> OwnPod:
    """Return the pod of this process.

    Raises:
        MeshError: it cannot be read; the text says which right is missing.
    """
    name = inherited_environment({}).get("POD_NAME") or socket.gethostname()
    try:
        pod = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ApiError as error:
        raise MeshError(
            f"the launcher {NAME!r} cannot read its own pod {name} in namespace {namespace!r}, "
            f"which it needs for owner references: {error}"
        ) from error
    except ApiUnreachableError as error:
        raise MeshError(f"the API server at {api.host} does not answer: {error}") from error
    owners = pod["metadata"].get("ownerReferences", ())
    keeper = next((each for each in owners if each.get("controller")), None)
    owner = None
    if keeper is not None:
        # Its deletion does not wait for the pods that it owns.
        owner = {**keeper, "controller": False, "blockOwnerDeletion": False}
    return OwnPod(
        image=pod["spec"]["containers"][0]["image"],
        owner=owner,
        uid=pod["metadata"]["uid"] if keeper is None else keeper["uid"],
    )


async def check_namespace(api: Api, namespace: str) -> None:
    """Raise ``MeshError`` for a namespace that does not exist, if this account may check that."""
    try:
        await api.get(f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        if error.status == _NOT_FOUND:
            raise MeshError(
                f"there is no namespace {namespace!r} in the cluster at {api.host}; make it with "
                f"`kubectl create namespace {namespace}`, or name another one by "
                f"--launcher-option namespace=NAME"
            ) from error
        if error.status != _FORBIDDEN:
            raise MeshError(f"the namespace {namespace!r} cannot be read: {error}") from error
    except ApiUnreachableError as error:
        raise MeshError(f"the API server at {api.host} does not answer: {error}") from error


async def check_rights(api: Api, namespace: str, *, makes_secret: bool) -> None:
    """Raise ``MeshError`` that names the rights that this account lacks.

    Args:
        api: of the cluster.
        namespace: of the pods.
        makes_secret: whether a Secret is to be made and deleted too.
    """
    rights = list(RIGHTS)
    if makes_secret:
        rights += [("create", "secrets", ""), ("delete", "secrets", "")]
    try:
        allowed = await asyncio.gather(*(_may(api, namespace, *each) for each in rights))
    except (ApiError, ApiUnreachableError) as error:
        raise MeshError(f"nobody says what may be done in {namespace!r}: {error}") from error
    missing = [
        f"{verb} {'/'.join(filter(None, (resource, part)))}"
        for (verb, resource, part), may in zip(rights, allowed, strict=True)
        if not may
    ]
    if missing:
        raise MeshError(
            f"the launcher {NAME!r} may not {', '.join(missing)} in namespace {namespace!r}; give "
            f"it a Role with that, as `pyserve kubernetes manifests` writes"
        )


async def _may(api: Api, namespace: str, verb: str, resource: str, part: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": namespace,
                "verb": verb,
                "resource": resource,
                "subresource": part,
            }
        },
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool((await api.request("POST", path, body=review))["status"]["allowed"])


def mesh_label(identity: bytes) -> str:
    """Return a text that distinguishes the pods of one mesh from those of others."""
    return hashlib.sha256(identity).hexdigest()[:_MESH_LENGTH]


# The options of the launcher `kubernetes`. Needs no Kubernetes client.

NAME = "kubernetes"
_SWITCHES = {"logs", "open_pod_templates", "pack"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherOptions:
    """The launcher's options.

    Attributes:
        namespace: of the pods; "": the controller's own, or that of the context.
        image: of deployments that name none; "": the controller's own.
        name: of the mesh, in labels.
        token_secret: a Secret with the mesh token as ``token``; "": the launcher makes one.
        tls_secret: a Secret with certificates between processes; "": there are none.
        pod_template: laid over every pod, below what a deployment says.
        kubeconfig, context: which cluster; "": the one that this process runs in, or the usual.
        logs: whether the output of replicas is followed, for ``pyserve logs``.
        pack: whether replicas are placed together on few nodes, instead of spread out.
        open_pod_templates: whether deployments may ask for whatever the controller may, such as
            privileged containers, Secrets by name and another account.
    """

    namespace: str = ""
    image: str = ""
    name: str = "pyserve"
    token_secret: str = ""
    tls_secret: str = ""
    pod_template: Mapping[str, object] = field(default_factory=dict)
    kubeconfig: str = ""
    context: str = ""
    logs: bool = True
    pack: bool = False
    open_pod_templates: bool = False

    @classmethod
    def read(cls, given: Mapping[str, object]) -> LauncherOptions:
        """Read what a user wrote.

        Raises:
            MeshError: a name is unknown.
            OptionError: a value is not allowed.
        """
        names = [each.name for each in fields(cls)]
        if unknown := sorted(given.keys() - set(names)):
            raise MeshError(
                f"the launcher {NAME!r} has no option {', '.join(unknown)}; it has "
                f"{', '.join(names)}"
            )
        values: dict[str, Any] = dict(given)
        for name in names:
            if name in values and name not in {"pod_template", *_SWITCHES}:
                values[name] = check_text(f"launcher.{name}", values[name])
        if "pod_template" in values:
            template = check_mapping("launcher.pod_template", values["pod_template"])
            values["pod_template"] = check_pod_template("launcher.pod_template", template)
        for name in _SWITCHES & values.keys():
            values[name] = check_switch(f"launcher.{name}", values[name])
        return cls(**values)
