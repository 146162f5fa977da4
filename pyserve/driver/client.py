"""The driver's side of the control service, with errors of our own tree.

Calls are synchronous, from any thread: grpc's own threads do the I/O, so a running event loop
of the caller is blocked but never re-entered, and no second loop competes with it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import _channel

from pyserve.aio.certificates import Pem, read_pem
from pyserve.api.graph import PackedApplication, PackedDeployment
from pyserve.config.control import CONTROLLER_RETURN_TIMEOUT_S
from pyserve.config.http import RoutePrefix
from pyserve.config.tls import TlsFiles
from pyserve.control.returning import is_silent, wait_for_listener
from pyserve.control.server.transport import UNIX_OPTIONS
from pyserve.control.state.specs import Run
from pyserve.errors import MeshError, MeshNotFound, MeshUnavailable, PyserveError
from pyserve.types import ApplicationName, MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2

# A controller on this machine answers in milliseconds; ten seconds cover one that is swapped out.
_ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One application of a file, ready to travel.

    Attributes:
        packed: Its deployments.
        route_prefix: Where plain HTTP reaches it; None: nowhere.
        declaration_json: What the file says of it.
    """

    packed: PackedApplication
    route_prefix: str | None
    declaration_json: str


class ControlClient:
    """A connection to one controller.

    Every method raises ``MeshUnavailable`` when the controller does not answer, and
    ``MeshError`` when it refuses.

    Args:
        address: The controller.
        tls: Certificates, for a controller at ``host:port``. Its own carries the name that is
            dialled, or the first DNS name among ``tls.names``.
    """

    def __init__(self, address: MeshAddress, tls: TlsFiles | None = None) -> None:
        self._address = address
        self._target = address.controller
        self._named_by = address.named_by
        self._metadata = (("pyserve-token-bin", address.token),)
        self._tls = None if address.controller.startswith("unix:") else tls
        self._pem: Pem | None = None
        self._channel: grpc.Channel | None = None
        self._opening = threading.Lock()
        self._may_return = True

    @property
    def _stub(self) -> control_pb2_grpc.ControlStub:
        """Calls go over one connection, until the certificates are others than those it has.

        Where a controller was killed they wait for the next one, for a while.
        """
        pem = None if self._tls is None else read_pem(self._tls)
        with self._opening:
            if is_silent(self._address):
                # Only once: without a successor, every call would take that long.
                timeout_s = CONTROLLER_RETURN_TIMEOUT_S if self._may_return else 0.0
                self._may_return = wait_for_listener(self._address, timeout_s)
                # gRPC would delay its next attempt, and calls of this channel have failed anyway.
                self.close()
            if self._channel is None or pem != self._pem:
                # A running stream keeps the channel that it began with.
                self._pem, self._channel = pem, self._open(pem)
            return control_pb2_grpc.ControlStub(self._channel)

    def _open(self, pem: Pem | None) -> grpc.Channel:
        return open_channel(self._target, self._tls, pem)

    def deploy(
        self,
        application: PackedApplication,
        *,
        route_prefix: str | RoutePrefix | None,
        timeout_s: float | None,
        run: Run | None = None,
    ) -> Generator[control_pb2.DeployEvent]:
        """Replace or make an application; yield events until it serves or has failed.

        Closing the generator stops watching, not deploying.
        """
        request = _deploy_request(application, route_prefix)
        if run is not None:
            request.run.CopyFrom(_message_of(run))
        missing = {each.name for each in application.deployments}
        with self._errors(f"deploying {application.name!r}", timeout_s, missing):
            call = self._stub.Deploy(request, metadata=self._metadata, timeout=timeout_s)
            try:
                for event in call:
                    shown = event.progress
                    if event.HasField("progress") and shown.ready >= shown.wanted:
                        missing.discard(shown.deployment)
                    yield event
            finally:
                call.cancel()

    def apply(
        self, request: control_pb2.ApplyRequest, *, run: Run | None = None
    ) -> Generator[control_pb2.ApplyEvent]:
        """Make these the applications that the mesh runs of files; yield what happens.

        Closing the generator stops watching, not deploying.
        """
        if run is not None:
            request.run.CopyFrom(_message_of(run))
        with self._errors("deploying", None):
            call = self._stub.Apply(request, metadata=self._metadata)
            try:
                yield from call
            finally:
                call.cancel()

    def config(self) -> control_pb2.ConfigReply:
        """Return what the files said that the applications came from."""
        with self._errors("asking for the configuration", _ANSWER_TIMEOUT_S):
            return self._stub.Config(
                control_pb2.ConfigRequest(), metadata=self._metadata, timeout=_ANSWER_TIMEOUT_S
            )

    def watch_status(self) -> Generator[control_pb2.StatusReply]:
        """Yield the status now, and each time that it has changed."""
        with self._errors("watching the status", None):
            call = self._stub.WatchStatus(control_pb2.StatusRequest(), metadata=self._metadata)
            try:
                yield from call
            finally:
                call.cancel()

    def logs(
        self,
        application: str,
        deployment: str,
        *,
        lines_max: int,
        follow: bool,
        replica_id: str = "",
    ) -> Generator[control_pb2.LogLine]:
        """Yield what the replicas of a deployment have written last.

        Args:
            application: Its name; "": whichever has the deployment.
            deployment: Its name.
            lines_max: Of those that the mesh keeps; 0: all.
            follow: Go on with what they write.
            replica_id: Of this one only.
        """
        request = control_pb2.LogsRequest(
            application=application,
            deployment=deployment,
            follow=follow,
            lines_max=lines_max,
            replica_id=replica_id,
        )
        with self._errors("reading the logs", None):
            call = self._stub.Logs(request, metadata=self._metadata)
            try:
                yield from call
            finally:
                call.cancel()

    def status(self) -> control_pb2.StatusReply:
        """Return what runs."""
        with self._errors("asking for the status", _ANSWER_TIMEOUT_S):
            return self._stub.Status(
                control_pb2.StatusRequest(), metadata=self._metadata, timeout=_ANSWER_TIMEOUT_S
            )

    def follow(self, run: Run) -> Lines:
        """Return the lines for the terminal of a run; it is known to the mesh from here on."""
        with self._errors("following the mesh", _ANSWER_TIMEOUT_S):
            call: Any = self._stub.Follow(
                control_pb2.FollowRequest(run=_message_of(run)), metadata=self._metadata
            )
            # The stream has no end, so a deadline would cut it; a timer bounds only the first wait.
            known = threading.Timer(_ANSWER_TIMEOUT_S, call.cancel)
            known.start()
            try:
                call.initial_metadata()
            finally:
                known.cancel()
            if not call.is_active() and call.code() is not grpc.StatusCode.OK:
                raise call
        return Lines(call)

    def leave(self, run: Run, grace_s: float) -> Sequence[int]:
        """End what a run deployed last, or the mesh if it is the run's and no other one follows.

        Args:
            run: It ends.
            grace_s: How long calls in flight may take if the mesh ends.

        Returns:
            Process ids of the runs that the mesh stays for.
        """
        # No deadline, as in ``delete``.
        with self._errors("leaving the mesh", None):
            reply = self._stub.Leave(
                control_pb2.LeaveRequest(run=_message_of(run), grace_s=grace_s),
                metadata=self._metadata,
            )
        return [each.pid for each in reply.others]

    def delete(self, application: ApplicationName) -> None:
        """Drain and end an application; return when it has ended."""
        # No deadline: the drain is bounded by the deployments' own grace, and the connection's
        # end ends the wait.
        with self._errors(f"deleting {application!r}", None):
            self._stub.Delete(
                control_pb2.DeleteRequest(application=application), metadata=self._metadata
            )

    def cordon(self, target: str, *, undo: bool) -> control_pb2.CordonReply:
        """Take a replica, or ``node:NAME``, out of rotation, or back."""
        with self._errors(f"cordoning {target!r}", _ANSWER_TIMEOUT_S):
            return self._stub.Cordon(
                control_pb2.CordonRequest(target=target, undo=undo),
                metadata=self._metadata,
                timeout=_ANSWER_TIMEOUT_S,
            )

    def shutdown(self, grace_s: float, *, margin_s: float = 0.0) -> None:
        """Drain everything and end the mesh; return when every replica has ended.

        Args:
            grace_s: How long calls in flight may take.
            margin_s: How much longer the answer may take.
        """
        timeout_s = grace_s + margin_s + _ANSWER_TIMEOUT_S
        with self._errors("shutting the mesh down", timeout_s):
            self._stub.Shutdown(
                control_pb2.ShutdownRequest(grace_s=grace_s),
                metadata=self._metadata,
                timeout=timeout_s,
            )

    def set_request_timeout(self, timeout_s: float | None) -> None:
        """Change the time limit of requests for which nobody else says one."""
        with self._errors("setting request_timeout_s", _ANSWER_TIMEOUT_S):
            self._stub.Configure(
                control_pb2.ConfigureRequest(request_timeout_s=timeout_s or 0.0),
                metadata=self._metadata,
                timeout=_ANSWER_TIMEOUT_S,
            )

    def close(self) -> None:
        """Close the connection; another call opens one again. Idempotent."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            channel.close()

    @contextmanager
    def _errors(
        self, what: str, timeout_s: float | None, missing: Collection[str] | None = None
    ) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self._translated(error, what, timeout_s, missing) from None

    def _translated(
        self,
        error: grpc.RpcError,
        what: str,
        timeout_s: float | None,
        missing: Collection[str] | None,
    ) -> PyserveError:
        call: Any = error  # What a stub raises is the call itself, which its type does not say.
        code, details = call.code(), call.details()
        if code is grpc.StatusCode.UNAVAILABLE:
            return MeshUnavailable(
                f"{what}: the controller at {self._target} does not answer ({details}); "
                f"{self._advice()}"
            )
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return MeshUnavailable(
                f"{what} took longer than {timeout_s:g} s{self._of_delay(missing)}"
            )
        if code is grpc.StatusCode.NOT_FOUND:
            return MeshNotFound(f"{what}: {details}")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return MeshError(
                f"{what}: the controller at {self._target} does not accept the mesh token; set "
                f"PYSERVE_TOKEN_FILE to the file of that mesh"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return MeshError(
                f"{what}: what answers at {self._target} is no controller of this version "
                f"({details}); the address of an ingress is none of a controller"
            )
        return MeshError(f"{what}: {details}")

    def _of_delay(self, missing: Collection[str] | None) -> str:
        """Return what is waited for: deployments, or, without a list, the controller itself."""
        if missing is None:
            return f"; the controller at {self._target} is stopped or overloaded: try again later"
        return f"; not ready: {', '.join(sorted(missing))}" if missing else ""

    def _advice(self) -> str:
        """Return what helps where the controller does not answer, whichever command was run."""
        if self._named_by:
            return f"look whether it runs there, or give {self._named_by} the address of one"
        return "if its process has ended, `pyserve run module:app` starts another mesh"


class Lines:
    """What the mesh has to say to one run; for one thread."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.has_ended_in_order = False
        """The mesh has said that it ends."""

    def __iter__(self) -> Iterator[str]:
        """Yield lines until the mesh ends, or the connection to it."""
        try:
            for event in self._call:
                yield event.line
        except grpc.RpcError:
            return
        self.has_ended_in_order = True

    def close(self) -> None:
        """End the iteration; any thread may call."""
        self._call.cancel()


def apply_request(
    applications: Iterable[Declared], target_capacity: float | None = None
) -> control_pb2.ApplyRequest:
    """Return all applications of a file as they travel.

    Args:
        applications: All of the file.
        target_capacity: How much of their numbers of replicas there shall be, in percent.
    """
    requests = []
    for each in applications:
        request = _deploy_request(each.packed, each.route_prefix)
        request.declaration_json = each.declaration_json
        requests.append(request)
    return control_pb2.ApplyRequest(applications=requests, target_capacity=target_capacity)


def _message_of(run: Run) -> control_pb2.Run:
    return control_pb2.Run(id=run.id, pid=run.pid)


def _deploy_request(
    application: PackedApplication, route_prefix: str | RoutePrefix | None
) -> control_pb2.DeployRequest:
    return control_pb2.DeployRequest(
        application=application.name,
        deployments=[spec_of(application, packed) for packed in application.deployments],
        ingress_deployment=application.ingress,
        route_prefix=RoutePrefix.text(route_prefix),
        route_prefix_is_default=isinstance(route_prefix, RoutePrefix),
        external_scaler_enabled=application.external_scaler_enabled,
        autoscaling_policy_json=application.autoscaling_policy_json,
    )


def spec_of(application: PackedApplication, packed: PackedDeployment) -> mesh_pb2.DeploymentSpec:
    """Return a deployment as its replicas get it."""
    code = mesh_pb2.Code(
        sys_path=packed.code.sys_path,
        working_directory=packed.code.working_directory,
        fingerprint=packed.code.fingerprint,
    )
    if packed.code.import_path:
        code.import_path = packed.code.import_path
    else:
        code.pickled = packed.code.pickled
    return mesh_pb2.DeploymentSpec(
        application=application.name,
        name=packed.name,
        code=code,
        arguments=packed.arguments,
        options_json=packed.options.to_json(),
        interceptors=packed.interceptors,
        is_ingress=packed.name == application.ingress,
        calls=[
            mesh_pb2.DeploymentKey(application=each.application, name=each.deployment)
            for each in packed.calls
        ],
        takes_http=packed.takes_http,
    )


def open_channel(target: str, tls: TlsFiles | None, pem: Pem | None) -> grpc.Channel:
    """Return a channel to a process of the mesh.

    Args:
        target: ``host:port`` or ``unix:path``.
        tls: Certificates; ``None``: it speaks plainly.
        pem: What is in their files.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", -1),  # Classes by value may be large.
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_http_proxy", 0),
    ]
    if target.startswith("unix:"):
        options += UNIX_OPTIONS
    if pem is None or tls is None:
        return own_channel(target, options)
    # grpc checks one DNS name, no URI and no pattern: without one, what was dialled.
    names = [name for name in tls.names if "*" not in name and "://" not in name]
    options += [("grpc.ssl_target_name_override", name) for name in names[:1]]
    key, chain = pem.pair
    credentials = grpc.ssl_channel_credentials(pem.roots, key, chain)
    return own_channel(target, options, credentials)


# gRPC channels for calls of our own, which nothing that instruments a process gets between.
#
# Agents for tracing replace `grpc.insecure_channel` and `grpc.secure_channel` by functions whose
# channels have interceptors. Those hand out generators where a stream was called: they cannot be
# cancelled, and say nothing of status and metadata. So these channels are made of the class that
# the functions of grpcio make them of.

Options = Sequence[tuple[str, Any]]


def own_channel(
    target: str, options: Options, credentials: grpc.ChannelCredentials | None = None
) -> grpc.Channel:
    """Return a channel as ``grpc.secure_channel`` does, without credentials as the plain one.

    Args:
        target: ``host:port`` or ``unix:path``.
        options: Channel arguments of grpcio's.
        credentials: For TLS; ``None``: it speaks plainly.
    """
    of_tls: Any = credentials  # Its type does not say what it holds.
    native = None if of_tls is None else of_tls._credentials  # noqa: SLF001
    channel: grpc.Channel = _channel.Channel(target, tuple(options), native, None)
    return channel
