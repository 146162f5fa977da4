"""How the process of a replica logs, as its deployment's ``logging_config`` has it.

Records go to standard error, where the launcher reads them, and to a file where one is asked for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserve.config import EncodingType, LoggingConfig
from pyserve.errors import OptionError
from pyserve.observe.logging import LineFormatter, open_rotating_file

# Of every record; what else one has came with ``extra=``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Makes one line with a JSON object of each record.

    Args:
        facts: What each object has besides.
        additional: Attributes of records that it has too.
    """

    def __init__(self, facts: Mapping[str, str], additional: Sequence[str] = ()) -> None:
        super().__init__()
        self._facts = dict(facts)
        self._additional = additional

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON has not is written as its text."""
        values: dict[str, object] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "name": record.name,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            **self._facts,
        }
        if record.exc_info:
            values["exc_text"] = self.formatException(record.exc_info)
        if record.stack_info:
            values["stack_info"] = self.formatStack(record.stack_info)
        for name in self._additional:
            values[name] = getattr(record, name, None)
        extra = {name: each for name, each in vars(record).items() if name not in _STANDARD}
        # The record's own are those that readers look for.
        return json.dumps({**extra, **values}, default=str)


class TextFormatter(LineFormatter):
    """Makes lines as ``LineFormatter``, with more attributes of the records.

    Args:
        additional: Which.
    """

    def __init__(self, additional: Sequence[str] = ()) -> None:
        super().__init__()
        self._additional = additional

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the first line, the attributes after it."""
        more = (f" {name}={getattr(record, name, None)}" for name in self._additional)
        return super().formatMessage(record) + "".join(more)


class ReplicaLogs:
    """The root logger of a process with one replica.

    Args:
        application, deployment, replica_id: Of the replica; each JSON object has them.
    """

    def __init__(self, application: str, deployment: str, replica_id: str) -> None:
        self._facts = {
            "application": application,
            "deployment": deployment,
            "replica": replica_id,
        }
        letters = replica_id.rpartition("#")[2]
        self._file_name = f"replica_{application}_{deployment}_{letters}.log"
        self._path: Path | None = None
        self._file: logging.Handler | None = None

    def follow(self, config: LoggingConfig) -> None:
        """Log in that way from now on.

        Raises:
            OptionError: No file can be written there; nothing has changed.
        """
        root = logging.getLogger()
        path = None if config.logs_dir is None else Path(config.logs_dir) / self._file_name
        if path != self._path:
            opened = None if path is None else _open(path, config)
            self._replace_file(root, opened)
            self._path = path
        additional = config.additional_log_standard_attrs
        is_json = config.encoding == EncodingType.JSON
        for handler in root.handlers:
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


def _open(path: Path, config: LoggingConfig) -> logging.Handler:
    try:
        return open_rotating_file(path.parent, path.name, logging.getLogger(__name__).warning)
    except OSError as error:
        raise OptionError(
            f"logging_config.logs_dir={config.logs_dir!r}: {error.filename or path} cannot be "
            f"written: {error.strerror}; name a folder in which the replicas' user may write"
        ) from error
