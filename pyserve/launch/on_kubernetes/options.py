"""The options of the launcher ``kubernetes``. Needs no Kubernetes client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pyserve.config.launchers import check_pod_template
from pyserve.config.validation import check_mapping, check_switch, check_text
from pyserve.errors import MeshError

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
