"""How the process of a replica logs, as its deployment's ``logging_config`` has it.

Records go to standard error, where the launcher reads them, and to a file where one is asked for.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pyserve.config import EncodingType, LoggingConfig
from pyserve.config.logs import LogSettings
from pyserve.errors import OptionError
from pyserve.observe.logs.files import open_rotating_file
from pyserve.observe.logs.formats import JsonFormatter, TextFormatter
from pyserve.observe.logs.requests import RequestFilter


class ReplicaLogs:
    """The root logger of a process with one replica.

    Args:
        application, deployment, replica_id: Of the replica; each JSON object has them.
        settings: Of the process; its folder is for deployments that name none.
    """

    def __init__(
        self, application: str, deployment: str, replica_id: str, settings: LogSettings
    ) -> None:
        self._facts = {
            "component": "replica",
            "application": application,
            "deployment": deployment,
            "replica": replica_id,
        }
        letters = replica_id.rpartition("#")[2]
        self._file_name = f"replica_{application}_{deployment}_{letters}.log"
        self._settings = settings
        self._path: Path | None = None
        self._file: logging.Handler | None = None
        # Those that user code adds later are its own.
        self._handlers = list(logging.getLogger().handlers)

    def follow(self, config: LoggingConfig) -> None:
        """Log in that way from now on.

        Raises:
            OptionError: No file can be written there; nothing has changed.
        """
        root = logging.getLogger()
        folder = self._settings.directory if config.logs_dir is None else Path(config.logs_dir)
        path = None if folder is None else folder / self._file_name
        if path != self._path:
            opened = None if path is None else self._open(path, config)
            self._replace_file(root, opened)
            self._path = path
        additional = config.additional_log_standard_attrs
        is_json = config.encoding == EncodingType.JSON
        for handler in (*self._handlers, *filter(None, [self._file])):
            handler.setFormatter(
                JsonFormatter(self._facts, additional) if is_json else TextFormatter(additional)
            )
        root.setLevel(config.log_level)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._replace_file(logging.getLogger(), None)
        self._path = None

    def _replace_file(self, root: logging.Logger, file: logging.Handler | None) -> None:
        former, self._file = self._file, file
        if file is not None:
            root.addHandler(file)
        if former is not None:
            root.removeHandler(former)
            former.close()

    def _open(self, path: Path, config: LoggingConfig) -> logging.Handler:
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
