"""As much of Helm's templates as the chart in ``deploy`` uses, for machines without Helm."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

_PART = re.compile(r"\{\{-? (?P<what>.*?) -?\}\}")
# One without another in it.
_BLOCK = re.compile(
    r"\{\{- (if|with) (\.[\w.]+) \}\}\n((?:(?!\{\{- (?:if|with) ).)*?)\{\{- end \}\}\n", re.DOTALL
)


def render(
    template: str, values: Mapping[str, Any], *, name: str, namespace: str, revision: int = 1
) -> str:
    """Return what Helm would write.

    Raises:
        NotImplementedError: A template uses something else of the language.
    """
    release = {"Name": name, "Namespace": namespace, "Revision": revision}
    scope = {"Values": values, "Release": release}

    def block(found: re.Match[str]) -> str:
        value = _get(found[2], scope)
        given, _, otherwise = found[3].partition("{{- else }}\n")
        return given.replace("{{ . }}", str(value)) if value else otherwise

    while _BLOCK.search(template):
        template = _BLOCK.sub(block, template)
    return _PART.sub(lambda found: _value(found["what"], scope), template)


def _value(what: str, scope: Mapping[str, Any]) -> str:
    if re.fullmatch(r"\.[\w.]+", what):
        return str(_get(what, scope))
    if found := re.fullmatch(r"(\.[\w.]+) \| indent (\d+)", what):
        return "\n".join(int(found[2]) * " " + line for line in _get(found[1], scope).split("\n"))
    if found := re.fullmatch(r'required ".*" (\.[\w.]+) \| b64enc', what):
        text = _get(found[1], scope)
        assert text, what
        return base64.b64encode(text.encode()).decode()
    if what.startswith('merge (dict "name" .Release.Name "token_secret"'):
        release, values = scope["Release"]["Name"], scope["Values"]
        merged = {
            "name": release,
            "token_secret": f"{release}-token",
            **({"tls_secret": values["tlsSecret"]} if values["tlsSecret"] else {}),
            **values["launcher"],
        }
        return json.dumps(json.dumps(merged, sort_keys=True))
    raise NotImplementedError(what)


def _get(path: str, scope: Mapping[str, Any]) -> Any:
    found: Any = scope
    for step in path.strip(".").split("."):
        found = found[step]
    return found
