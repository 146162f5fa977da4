"""Policies of users: classes that put the replicas in order for each call.

They run in the process of the router, in a native thread of their own. If a policy raises or
returns nonsense, the router's own policy decides, and the call loses only time. The same applies
until the policy is made, which happens in another thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any

from pyserve import working_folder
from pyserve.api.policy import NO_FACTS, Candidate, Facts, RoutedRequest, policy_class
from pyserve.bridge import rust
from pyserve.interrupts import FAILURES, raise_ctrl_c
from pyserve.observe.failures import user_code_logger
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.wire.v1 import mesh_pb2

_LOGGER = user_code_logger(__name__)
# The loop that makes routes waits so long for a policy.
_MAKING_WAIT_S = 0.1
Raw = tuple[str, str, int, int, list[str]]
FactsOf = Callable[[str], tuple[Facts, Facts]]


class Policies:
    """The policies of one process, each made once for its class and arguments."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], rust.Ranker | None] = {}
        self._used: set[tuple[str, str]] = set()
        self._facts = ReplicaFacts()

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._known)

    def ranker_of(
        self, found: mesh_pb2.PolicyClass, replicas: Iterable[mesh_pb2.ReplicaView]
    ) -> rust.Ranker | None:
        """Return the object that asks the policy once the policy is made.

        ``None`` if there is no policy, or it was clear at once that it cannot be made.

        Args:
            found: the class.
            replicas: those that it chooses from.
        """
        key = (found.import_path, found.kwargs_json)
        if not found.import_path:
            return None
        self._used.add(key)
        self._facts.take(replicas)
        if key not in self._known:
            self._known[key] = _ranker(found, self._facts.of)
        return self._known[key]

    def forget_unused(self) -> None:
        """Let go of policies and replicas that were not asked for since the last time."""
        self._facts.forget_unused()
        for key in self._known.keys() - self._used:
            del self._known[key]
        self._used = set()


def _ranker(found: mesh_pb2.PolicyClass, facts_of: FactsOf) -> rust.Ranker | None:
    chooser = Chooser(found.import_path, None, facts_of, tuple(found.sys_path))
    # Its module may be slow to import, and it may load or connect to something; or never end.
    name = f"policy {found.import_path}"
    making = threading.Thread(target=_make, args=(found, chooser), name=name, daemon=True)
    making.start()
    # Most are made at once, and then have all calls from the first one on.
    making.join(_MAKING_WAIT_S)
    if making.is_alive():
        return rust.Ranker(chooser, chooser.told)
    if not chooser.is_made:
        return None
    return rust.Ranker(chooser, chooser.told if chooser.listens else None)


def _make(found: mesh_pb2.PolicyClass, chooser: Chooser) -> None:
    try:
        kwargs = json.loads(found.kwargs_json) if found.kwargs_json else {}
        with working_folder.importable(found.sys_path):
            policy = _made(found.import_path, kwargs)
        chooser.begin(policy)
    except FAILURES as error:
        raise_ctrl_c(error)
        _LOGGER.exception(
            "the policy %s cannot be used here; replicas are picked without it", found.import_path
        )


def _made(import_path: str, kwargs: dict[str, object]) -> object:
    """Make the policy; one with ``initialize_state`` gets its arguments there, as in Ray Serve."""
    found = policy_class(import_path)
    if not hasattr(found, "initialize_state"):
        return found(**kwargs)
    policy = found()
    policy.initialize_state(**kwargs)
    return policy


class Chooser:
    """The object that the native half calls, in one thread; never raises.

    Args:
        name: of the policy, for the log.
        policy: has ``choose(candidates, request)`` or ``choose_replicas``, plain or async, which
            returns candidates or their ids, best first; a list of lists is read in order. ``None``:
            it is not made yet, see ``begin``.
        facts_of: returns the routing stats and the metadata of a replica.
        folders: where its driver finds modules, for what it imports when it is asked.
    """

    def __init__(
        self,
        name: str,
        policy: object,
        facts_of: FactsOf | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._folders = folders
        self._facts_of = facts_of or ReplicaFacts().of
        self._choose: Callable[..., Any] = _prefer_none
        self._on_routed: Callable[..., Any] = _nothing
        self._on_completed: Callable[..., Any] = _nothing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines = LogRateLimit()
        if policy is not None:
            self.begin(policy)

    def begin(self, policy: object) -> None:
        """Ask this policy from now on; on any thread."""
        self._on_routed = getattr(policy, "on_request_routed", _nothing)
        self._on_completed = getattr(policy, "on_request_completed", _nothing)
        choose = getattr(policy, "choose", None) or getattr(policy, "choose_replicas", None)
        self._choose = choose  # type: ignore[assignment]  # ``policy_class`` has looked

    def __call__(self, raw: Sequence[Raw], path: str, session_id: str, model_id: str) -> list[str]:
        """Return the ids of replicas, best first; none when the policy has failed."""
        candidates = [
            Candidate(*each[:4], tuple(each[4]), *self._facts_of(each[0])) for each in raw
        ]
        try:
            request = RoutedRequest(path, session_id, model_id)
            answer = self._asked(self._choose, candidates, request)
            return list(_ids(answer, {each.replica_id for each in candidates}))
        except FAILURES as error:
            raise_ctrl_c(error)
            self._complain(error)
            return []

    @property
    def is_made(self) -> bool:
        """Whether there is a policy to ask."""
        return self._choose is not _prefer_none

    @property
    def listens(self) -> bool:
        """Whether the policy wants to be told where calls go."""
        return self._on_routed is not _nothing or self._on_completed is not _nothing

    def told(self, number: int, replica_id: str, routed: tuple[str, str, str] | None) -> None:
        """Notify the policy that a call goes to a replica, or, without ``routed``, has ended."""
        if not self.listens:
            return
        request_id = str(number)
        try:
            if routed is None:
                self._asked(self._on_completed, replica_id, request_id)
            else:
                # Ray Serve hands over the answer as well, which is not there yet.
                request = RoutedRequest(*routed, request_id)
                self._asked(self._on_routed, request, replica_id, None)
        except FAILURES as error:
            raise_ctrl_c(error)
            self._complain(error)

    def __del__(self) -> None:
        # With the last route that had the policy; nothing else knows when that is.
        if self._loop is not None:
            self._loop.close()

    def _asked(self, hook: Callable[..., Any], *arguments: object) -> object:
        try:
            return self._result(hook(*arguments))
        except ModuleNotFoundError:
            # It imports only now, and calls are too many to change the path for each of them.
            with working_folder.importable(self._folders):
                return self._result(hook(*arguments))

    def _result(self, answer: object) -> object:
        if asyncio.iscoroutine(answer):
            return self._own_loop().run_until_complete(answer)
        return answer

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def _complain(self, error: BaseException) -> None:
        # However many calls it fails.
        if self._lines.allows():
            _LOGGER.warning(
                "the policy %s failed (%s: %s); replicas are picked without it",
                self._name,
                type(error).__name__,
                error,
            )


def _prefer_none(*_asked: object) -> list[str]:
    """Stand for a policy that is not made yet."""
    return []


def _nothing(*_told: object) -> None:
    """Stand for a hook that the policy does not have."""


def _ids(answer: object, known: set[str]) -> Iterable[str]:
    if not isinstance(answer, list | tuple):
        raise TypeError(f"it returned {answer!r} instead of a list of candidates")
    for each in answer:
        if isinstance(each, list | tuple):
            yield from _ids(each, known)
            continue
        name = each if isinstance(each, str) else getattr(each, "replica_id", None)
        if name not in known:
            raise ValueError(f"it returned {each!r}, which is no candidate")
        yield name


# The facts that replicas report about themselves, from views to policies of users.

_FACTS_LOGGER = logging.getLogger(__name__)


class ReplicaFacts:
    """Routing stats and metadata by the id of the replica.

    One thread takes them from views; the threads of the policies read meanwhile.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], tuple[Facts, Facts]]] = {}
        self._used: set[str] = set()

    def take(self, replicas: Iterable[mesh_pb2.ReplicaView]) -> None:
        """Remember what these replicas say."""
        for replica in replicas:
            name = replica.replica_id
            texts = replica.routing_stats_json, replica.replica_metadata_json
            if not any(texts):
                continue
            self._used.add(name)
            # Most views change for another reason.
            if name not in self._known or texts != self._known[name][0]:
                self._known[name] = texts, (_facts(name, texts[0]), _facts(name, texts[1]))

    def forget_unused(self) -> None:
        """Let go of replicas that were not taken since the last time."""
        for name in self._known.keys() - self._used:
            del self._known[name]
        self._used = set()

    def of(self, replica_id: str) -> tuple[Facts, Facts]:
        """Return the routing stats and the metadata of a replica, empty where there are none."""
        found = self._known.get(replica_id)
        return (NO_FACTS, NO_FACTS) if found is None else found[1]


def _facts(replica_id: str, text: str) -> Facts:
    if not text:
        return NO_FACTS
    try:
        # A policy that changed them would change them for its next calls too.
        return MappingProxyType(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        _FACTS_LOGGER.warning(
            "what replica %s says of itself is not a JSON object, and not used: %s",
            replica_id,
            error,
        )
        return NO_FACTS
