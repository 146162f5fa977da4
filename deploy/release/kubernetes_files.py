"""Writes ``deploy/kubernetes``: what `pyserve kubernetes manifests` prints, for Helm and kustomize.

The chart has the names of its release and values where the objects have settings. Of the language
of templates it uses only what a reader, and the tests without Helm, can follow.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from pyserve.config.files import dump, dump_all
from pyserve.config.tls import PLAIN_TCP
from pyserve.launch.on_kubernetes.manifests import ManifestSettings, manifests, with_reasons
from pyserve.version import version

FOLDER = Path(__file__).resolve().parents[1] / "kubernetes"
# What an overlay of kustomize brings: a Secret of its own, and the files of the applications.
NOT_IN_BASE = ("Secret", "ConfigMap", "Job")
IMAGE = "pyserve-mesh"
_HEAD = "# Written by `make gen` from pyserve/launch/on_kubernetes/manifests.py.\n"
_TOKEN, _APPLICATIONS, _REPLICAS = "TOKEN", "APPLICATIONS", 987654
# Items of lists that are there only with certificates.
_TLS_ITEMS = re.compile(
    r"(?:^( *)- name: (?:PYSERVE_MESH_TLS_\w+|pyserve-tls)\n(?:\1  .*\n)*)+", re.MULTILINE
)
# Kinds that are there only with a value.
_ONLY_WITH = {
    "ConfigMap": "applications",
    "Job": "applications",
    "NetworkPolicy": "networkPolicies",
}
_LAUNCHER = {"LAUNCHER": "MORE"}
_OPTIONS = (
    '{{ merge (dict "name" .Release.Name "token_secret" (printf "%s-token" .Release.Name)) '
    '(ternary (dict) (dict "tls_secret" .Values.tlsSecret) (empty .Values.tlsSecret)) '
    ".Values.launcher | toJson | quote }}"
)
VALUES = """\
# With pyserve, its extra `kubernetes`, and the code of the applications.
image: pyserve-mesh:VERSION

# The mesh token, hexadecimal: openssl rand -hex 32
token: ""

# A Secret with certificates between processes, of the controller's name; empty: there are none, and
# the mesh token passes between pods in plain text.
tlsSecret: ""

# What `pyserve deploy` takes; empty: nothing is deployed.
applications: ""

# More options of the launcher `kubernetes`, such as pod_template.
launcher: {}

storage:
  size: 1Gi
  # Empty: the cluster's own.
  class: ""

# Clients reach ingresses alone, and processes of the mesh each other.
networkPolicies: true

ingress:
  replicas: 2
  serviceType: ClusterIP
"""


def base_file() -> str:
    """Return the objects of the base of kustomize."""
    settings = ManifestSettings(image=IMAGE, token="", applications="")
    objects = (each for each in manifests(settings) if each["kind"] != "Namespace")
    return _HEAD + with_reasons(dump_all(objects))


def kustomization_file() -> str:
    """Return what makes a base of them."""
    return _HEAD + dump(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["mesh.yaml"],
        }
    )


def chart_file() -> str:
    """Return the only template of the chart."""
    settings = ManifestSettings(
        name="{{ .Release.Name }}",
        namespace="{{ .Release.Namespace }}",
        image="{{ .Values.image }}",
        token=_TOKEN,
        applications=_APPLICATIONS,
        deploy="{{ .Release.Revision }}",
        storage="{{ .Values.storage.size }}",
        storage_class="CLASS",
        ingress_replicas=_REPLICAS,
        service_type="{{ .Values.ingress.serviceType }}",
        tls_secret="{{ .Values.tlsSecret }}",  # noqa: S106
        launcher=_LAUNCHER,
    )
    objects = manifests(settings)
    parts = [_template(each) for each in objects if each["kind"] != "Namespace"]
    return _HEAD + "---\n".join(parts)


def _template(found: dict[str, Any]) -> str:
    text = dump_all([found])
    token = base64.b64encode(_TOKEN.encode()).decode()
    required = '{{ required "write token: openssl rand -hex 32" .Values.token | b64enc }}'
    for old, new in (
        (f"token: {token}", f"token: {required}"),
        (f"applications.yaml: {_APPLICATIONS}", _indented(".Values.applications")),
        (f"replicas: {_REPLICAS}", "replicas: {{ .Values.ingress.replicas }}"),
    ):
        text = text.replace(old, new)
    text = _TLS_ITEMS.sub(_only_with_certificates, _with_launcher(_with_class(text)))
    value = _ONLY_WITH.get(found["kind"])
    return text if value is None else f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _indented(value: str) -> str:
    return f"applications.yaml: |\n{{{{ {value} | indent 4 }}}}"


def _only_with_certificates(items: re.Match[str]) -> str:
    indent, plain = items[1], ""
    if "PYSERVE_MESH_TLS" in items[0]:
        variable = f"{indent}- name: {PLAIN_TCP}\n{indent}  value: '1'\n"
        plain = f"{{{{- else }}}}\n{with_reasons(variable)}"
    return f"{{{{- if .Values.tlsSecret }}}}\n{items[0]}{plain}{{{{- end }}}}\n"


def _with_class(text: str) -> str:
    """Return a text with the class of a volume only where there is one."""
    lines = []
    for line in text.splitlines():
        if line.strip() == "storageClassName: CLASS":
            value = line.replace("CLASS", "{{ . }}")
            lines += ["{{- with .Values.storage.class }}", value, "{{- end }}"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _with_launcher(text: str) -> str:
    """Return a text with the launcher's options from the values."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if "name: PYSERVE_LAUNCHER_OPTIONS" in line:
            head = lines[place + 1].partition("value:")[0]
            end = place + 2
            while not lines[end].lstrip().startswith("- name:"):
                end += 1
            lines[place + 1 : end] = [f"{head}value: {_OPTIONS}"]
            break
    return "\n".join(lines) + "\n"


def chart() -> str:
    """Return what the chart is."""
    return _HEAD + dump(
        {
            "apiVersion": "v2",
            "name": "pyserve",
            "description": "A mesh of gRPC services for serving Python models",
            "type": "application",
            "version": version(),
            "appVersion": version(),
        }
    )


def files() -> dict[str, str]:
    """Return all files, by their paths below ``FOLDER``."""
    return {
        "base/kustomization.yaml": kustomization_file(),
        "base/mesh.yaml": base_file(),
        "chart/Chart.yaml": chart(),
        "chart/values.yaml": _HEAD + VALUES.replace("VERSION", version()),
        "chart/templates/mesh.yaml": chart_file(),
    }


if __name__ == "__main__":
    for path, content in files().items():
        place = FOLDER / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
