"""Serves digits from a wheel for Linux on aarch64, on a machine of another kind.

``python deploy/release/try_emulated.py WHEEL`` puts Debian's Python for arm64 into
target/aarch64/root and what the wheel requires into target/aarch64/packages. Then qemu runs
try_wheel.py there, in namespaces of its own: nothing of the machine is changed. Exit code: that of
try_wheel.py.

Needs Debian's packages mmdebstrap and qemu-user-static, and Linux 6.7 or newer, or a machine that
runs programs for aarch64 already.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PLACE = ROOT / "target" / "aarch64"
_SUITE = "bookworm"
_PYTHON = "3.11"  # that of the suite
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
_REQUIRED_TOO = ("numpy", "scikit-learn")
_PREPARE_TIMEOUT_S = 900.0
_TRY_TIMEOUT_S = 1800.0

# The head of an ELF file for aarch64, as /proc/sys/fs/binfmt_misc/register takes it; F opens qemu
# at once, so that it is there behind chroot, too.
_FORMAT = (
    r":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    r":/usr/bin/qemu-aarch64-static:F"
)
_INSIDE = """
formats=/proc/sys/fs/binfmt_misc
if ! [ -e $formats/qemu-aarch64 ]; then
    mount -t binfmt_misc binfmt_misc $formats
    printf %s "$FORMAT" > $formats/register
fi
mkdir -p "$ROOT/tree" "$ROOT/proc" "$ROOT/dev" "$ROOT/tmp"
mount --rbind /proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount --bind "$TREE" "$ROOT/tree"
exec chroot "$ROOT" /usr/bin/python3 /tree/deploy/release/try_wheel.py "/tree/$WHEEL"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the wheel of the command line; return the exit code of the demonstration."""
    parser = argparse.ArgumentParser(prog="try_emulated.py", description=__doc__)
    parser.add_argument("wheel", type=Path, help="in this tree")
    wheel: Path = parser.parse_args(arguments).wheel.resolve()
    root, packages = _PLACE / "root", _PLACE / "packages"
    if not (root / "usr" / "bin" / "python3").exists():
        _make_root(root)
    _download(wheel, packages)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": f"/tree/{packages.relative_to(ROOT)}",
        "FORMAT": _FORMAT,
        "ROOT": str(root),
        "TREE": str(ROOT),
        "WHEEL": str(wheel.relative_to(ROOT)),
    }
    command = ["unshare", "--map-root-user", "--mount", "sh", "-euc", _INSIDE]
    return subprocess.run(command, env=environment, check=False, timeout=_TRY_TIMEOUT_S).returncode


def _make_root(root: Path) -> None:
    """Unpack Debian's Python and what it needs; none of it has to run for that."""
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        "--architectures=arm64",
        "--include=python3-venv,libstdc++6,dash,coreutils",
        _SUITE,
        str(root),
    )


def _download(wheel: Path, folder: Path) -> None:
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    # With hashes pip would want one of our own wheel too.
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    versions = folder / "constraints.txt"
    versions.write_text(re.sub(r" \\\n +--hash=\S+", "", lock), encoding="utf-8")
    constraints = ("--constraint", str(versions))
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder))
    kind = ("--only-binary", ":all:", "--python-version", _PYTHON, *platforms)
    _run(*download, *kind, *constraints, str(wheel), *_REQUIRED_TOO)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=os.environ, timeout=_PREPARE_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
