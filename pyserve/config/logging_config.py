"""How a deployment's replicas log, as Ray Serve names it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.config.environment import read_log_defaults
from pyserve.config.logs import LOG_LEVELS, EncodingType, LogSettings
from pyserve.config.parts import Part
from pyserve.config.validation import (
    check_choice,
    check_flag,
    check_mapping,
    check_text,
    check_text_mapping,
    refuse,
)
from pyserve.errors import OptionError


class Unset(str):
    """A value that nobody has chosen: where it is read the environment may say another one."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # A release that does not know this class takes it, too.


def _default_level() -> str:
    return read_log_defaults()[0] or Unset(LogSettings.level)


def _default_encoding() -> str:
    return read_log_defaults()[1] or Unset(LogSettings.encoding)


@dataclass(frozen=True, kw_only=True)
class LoggingConfig(Part):
    """How the replicas of a deployment log.

    Attributes:
        log_level: Name of a level, or its number in ``logging``; by default what
            ``PYSERVE_LOG_LEVEL`` says where the deployment is defined, else where its mesh runs,
            else ``INFO``.
        encoding: ``TEXT`` or ``JSON``; by default what ``PYSERVE_LOG_ENCODING`` says at these
            places, else ``TEXT``.
        logs_dir: Where the files go; ``None``: as the environment says.
        enable_access_log: With False no call is a line, whatever ``PYSERVE_ACCESS_LOG`` says.
        additional_log_standard_attrs: Attributes of ``logging.LogRecord`` that each line has too.
    """

    log_level: str | int = field(default_factory=_default_level)
    encoding: EncodingType | str = field(default_factory=_default_encoding)
    logs_dir: str | None = None
    enable_access_log: bool = True
    additional_log_standard_attrs: Sequence[str] = ()

    def __post_init__(self) -> None:
        level: object = self.log_level
        if not isinstance(level, Unset):
            if isinstance(level, int) and not isinstance(level, bool):
                level = logging.getLevelName(level)
            level = level.upper() if isinstance(level, str) else level
            check_choice("logging_config.log_level", level, LOG_LEVELS)
            object.__setattr__(self, "log_level", level)
        if not isinstance(self.encoding, Unset):
            encodings = [each.value for each in EncodingType]
            encoding = check_choice("logging_config.encoding", self.encoding, encodings)
            object.__setattr__(self, "encoding", str(encoding))
        if self.logs_dir is not None:
            check_text("logging_config.logs_dir", self.logs_dir, "the path of a directory")
        check_flag("logging_config.enable_access_log", self.enable_access_log)
        names: object = self.additional_log_standard_attrs
        field, allowed = "logging_config.additional_log_standard_attrs", "a list of names"
        if not isinstance(names, list | tuple):
            raise refuse(field, names, allowed, list)
        for name in names:
            check_text(field, name, allowed)
        object.__setattr__(self, "additional_log_standard_attrs", tuple(names))

    @property
    def unset(self) -> Collection[str]:
        """The names of values that nobody has chosen."""
        return {
            name for name in ("log_level", "encoding") if isinstance(getattr(self, name), Unset)
        }

    @classmethod
    def read(cls, value: object) -> LoggingConfig:
        """Read what a user wrote: the object, a mapping, or the name of a level."""
        return cls.of("logging_config", {"log_level": value} if isinstance(value, str) else value)


def environment_of_logs(config: LoggingConfig) -> dict[str, str]:
    """Return the variables that let the processes of a mesh log so."""
    environment = {
        "PYSERVE_LOG_LEVEL": str(config.log_level),
        "PYSERVE_LOG_ENCODING": str(config.encoding),
    }
    if not config.enable_access_log:
        environment["PYSERVE_ACCESS_LOG"] = "0"
    if config.logs_dir is not None:
        environment["PYSERVE_LOG_DIR"] = config.logs_dir
    return environment


@dataclass(frozen=True, kw_only=True)
class ControllerOptions(Part):
    """The options of the controller's process.

    Attributes:
        runtime_env: Not supported: the controller of a mesh that a driver starts has the driver's
            environment.

    Raises:
        OptionError: It has a ``runtime_env``.
    """

    runtime_env: Mapping[str, object] | None = field(default=None)

    def __post_init__(self) -> None:
        found = check_mapping("controller_options.runtime_env", self.runtime_env or {})
        if variables := check_text_mapping("env_vars", found.get("env_vars") or {}):
            raise OptionError(
                f"controller_options cannot set {', '.join(sorted(variables))}: the controller has "
                f"the environment of the process that starts it; set them there"
            )
        if others := sorted(set(found) - {"env_vars"}):
            raise refuse("controller_options.runtime_env", others, "'env_vars' only")
