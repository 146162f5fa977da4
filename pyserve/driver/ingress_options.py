"""What a driver asks of a mesh that it starts, and of one that runs: ingress, traces, launcher."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyserve.aio.certificates import check_server_files
from pyserve.api.code import import_attribute
from pyserve.config import HTTPOptions, ProxyLocation, TracingConfig, gRPCOptions
from pyserve.config.http import check_location
from pyserve.config.ingress import environment_of
from pyserve.config.launchers import OPTIONS_VARIABLE, PROCESS, VARIABLE, LauncherConfig
from pyserve.config.tls import TlsFiles, environment_of_files, files_of
from pyserve.config.validation import check_import_path
from pyserve.errors import MeshError, OptionError

if TYPE_CHECKING:
    from pyserve.driver.client import ControlClient

_LOGGER = logging.getLogger(__name__)
_REQUEST_TIMEOUT = "PYSERVE_REQUEST_TIMEOUT_S"
_LOCATION = "PYSERVE_INGRESS_LOCATION"
# The values of a mesh that was started without these variables.
_DEFAULTS = {_LOCATION: ProxyLocation.EveryNode, VARIABLE: PROCESS}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressOptions:
    """The options of ``start`` and of the command line, checked; ``None``: not given.

    Attributes:
        tls: Certificates, where they are given without other options of HTTP.
        tracing: Of every process of the mesh.
        launcher: What starts its replicas.
    """

    http: HTTPOptions | None = None
    grpc: gRPCOptions | None = None
    location: ProxyLocation | None = None
    tls: TlsFiles | None = None
    tracing: TracingConfig | None = None
    launcher: LauncherConfig | None = None

    @classmethod
    def of(
        cls,
        http: HTTPOptions | Mapping[str, object] | None,
        grpc: gRPCOptions | Mapping[str, object] | None,
        location: ProxyLocation | str | None,
        tracing: TracingConfig | Mapping[str, object] | None = None,
        launcher: LauncherConfig | Mapping[str, object] | str | None = None,
    ) -> IngressOptions:
        """Read what a user wrote.

        Raises:
            OptionError: A value is not allowed, or a file with certificates cannot be used.
        """
        found = None if http is None else HTTPOptions.of("http_options", http)
        if getattr(found, "root_url", ""):
            _LOGGER.warning(
                "http_options.root_url has no effect: nothing here makes absolute links; see "
                "docs/reference/ray-serve.md"
            )
        if found is not None and (files := files_of(found)) is not None:
            check_server_files(files)
        asked = None if grpc is None else gRPCOptions.of("grpc_options", grpc)
        for path in () if asked is None else asked.grpc_servicer_functions:
            _check_function("grpc_options.grpc_servicer_functions", path)
        traces = None if tracing is None else TracingConfig.of("tracing_config", tracing)
        if traces is not None and traces.enabled and traces.exporter_import_path:
            _check_function("tracing_config.exporter_import_path", traces.exporter_import_path)
        return cls(
            http=found,
            grpc=asked,
            location=None if location is None else check_location("proxy_location", location),
            tracing=traces,
            launcher=None if launcher is None else LauncherConfig.read(launcher),
        )

    def addresses(self) -> tuple[str, ...] | None:
        """Return the addresses for the ingress to listen at; ``None``: the default ones."""
        if self.http is None and self.grpc is None:
            return None
        http = self.http or HTTPOptions()
        if http.host is None:
            return ()
        host = f"[{http.host}]" if ":" in http.host else http.host
        ports = [http.port, *([self.grpc.port] if self.grpc is not None else [])]
        # Port 0 twice is two ports.
        return tuple(
            f"{host}:{port}"
            for index, port in enumerate(ports)
            if not port or ports.index(port) == index
        )

    def asked_addresses(self) -> tuple[str, ...]:
        """Return where a mesh that runs already has to listen: all but what is the default.

        Options that change a time limit only have a host and a port too, which nobody wrote.
        """
        default = f"{HTTPOptions.host}:{HTTPOptions.port}"
        return tuple(
            address
            for address in self.addresses() or ()
            if address != default and not address.endswith(f":{gRPCOptions.port}")
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that tell the rest to a mesh that is started."""
        environment = environment_of(self.http, self.grpc)
        if self.tls is not None:
            environment.update(environment_of_files(self.tls))
        if self.tracing is not None:
            environment.update(self.tracing.environment())
        if self.launcher is not None:
            environment.update(self.launcher.environment())
        if self.location is not None:
            environment[_LOCATION] = str(self.location)
        elif self.http is not None and self.http.host is None:
            environment[_LOCATION] = str(ProxyLocation.Disabled)
        return environment

    def differences(self, client: ControlClient, present: Sequence[str]) -> list[str]:
        """Return what is asked for and cannot be had, because the mesh runs already.

        Args:
            client: Of that mesh.
            present: Where its ingress listens.
        """
        lines = [
            f"the ingress listens at {', '.join(present) or 'no address'}, not at {address}"
            for address in dict.fromkeys(self.asked_addresses())
            if not _is_among(address, present)
        ]
        told = (self._told_as(name) for name in sorted(_others(self._of_start(), client)))
        return lines + [
            f"{name} is not what the mesh was started with" for name in dict.fromkeys(told)
        ]

    def set_timeout(self, client: ControlClient) -> None:
        """Give a mesh that runs the time limit of requests, if one is asked for."""
        timeout_s = self.environment().get(_REQUEST_TIMEOUT)
        if timeout_s is not None:
            client.set_request_timeout(float(timeout_s))

    def _of_start(self) -> dict[str, str]:
        environment = self.environment()
        environment.pop(_REQUEST_TIMEOUT, None)
        return environment

    def apply(self, client: ControlClient) -> None:
        """Change a mesh that runs.

        Raises:
            MeshError: Something was asked for that needs a new mesh.
        """
        environment = _others(self._of_start(), client)
        if environment:
            names = ", ".join(sorted({self._told_as(name) for name in environment}))
            raise MeshError(
                f"a mesh runs already, and what these options set ({names}) acts when one is "
                f"started; leave them out, or end the mesh with `pyserve shutdown`"
            )
        self.set_timeout(client)

    def _told_as(self, variable: str) -> str:
        """Return the option that the user wrote and that sets a variable, if it is known."""
        if variable in (VARIABLE, OPTIONS_VARIABLE) and self.launcher is not None:
            return f"launcher {self.launcher.name!r}"
        files = self.tls or (None if self.http is None else files_of(self.http))
        return variable if files is None else files.origin_of(variable)


def _is_among(asked: str, present: Sequence[str]) -> bool:
    """Say whether an ingress listens where it was asked to; port 0 is any."""
    host, _, port = asked.rpartition(":")
    return any(
        each == asked or (port == "0" and each.rpartition(":")[0] == host) for each in present
    )


def _others(asked: Mapping[str, str], client: ControlClient) -> dict[str, str]:
    """Return what a mesh was not started with; an ingress on this node or on every one is one."""
    if not asked:
        return {}
    running = client.config().ingress_variables
    others = {}
    for name, value in asked.items():
        present = running.get(name, _DEFAULTS.get(name, ""))
        is_one = name == _LOCATION and ProxyLocation.Disabled not in (value, present)
        if present != value and not is_one:
            others[name] = value
    return others


def _check_function(field: str, path: str) -> None:
    """Import a function, so that a slip is told where it was written.

    Raises:
        OptionError: It cannot be imported here.
    """
    try:
        import_attribute(check_import_path(field, path))
    except Exception as error:
        raise OptionError(f"{field} has {path!r}, which cannot be imported: {error}") from error
