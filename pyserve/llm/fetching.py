"""Copies files of models and adapters from object stores to a folder of the replica's machine.

``fsspec`` copies them, with the package for the store (``s3fs``, ``gcsfs``, ``adlfs``); both are
imported when an address needs them. Local paths are used in place.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pyserve.errors import UsageError

_LOGGER = logging.getLogger(__name__)
# By scheme: fsspec's name of it, and the package that knows it.
_STORES = {
    "s3": ("s3", "s3fs"),
    "gs": ("gs", "gcsfs"),
    "abfss": ("abfss", "adlfs"),
    "azure": ("abfs", "adlfs"),
}
SCHEMES = ", ".join(f"{scheme}://" for scheme in _STORES)


def is_remote(source: str) -> bool:
    """Return whether this is an address of an object store."""
    scheme, separator, _ = source.partition("://")
    return bool(separator) and scheme in _STORES


def cache_folder(source: str) -> Path:
    """Return the folder of this machine that keeps the files of an address."""
    root = Path(tempfile.gettempdir()) / f"pyserve-models-{os.getuid()}"
    name = source.rstrip("/").rpartition("/")[2] or "model"
    return root / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:16]}"


async def fetched(source: str, *, timeout_s: float | None = None, tries: int = 1) -> str:
    """Return the path of what an address names, after copying it; a path is returned as it is.

    Replicas of one machine share the copy: it is made beside its place and then moved there.

    Args:
        source: A path, a Hugging Face id, or an address of an object store.
        timeout_s: How long one try may take; ``None``: as long as it takes.
        tries: How often it is tried, at least once.

    Raises:
        UsageError: The package for the store is missing, or no try has succeeded.
    """
    if not is_remote(source):
        return source
    folder = cache_folder(source)
    if folder.is_dir():
        return str(folder)
    system = _file_system(source)
    for number in range(1, tries + 1):
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(_copy, system, source, folder)
        except (OSError, TimeoutError) as error:
            _LOGGER.warning("copying %s failed (%d of %d): %r", source, number, tries, error)
            failure = error
        else:
            return str(folder)
    raise UsageError(f"{source} could not be copied to {folder}: {failure!r}") from failure


async def fetched_to(source: str, folder: str) -> None:
    """Copy what an address names into a folder of this machine.

    Raises:
        UsageError: It is no address of an object store, or its package is missing.
        OSError: It cannot be copied.
    """
    if not is_remote(source):
        raise UsageError(f"extra_files: {source!r} is no address that begins with {SCHEMES}")
    await asyncio.to_thread(_copy_into, _file_system(source), source, Path(folder))


def _copy(system: Any, source: str, folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _copy_into(system, source, half)
        try:
            half.rename(folder)
        except OSError:
            if not folder.is_dir():  # Another replica was faster.
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _copy_into(system: Any, source: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    system.get(source.partition("://")[2].rstrip("/") + "/", f"{folder}/", recursive=True)


def _file_system(source: str) -> Any:
    protocol, package = _STORES[source.partition("://")[0]]
    try:
        importlib.import_module(package)
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError as error:
        raise UsageError(
            f"{source} is in an object store, which needs a package: pip install fsspec {package}"
        ) from error
    return fsspec.filesystem(protocol)
