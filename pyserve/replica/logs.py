"""The logs of a replica: the setup of its process's log, and one line for each call."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc

from pyserve.config import DeploymentOptions, EncodingType, LoggingConfig
from pyserve.config.control import OUTPUT_LINE_BYTES_MAX
from pyserve.errors import OptionError
from pyserve.observe.logs.access import AccessBuffer, FlushOnError, Pace, access_record
from pyserve.observe.logs.formats import JsonFormatter, RequestFilter, TextFormatter, trace_in
from pyserve.observe.logs.kept import (
    add_handler,
    own_handlers,
    remove_handler,
    set_level,
    takes_info,
)
from pyserve.observe.logs.sink import open_rotating_file, write_lines
from pyserve.replica.loading import LoadError
from pyserve.replica.measures import OWN_METHODS

if TYPE_CHECKING:
    from pyserve.aio import EndedCall, Server
    from pyserve.config import LogSettings
    from pyserve.wire.v1 import mesh_pb2


_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


def begin_logs(
    assign: mesh_pb2.Assign,
    application: str,
    deployment: str,
    settings: LogSettings,
    *,
    is_launched: bool,
) -> ReplicaLogging:
    """Log as the deployment says, from now on; before user code is loaded.

    Args:
        assign: What the replica shall run.
        application: Its name.
        deployment: The same.
        settings: Of the process.
        is_launched: A launcher reads its standard error, whatever the settings say.

    Raises:
        LoadError: A file cannot be written.
    """
    options = DeploymentOptions.from_peer(assign.spec.options_json)
    logs = ReplicaLogs(
        application, deployment, assign.replica_id, settings, is_launched=is_launched
    )
    try:
        return ReplicaLogging(logs, settings, options.logging_config, is_launched=is_launched)
    except OptionError as error:
        raise LoadError(str(error), traceback.format_exc(), user_code=False) from error


class ReplicaLogging:
    """The logs of one replica, from before its code is loaded until its end.

    Args:
        logs: Writes lines.
        settings: Of the process.
        config: Of the deployment.
        is_launched: Its standard error ends where that of the mesh's own processes does.

    Raises:
        OptionError: A file cannot be written.
    """

    def __init__(
        self,
        logs: ReplicaLogs,
        settings: LogSettings,
        config: LoggingConfig,
        *,
        is_launched: bool,
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._config = config
        self._is_launched = is_launched
        self._access: AccessLog | None = None
        self._server: Server | None = None
        logs.follow(config)

    def follow(self, config: LoggingConfig) -> None:
        """Change the way of logging from now on.

        Raises:
            OptionError: A file cannot be written there; nothing has changed.
        """
        self._logs.follow(config)
        self._config = config
        if self._server is not None:
            self.watch(self._server)

    def watch(self, server: Server) -> None:
        """Write a line for each call of a running server, if configured; on its loop."""
        self._server = server
        wanted = self._settings.access_log
        everywhere = wanted is True
        is_on = (
            self._config.enable_access_log
            and wanted is not False
            and self._logs.takes_info()
            and (everywhere or self._logs.has_file)
        )
        if is_on and self._access is None:
            self._access = AccessLog(server, self._write_access, self._settings)
        elif not is_on and self._access is not None:
            self._access.close()
            self._access = None

    def _write_access(self, records: Sequence[logging.LogRecord], *, is_passed_on: bool) -> None:
        """Write lines, but not a second one of a call to where its ingress has written one."""
        is_told = is_passed_on and self._is_launched
        self._logs.write(records, everywhere=self._settings.access_log is True and not is_told)

    def close(self) -> None:
        """Write the waiting lines, and close the file. Idempotent."""
        if self._access is not None:
            self._access.close()
            self._access = None
        self._server = None
        self._logs.close()


class WriteAccess(Protocol):
    """Writes lines of calls."""

    def __call__(self, records: Sequence[logging.LogRecord], /, *, is_passed_on: bool) -> object:
        """Write them, all of calls that an ingress has sent here, or none."""


class AccessLog:
    """A line for each call of a server, until ``close``.

    Unless it was asked for, it pauses in seconds with more calls than can be read.
    """

    def __init__(
        self,
        server: Server,
        write: WriteAccess,
        settings: LogSettings,
    ) -> None:
        self._server = server
        self._write = write
        self._names_clients = settings.client_addresses
        self._loop = asyncio.get_running_loop()
        self._buffer = AccessBuffer(self._write_calls, settings.access_buffer_size, self._loop)
        self._on_error = FlushOnError(self._buffer.flush)
        # First, so that it is asked before those that write.
        add_handler(self._on_error, first=True)
        is_bound = settings.access_log is None
        self._pace = Pace(self._switch, self._calls, self._loop) if is_bound else None
        server.tell_ends(self._on_end)

    def close(self) -> None:
        """Write what waits, and no more after it."""
        self._server.tell_ends(None)
        if self._pace is not None:
            self._pace.close()
        self._buffer.flush()
        remove_handler(self._on_error)

    def _on_end(self, call: EndedCall) -> None:
        if self._pace is None or self._pace.note():
            self._buffer.add(call)

    def _switch(self, is_on: bool) -> None:
        self._server.tell_ends(self._on_end if is_on else None)

    def _calls(self) -> int:
        return self._server.native.stats()["calls"]

    def _write_calls(self, calls: Sequence[EndedCall]) -> None:
        calls = [call for call in calls if not _is_own(call)]
        for is_passed_on, some in itertools.groupby(calls, lambda call: call.is_passed_on()):
            self._write([self._record(call) for call in some], is_passed_on=is_passed_on)

    def _record(self, call: EndedCall) -> logging.LogRecord:
        status = _CODES.get(call.code, str(call.code))
        if call.http_status and call.code == 0:
            status = str(call.http_status)
        return access_record(
            ended_at=call.ended_at,
            request_id=call.request_id(),
            label=call.label(),
            status=status,
            duration_s=call.duration_s,
            attempts=call.attempts(),
            trace_id=trace_in(call.traceparent()),
            client=call.call.peer if self._names_clients else "",
        )


def _is_own(call: EndedCall) -> bool:
    return not call.is_http and call.label().startswith(OWN_METHODS)


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
