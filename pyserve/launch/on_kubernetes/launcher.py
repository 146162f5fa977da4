"""Runs each replica in a pod of a Kubernetes cluster, which places it and reports its state.

Pods are made here and not by a Deployment or the like: the controller decides which replica ends
and when one is replaced, and a ReplicaSet would decide for itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
import math
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass

from pyserve.config import DeploymentOptions
from pyserve.config.capabilities import LABELS, PODS, RESOURCES, SPREAD_CAPS, Capabilities
from pyserve.config.control import SHUTDOWN_GRACE_S
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import Ended, Event, Events, Placed, ReplicaOrder
from pyserve.errors import MeshError
from pyserve.launch.on_kubernetes.api import (
    Api,
    ApiError,
    ApiUnreachableError,
    Cluster,
    Nodes,
    Object,
    OutputFollower,
    PodWatch,
)
from pyserve.launch.on_kubernetes.pods import (
    MESH_LABEL,
    TLS_NAMES,
    TOKEN_KEY,
    PodPlan,
    labels_of,
    pod_name,
    pod_of,
    refusal,
)
from pyserve.launch.on_kubernetes.reading import DELETED, PodView, Tracking, read_pod
from pyserve.launch.on_kubernetes.site import (
    NAME,
    LauncherOptions,
    check_namespace,
    check_rights,
    mesh_label,
    own_pod,
)
from pyserve.launch.site import Site, mesh_variables
from pyserve.types import ReplicaId

_LOGGER = logging.getLogger(__name__)
# Of the controller's pod; those of replicas have files and an admin port of their own.
_OF_THIS_POD = (
    *("DASHBOARD_ADDRESS", "LOG_DIR"),
    *("MESH_TLS_CERT_FILE", "MESH_TLS_KEY_FILE", "MESH_TLS_CA_FILE"),
)
_NOT_FOUND = 404
_EXISTS = "AlreadyExists"
# Worth a retry: too many requests, a quota that is being changed, an API server that is ending.
_PASSING = (429, 409, 500, 502, 503, 504)
# Pods cost the machine of the controller nothing.
_STARTS_MAX = 256
# A node that lives confirms the end of a killed pod within a second or two.
_KILLED_WITHIN_S = 4.0
_CLOSED_WITHIN_S = 20.0
# How often the nodes of pods that have not begun are asked for.
_LOOK_PERIOD_S = 2.0
_ATTEMPTS, _AGAIN_S = 4, 0.5


@dataclass(slots=True)
class _Running:
    """A replica whose pod has been asked for.

    Attributes:
        grace_s: the shortest grace that it was given to end; None: it is not to end.
        is_placed: its node has been reported.
    """

    order: ReplicaOrder
    name: str
    grace_s: float | None = None
    is_placed: bool = False
    killing: asyncio.TimerHandle | None = None


class KubernetesLauncher:
    """See ``LastingLauncher``. In a lasting mesh its pods outlive it.

    Args:
        site: the mesh; its options are those of ``LauncherOptions``.
    """

    name = NAME
    capabilities = Capabilities(
        acts_on=(RESOURCES - {"resources.accelerator_type"})
        | LABELS - {"placement_group_bundle_label_selector"}
        | SPREAD_CAPS
        | PODS
        | {"env_vars", "working_dir"},
        are_elsewhere=True,
        check=refusal,
    )

    def __init__(self, site: Site) -> None:
        self._site = site
        self._options = LauncherOptions.read(site.options)
        self.capabilities = dataclasses.replace(self.capabilities, check=self._refusal)
        self._events = Events()
        self._tracking = Tracking()
        self._running: dict[ReplicaId, _Running] = {}
        self._own_secret = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_ended = asyncio.Event()
        self._following: Sequence[asyncio.Task[None]] = ()
        # Made by ``open``.
        self._api: Api
        self._nodes: Nodes
        self._plan: PodPlan
        self._output: OutputFollower
        self._watch: PodWatch

    async def open(self) -> None:
        """Find the cluster, check this account's rights there, and take in the mesh's pods."""
        if not self._site.controller_tcp():
            raise MeshError(
                f"pods of the launcher {NAME!r} cannot reach this controller; set "
                f"PYSERVE_CONTROLLER to the HOST:PORT where it shall listen for them"
            )
        cluster = Cluster(self._options.kubeconfig, self._options.context)
        self._api = await Api.connect(cluster)
        self._nodes = Nodes(self._api)
        try:
            await self._settle(cluster)
        except BaseException:
            if self._own_secret:
                await self._delete_secret()
            await self._api.close()
            raise
        work = (self._watch.follow(), self._look_after_starts())
        self._following = [asyncio.create_task(each) for each in work]

    async def _settle(self, cluster: Cluster) -> None:
        options, namespace = self._options, self._options.namespace or cluster.namespace()
        await check_namespace(self._api, namespace)
        await check_rights(self._api, namespace, makes_secret=not options.token_secret)
        own = await own_pod(self._api, namespace) if cluster.is_own else None
        image = options.image or ("" if own is None else own.image)
        if not image:
            raise MeshError(
                f"the launcher {NAME!r} has no image for its pods; name one with pyserve and your "
                f"code by --launcher-option image=NAME"
            )
        environment = mesh_variables("OTEL_", but=_OF_THIS_POD)
        if options.tls_secret and TLS_NAMES not in environment:
            raise MeshError(
                f"pods are dialled by addresses that no certificate of the Secret "
                f"{options.tls_secret!r} has; set {TLS_NAMES} to a name that it does have"
            )
        identity = self._site.token if own is None else own.uid.encode()
        mesh = mesh_label(identity)
        self._plan = PodPlan(
            namespace=namespace,
            name=options.name,
            mesh=mesh,
            image=image,
            token_secret=options.token_secret or f"{options.name}-{mesh}-token",
            tls_secret=options.tls_secret,
            environment=environment,
            template=options.pod_template,
            packs=options.pack,
            owner=None if own is None else own.owner,
        )
        self._output = OutputFollower(self._api, self._pods_path, self._site.said)
        self._watch = PodWatch(self._api, self._pods_path, f"{MESH_LABEL}={mesh}", self)
        try:
            if not options.token_secret:
                await self._make_secret()
            await self._watch.list()
        except (ApiError, ApiUnreachableError) as error:
            raise MeshError(f"the cluster at {self._api.host} refuses it: {error}") from error

    async def _make_secret(self) -> None:
        name = self._plan.token_secret
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "labels": labels_of(self._plan.name, "token"),
                "ownerReferences": [self._plan.owner] if self._plan.owner else [],
            },
            "data": {TOKEN_KEY: base64.b64encode(self._site.token.hex().encode()).decode()},
        }
        try:
            await self._api.request("POST", self._secrets_path, body=secret)
        except ApiError as error:
            # The name has a hash of the token, so that one is the same.
            if error.reason != _EXISTS:
                raise
        self._own_secret = name

    # Called by the controller.

    def _refusal(self, options: DeploymentOptions) -> str:
        mine = self._options
        return refusal(options, name=mine.name, is_open=mine.open_pod_templates)

    async def start(self, order: ReplicaOrder) -> int:
        """Make the pod of a replica; see ``Launcher.start``."""
        # It may have been deployed when more was taken.
        if order.options is not None and (why := self._refusal(order.options)):
            raise OSError(f"the launcher {NAME!r} refuses its pod: {why}")
        pod = pod_of(order, self._plan, self._site.controller_tcp())
        running = _Running(order, pod["metadata"]["name"])
        self._running[order.replica_id] = running
        self._tracking.expect(order.replica_id)
        try:
            await self._create(pod)
        except OSError:
            self._forget(order.replica_id)
            raise
        if running.grace_s is not None:
            # Its end was asked for before the pod was there.
            self._spawn(self._delete(running.name, max(math.ceil(running.grace_s), 1)))
        return 0

    async def _create(self, pod: Object) -> None:
        """Make a pod, exactly once even if an answer is lost on the way."""
        name, why = pod["metadata"]["name"], ""
        for _ in range(_ATTEMPTS):
            try:
                made = await self._api.request(
                    "POST", self._pods_path, {"fieldValidation": "Strict"}, pod
                )
            except ApiError as error:
                if error.reason == _EXISTS and why:
                    return  # Made by an earlier attempt; the watch reports it.
                why = f"the cluster refuses its pod: {error}"
                if error.status not in _PASSING or error.reason == _EXISTS:
                    raise OSError(why) from error
            except ApiUnreachableError as error:
                why = f"the API server does not answer: {error}"
            else:
                self._created(read_pod(made))
                return
            await asyncio.sleep(_AGAIN_S)
        self._spawn(self._delete(name, 0))
        raise OSError(why)

    def _created(self, view: PodView) -> None:
        # The watch may have reported newer states before this answer came.
        is_expected = self._tracking.expects(view.replica_id)
        if is_expected and self._tracking.view(view.replica_id) is None:
            self._tell(self._tracking.handle(view), view)

    def memo(self, replica_id: ReplicaId) -> str:
        """Return the name of the pod; see ``LastingLauncher.memo``."""
        running = self._running.get(replica_id)
        return "" if running is None else running.name

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:  # noqa: ARG002
        """Follow a pod that ``open`` has found; see ``LastingLauncher.adopt``."""
        replica_id = order.replica_id
        if replica_id not in self._tracking.strays:
            return None
        name = pod_name(self._plan, replica_id, order.key.application)
        self._running[replica_id] = _Running(order, name)
        view = self._tracking.strays[replica_id]
        if view.is_running and self._options.logs:
            self._output.follow(order, name, is_old=True)
        self._tell(self._tracking.expect(replica_id), view)
        self._look_at(view)
        return 0

    def count_strays(self) -> int:
        """Return how many pods have not been adopted; see ``CountsStrays``."""
        return len(self._tracking.strays)

    def end_strays(self) -> None:
        """Delete the pods that have not been adopted; see ``LastingLauncher.end_strays``."""
        for view in self._tracking.strays.values():
            self._spawn(self._delete(view.name, math.ceil(SHUTDOWN_GRACE_S)))

    def let_go(self) -> None:
        """Stop following all pods; see ``LastingLauncher.let_go``."""
        self._stop_following()
        if self._running:
            self._own_secret = ""  # The pods need it, and the next launcher has it.
        self._running.clear()

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Have a pod end; see ``Launcher.stop``."""
        running = self._running.get(replica_id)
        if running is None or (running.grace_s is not None and running.grace_s <= grace_s):
            return
        running.grace_s = grace_s
        # With 0 the API server would forget the pod before its node has learned of its deletion.
        self._spawn(self._delete(running.name, max(math.ceil(grace_s), 1)))
        if running.killing is not None:
            running.killing.cancel()
        running.killing = asyncio.get_running_loop().call_later(
            grace_s + _KILLED_WITHIN_S, lambda: self._spawn(self._give_up(replica_id))
        )

    def room(self) -> Room:
        """Return that the cluster has room for many; see ``Launcher.room``."""
        return Room(starts_max=_STARTS_MAX, why=f"{_STARTS_MAX} start at a time")

    def watch(self) -> Events:
        """Return the events of replicas; see ``Launcher.watch``."""
        return self._events

    async def close(self) -> None:
        """Delete every pod of ours, and wait; see ``Launcher.close``."""
        if self._following:
            for replica_id in list(self._running):
                self.stop(replica_id, 0)
            try:
                async with asyncio.timeout(_CLOSED_WITHIN_S):
                    while self._running:
                        self._one_ended.clear()
                        await self._one_ended.wait()
            except TimeoutError:
                left = ", ".join(each.name for each in self._running.values())
                _LOGGER.error("these pods are left in %s: %s", self._plan.namespace, left)
            if self._own_secret:
                await self._delete_secret()
            self._stop_following()
            self._following = ()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._api.close()
        self._events.close()

    # Events from the cluster; see ``api.Listener``.

    def before(self) -> Collection[str]:
        """Return the pods that are known to exist."""
        return self._tracking.present()

    def listed(self, pods: Sequence[Object], before: Collection[str]) -> None:
        """Take every pod of this mesh."""
        views = [read_pod(each) for each in pods]
        known = {each: self._tracking.view(each) for each in self._running}
        there = {view.replica_id: view for view in views}
        for event in self._tracking.replace(views, before):
            is_gone = event.replica_id not in there
            view = there.get(event.replica_id) or known.get(event.replica_id)
            self._tell([event], view, is_gone=is_gone)
        for view in views:
            self._look_at(view)

    def changed(self, kind: str, pod: Object) -> None:
        """Take one event of the watch."""
        view = read_pod(pod)
        self._tell(self._tracking.handle(view, kind), view, is_gone=kind == DELETED)
        self._look_at(view)

    def _look_at(self, view: PodView) -> None:
        """Handle a pod that is alive: report its zone, and follow its output."""
        running = self._running.get(view.replica_id)
        if running is None or not self._tracking.expects(view.replica_id):
            return
        if view.node and not running.is_placed:
            running.is_placed = True
            self._spawn(self._place(running, view.node))
        if view.is_running and self._options.logs:
            self._output.follow(running.order, view.name)

    def _tell(
        self, events: Sequence[Event], view: PodView | None, *, is_gone: bool = False
    ) -> None:
        for event in events:
            if isinstance(event, Ended):
                self._spawn(self._end(event, view, is_gone=is_gone))
            else:
                self._events.put(event)

    # Tasks that wait for the cluster.

    async def _place(self, running: _Running, node: str) -> None:
        try:
            zone = (await self._nodes.get(node)).zone
        except ApiUnreachableError as error:
            _LOGGER.warning("the zone of node %s is not known: %s", node, error)
            return
        if zone and running.order.replica_id in self._running:
            self._events.put(Placed(running.order.replica_id, zone))

    async def _look_after_starts(self) -> None:
        """Give up pods that have not begun and whose node is lost: no event reports them.

        The scheduler regards a node as healthy until the control plane has missed it for a while,
        and prefers a node whose replicas have just been lost.
        """
        while True:
            await asyncio.sleep(_LOOK_PERIOD_S)
            views = {each: self._tracking.view(each) for each in self._running}
            begins = {
                each: view.node
                for each, view in views.items()
                if view is not None and view.node and not view.is_running
            }
            with contextlib.suppress(ApiUnreachableError):
                asked = {name: await self._nodes.ask(name) for name in set(begins.values())}
                for replica_id, name in begins.items():
                    if asked[name].trouble:
                        self._spawn(self._give_up(replica_id))

    async def _end(self, event: Ended, view: PodView | None, *, is_gone: bool) -> None:
        """Report the end of a replica after its last output, and delete its pod."""
        running = self._running.get(event.replica_id)
        if running is None:
            return
        await self._output.finish(running.order, running.name, view)
        self._events.put(event)
        if not is_gone:
            # Its container has ended: with a period its node would have to confirm that first.
            await self._delete(running.name, 0)
        self._forget(event.replica_id)

    async def _give_up(self, replica_id: ReplicaId) -> None:
        """Take a pod out of the cluster whose node does not confirm its end."""
        running, view = self._running.get(replica_id), self._tracking.view(replica_id)
        if running is None or not self._tracking.expects(replica_id):
            return
        if view is not None and view.node:
            with contextlib.suppress(ApiUnreachableError):
                await self._nodes.ask(view.node)
            if not self._tracking.expects(replica_id):
                return
        _LOGGER.warning("pod %s does not end and is taken out of the cluster", running.name)
        if view is None:
            # It was requested, and has not been seen since.
            self._tracking.forget(replica_id)
            given_up: list[Event] = [Ended(replica_id, "was given up before its pod was there")]
        else:
            given_up = self._tracking.give_up(replica_id, self._nodes.known)
        # Reported before the deletion, since the cluster's event for it does not give the reason.
        self._tell(given_up, view, is_gone=True)
        await self._delete(running.name, 0)

    async def _delete(self, name: str, grace_s: int) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
        for _ in range(_ATTEMPTS):
            try:
                await self._api.request("DELETE", f"{self._pods_path}/{name}", body=body)
            except ApiError as error:
                if error.status != _NOT_FOUND:
                    _LOGGER.error("pod %s cannot be deleted: %s", name, error)
            except ApiUnreachableError as error:
                _LOGGER.warning("pod %s cannot be deleted yet: %s", name, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            return

    async def _delete_secret(self) -> None:
        try:
            await self._api.request("DELETE", f"{self._secrets_path}/{self._own_secret}")
        except (ApiError, ApiUnreachableError) as error:
            _LOGGER.error("the Secret %s is left: %s", self._own_secret, error)
        self._own_secret = ""

    def _forget(self, replica_id: ReplicaId) -> None:
        self._tracking.forget(replica_id)
        running = self._running.pop(replica_id, None)
        if running is not None and running.killing is not None:
            running.killing.cancel()
        self._one_ended.set()

    def _stop_following(self) -> None:
        for task in self._following:
            task.cancel()
        if self._following:
            self._output.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{self._plan.namespace}/pods"

    @property
    def _secrets_path(self) -> str:
        return f"/api/v1/namespaces/{self._plan.namespace}/secrets"
