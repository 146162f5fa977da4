"""How the process of a replica logs, as its deployment's ``logging_config`` has it.

Records go to standard error, where the launcher reads them, and to a file where one is asked for.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyserve.config import EncodingType, LoggingConfig
from pyserve.config.control import OUTPUT_LINE_BYTES_MAX
from pyserve.config.logs import LogSettings
from pyserve.errors import OptionError
from pyserve.observe.logs.formats import JsonFormatter, TextFormatter
from pyserve.observe.logs.kept import (
    add_handler,
    own_handlers,
    remove_handler,
    set_level,
    takes_info,
)
from pyserve.observe.logs.requests import RequestFilter
from pyserve.observe.logs.sink import open_rotating_file, write_lines

# Two names, an id and the number of a rotated file together are less than the 255 bytes that a
# file's name may have.
_NAME_BYTES_MAX: Final = 90


class ReplicaLogs:
    """The root logger of a process with one replica.

    Args:
        application, deployment, replica_id: Of the replica; each JSON object has them.
        settings: Of the process; its folder is for deployments that name none.
        is_launched: A launcher reads standard error, whatever the settings say.
    """

    def __init__(
        self,
        application: str,
        deployment: str,
        replica_id: str,
        settings: LogSettings,
        *,
        is_launched: bool = True,
    ) -> None:
        self._facts = {
            "component": "replica",
            "application": application,
            "deployment": deployment,
            "replica": replica_id,
        }
        letters = replica_id.rpartition("#")[2]
        names = f"{_part_of_name(application)}_{_part_of_name(deployment)}"
        self._file_name = f"replica_{names}_{letters}.log"
        self._settings = settings
        self._path: Path | None = None
        self._file: logging.StreamHandler[Any] | None = None
        self._formatter: logging.Formatter = TextFormatter()
        # Those that user code adds later are its own.
        self._handlers = own_handlers()
        self._is_silent = not (is_launched or settings.to_standard_error)

    @property
    def has_file(self) -> bool:
        """Whether records go to a file too."""
        return self._file is not None

    def takes_info(self) -> bool:
        """Whether records of the level INFO are written."""
        return takes_info()

    def follow(self, config: LoggingConfig) -> None:
        """Log in that way from now on.

        Raises:
            OptionError: No file can be written there; nothing has changed.
        """
        folder = self._settings.directory if config.logs_dir is None else Path(config.logs_dir)
        path = None if folder is None else folder / self._file_name
        if path != self._path:
            opened = None if path is None else self._open(path, config)
            self._replace_file(opened)
            self._path = path
        additional = config.additional_log_standard_attrs
        is_json = config.encoding == EncodingType.JSON
        text = TextFormatter(additional)
        self._formatter = JsonFormatter(self._facts, additional) if is_json else text
        if self._file is not None:
            self._file.setFormatter(self._formatter)
        bounded = JsonFormatter(self._facts, additional, line_bytes_max=OUTPUT_LINE_BYTES_MAX)
        for handler in self._handlers:
            handler.setFormatter(bounded if is_json else text)
        set_level(config.log_level)
        if self._is_silent and self._file is not None:
            for handler in self._handlers:
                remove_handler(handler)
            self._handlers.clear()

    def write(self, records: Sequence[logging.LogRecord], *, everywhere: bool) -> None:
        """Write records of the access log: to the file, or ``everywhere``."""
        lines = "\n".join(map(self._formatter.format, records))
        handlers = [*(self._handlers if everywhere else ()), *filter(None, [self._file])]
        for handler in handlers:
            if isinstance(handler, logging.StreamHandler):
                write_lines(handler, lines)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._replace_file(None)
        self._path = None

    def _replace_file(self, file: logging.StreamHandler[Any] | None) -> None:
        former, self._file = self._file, file
        if file is not None:
            add_handler(file)
        if former is not None:
            remove_handler(former)
            former.close()

    def _open(self, path: Path, config: LoggingConfig) -> logging.StreamHandler[Any]:
        tell = logging.getLogger(__name__).warning
        try:
            file = open_rotating_file(path.parent, path.name, self._settings.rotation, tell)
        except OSError as error:
            named = "PYSERVE_LOG_DIR" if config.logs_dir is None else "logging_config.logs_dir"
            raise OptionError(
                f"{named}={str(path.parent)!r}: {error.filename or path} cannot be "
                f"written: {error.strerror}; name a folder in which the replicas' user may write"
            ) from error
        file.addFilter(RequestFilter())
        return file


def _part_of_name(name: str) -> str:
    """Return a name as a part of a file's, shortened where no folder would take all of it."""
    cut = name.replace("/", "_").encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
    return cut if cut == name else f"{cut}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
