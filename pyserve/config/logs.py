"""How the processes of a mesh log, as the environment says it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.config import variables as read
from pyserve.config.validation import check_choice

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Ray Serve's names for the same settings.
ALIASES = {
    "PYSERVE_LOG_ENCODING": "RAY_SERVE_LOG_ENCODING",
    "PYSERVE_LOG_TO_STDERR": "RAY_SERVE_LOG_TO_STDERR",
    "PYSERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE",
    "PYSERVE_LOG_CLIENT_ADDRESS": "RAY_SERVE_LOG_CLIENT_ADDRESS",
}
# The variables for a deployment's defaults, under both names.
OF_DEPLOYMENTS = ("PYSERVE_LOG_LEVEL", "PYSERVE_LOG_ENCODING", "RAY_SERVE_LOG_ENCODING")
_FILE_BYTES_MAX = 10 * 1024 * 1024
_FILES_KEPT = 5
_BUFFER_OF_THROUGHPUT = 1000
_BUFFER_LARGEST = 10_000
# Larger files cannot be read by people or their tools. Both are arbitrary.
_FILE_BYTES_LARGEST = 1 << 40
_FILES_MOST = 1000


class EncodingType(enum.StrEnum):
    """In which form a log is written."""

    TEXT = "TEXT"
    JSON = "JSON"


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """When a log file is rotated.

    Attributes:
        file_bytes_max: how large a file becomes at most.
        files_kept: how many older files are kept beside it, named with ``.1`` and so on.
    """

    file_bytes_max: int = _FILE_BYTES_MAX
    files_kept: int = _FILES_KEPT


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How a process logs.

    Attributes:
        directory: where log files go, None for standard error only.
        home: private folder that the directory lies in, where nobody has named one; else None.
        to_standard_error: whether logs go there too.
        level: records below it are not written; of replicas their deployments say it.
        encoding: of the lines; the same.
        rotation: of the files.
        access_log: whether each call is a line; None: in files, and while there are few calls.
        access_buffer_size: so many of these lines are written together.
        client_addresses: whether they name clients.
    """

    directory: Path | None = None
    home: Path | None = None
    to_standard_error: bool = True
    level: str = "INFO"
    encoding: str = EncodingType.TEXT.value
    rotation: Rotation = field(default_factory=Rotation)
    access_log: bool | None = None
    access_buffer_size: int = 1
    client_addresses: bool = False


def read_log_settings(variables: Mapping[str, str], home: Path) -> LogSettings:
    """Read ``PYSERVE_LOG_*``.

    Args:
        variables: The environment.
        home: Of the mesh; logs that go nowhere else go to a folder in it.

    Raises:
        OptionError: A variable has a value that cannot be used.
    """
    size = read.whole(
        variables, "PYSERVE_LOG_ROTATION_BYTES", minimum=1024, maximum=_FILE_BYTES_LARGEST
    )
    # The profile changes only defaults: a variable that is set takes precedence over it.
    optimized = read.switch(variables, "PYSERVE_THROUGHPUT_OPTIMIZED")
    buffer_size = read.whole(
        variables, "PYSERVE_REQUEST_PATH_LOG_BUFFER_SIZE", minimum=1, maximum=_BUFFER_LARGEST
    )
    to_standard_error = read.switch(variables, "PYSERVE_LOG_TO_STDERR", default=not optimized)
    directory = read.path(variables, "PYSERVE_LOG_DIR")
    is_homeless = directory is None and not to_standard_error
    wanted = variables.get("PYSERVE_ACCESS_LOG", "") != ""
    count = read.whole(variables, "PYSERVE_LOG_ROTATION_COUNT", minimum=1, maximum=_FILES_MOST)
    return LogSettings(
        directory=home / "logs" if is_homeless else directory,
        home=home if is_homeless else None,
        to_standard_error=to_standard_error,
        level=read_level(variables),
        encoding=read_encoding(variables),
        rotation=Rotation(
            file_bytes_max=_FILE_BYTES_MAX if size is None else size,
            files_kept=_FILES_KEPT if count is None else count,
        ),
        access_log=read.switch(variables, "PYSERVE_ACCESS_LOG") if wanted else None,
        access_buffer_size=buffer_size or (_BUFFER_OF_THROUGHPUT if optimized else 1),
        client_addresses=read.switch(variables, "PYSERVE_LOG_CLIENT_ADDRESS"),
    )


def read_level(variables: Mapping[str, str]) -> str:
    """Read the least level that is written."""
    value = variables.get("PYSERVE_LOG_LEVEL") or LogSettings.level
    return str(check_choice("PYSERVE_LOG_LEVEL", value.upper(), LOG_LEVELS))


def read_encoding(variables: Mapping[str, str]) -> str:
    """Read the form of lines."""
    value = variables.get("PYSERVE_LOG_ENCODING") or LogSettings.encoding
    encodings = [each.value for each in EncodingType]
    return str(check_choice("PYSERVE_LOG_ENCODING", value.upper(), encodings))
