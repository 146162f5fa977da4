"""An image with this tree, made without an engine: one more layer on a stand-in for Python's.

A tar as `docker save` writes it, which containerd imports.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "target" / "kubernetes"
# Of the tree, what pods of these tests import.
_PARTS = ("pyserve", "services", "tests/mesh/launchers/__init__.py", "tests/mesh/launchers/apps.py")
_PACKAGES, _APP = "opt/pyserve", "app"
_BASE_LAYER, _OWN_LAYER = "base.tar", "pyserve.tar"
_TIMEOUT_S = 600


def build(base: Path, names: list[str]) -> Path:
    """Write an image with this tree; return its tar.

    Args:
        base: The tar of an image with Python, with one layer.
        names: What it is called.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    layer = FOLDER / _OWN_LAYER
    _write_layer(layer)
    made = FOLDER / "image.tar"
    with tarfile.open(base) as source, tarfile.open(made, "w") as image:
        config = _read(source, _read(source, "manifest.json")[0]["Config"])
        config["config"]["Env"] += [
            f"PYTHONPATH=/{_PACKAGES}:/{_APP}",
            "PYTHONUNBUFFERED=1",
        ]
        config["config"]["WorkingDir"] = f"/{_APP}"
        config["rootfs"]["diff_ids"].append(f"sha256:{_digest(layer)}")
        manifest = {
            "Config": "config.json",
            "RepoTags": names,
            "Layers": [_BASE_LAYER, _OWN_LAYER],
        }
        _add(image, "manifest.json", [manifest])
        _add(image, "config.json", config)
        found = source.extractfile(_read(source, "manifest.json")[0]["Layers"][0])
        assert found is not None, "a layer is a file"
        info = source.getmember(_read(source, "manifest.json")[0]["Layers"][0])
        info.name = _BASE_LAYER
        image.addfile(info, found)
        image.add(layer, _OWN_LAYER)
    return made


def _write_layer(layer: Path) -> None:
    # No pod may write there, so each would compile everything when it starts.
    compiling = [sys.executable, "-m", "compileall", "-q", *_PARTS]
    subprocess.run(compiling, cwd=ROOT, check=True, timeout=_TIMEOUT_S)
    with tarfile.open(layer, "w") as tar:
        tar.add(_packages(), _PACKAGES, filter=_plain)
        # Processes name their release, which is among what an installed package says of itself.
        for found in Path(sysconfig.get_path("purelib")).glob("pyserve_mesh-*.dist-info"):
            tar.add(found, f"{_APP}/{found.name}", filter=_plain)
        for part in _PARTS:
            tar.add(ROOT / part, f"{_APP}/{part}", filter=_plain)


def _packages() -> Path:
    """Return a folder with what the package needs, installed once for each list of it."""
    wanted = (ROOT / "pyproject.toml").read_bytes()
    folder = FOLDER / f"packages-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not (folder / ".complete").exists():
        command = [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder)),
            *("--python", sys.executable, "-r", "pyproject.toml", "--extra", "kubernetes"),
            *("--compile-bytecode", "numpy"),
        ]
        subprocess.run(command, cwd=ROOT, check=True, timeout=_TIMEOUT_S)
        (folder / ".complete").touch()
    return folder


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Let everybody read it."""
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mode |= 0o555 if info.isdir() else 0o444
    return info


def _read(tar: tarfile.TarFile, name: str) -> Any:
    found = tar.extractfile(name)
    assert found is not None, name
    return json.loads(found.read())


def _add(tar: tarfile.TarFile, name: str, content: object) -> None:
    data = json.dumps(content).encode()
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
