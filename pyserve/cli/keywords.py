"""Mends generated modules of ``.proto`` files that use keywords of Python as names.

protoc's own modules look such names up by a string. The plugin of grpc writes them as they are, so
that its modules cannot be imported (github.com/grpc/grpc/issues/25287 and 32463).
"""

from __future__ import annotations

import ast
import re
from keyword import iskeyword, kwlist
from pathlib import Path

_IMPORT = re.compile(r"^from ([\w.]+) import (\w+) as (\w+)$", re.MULTILINE)
_MESSAGE = re.compile(r"\b(\w+_pb2)((?:\.\w+)+)\.(SerializeToString|FromString)\b")
# Of grpc's experimental interface, named as the service.
_CLASS = re.compile(rf"^class ({'|'.join(kwlist)}):", re.MULTILINE)
_METHOD = re.compile(r"^    def (\w+)\(self, request", re.MULTILINE)


def mend(stubs: Path) -> str:
    """Make a ``_pb2_grpc`` module importable; return what cannot be mended, or nothing.

    Packages, messages and services are mended. A method cannot be: no class could implement it.
    """
    text = stubs.read_text() if stubs.exists() else ""
    if is_python(text):
        return ""
    if methods := sorted({name for name in _METHOD.findall(text) if iskeyword(name)}):
        return f"no class can have the method {', '.join(methods)}, a keyword of Python; rename it"
    mended = _MESSAGE.sub(_attributes, _IMPORT.sub(_import, _CLASS.sub(r"class \1_:", text)))
    if not is_python(mended):
        return f"{stubs} is no valid Python"
    stubs.write_text(mended)
    return ""


def is_python(text: str) -> bool:
    """Whether it can be parsed."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _import(line: re.Match[str]) -> str:
    package, module, name = line.groups()
    if not any(map(iskeyword, package.split("."))):
        return line[0]
    return f"import importlib\n{name} = importlib.import_module('{package}.{module}')"


def _attributes(message: re.Match[str]) -> str:
    found, names, function = message.groups()
    for name in names[1:].split("."):
        found = f"getattr({found}, '{name}')" if iskeyword(name) else f"{found}.{name}"
    return f"{found}.{function}"
