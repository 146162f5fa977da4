"""Policies that users write: what they get, and the look-up of their class."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyserve.config.validation import refuse
from pyserve.interrupts import FAILURES, raise_ctrl_c
from pyserve.observe.failures import text_of
from pyserve.signatures import read_signature

_FIELD = "request_router_config.policy"

# Facts that a replica's class reports about itself; values are those of JSON.
Facts = Mapping[str, Any]
NO_FACTS: Facts = MappingProxyType({})


def _no_facts() -> Facts:
    return NO_FACTS


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that may get a call.

    Attributes:
        replica_id: its name.
        node_id: where it runs.
        in_flight: calls of this router there.
        capacity: how many it may have there.
        model_ids: the multiplexed models that it has.
        routing_stats: what its ``record_routing_stats`` returned last; empty: nothing yet.
        replica_metadata: what its ``record_replica_metadata`` returned; empty: nothing.
    """

    replica_id: str
    node_id: str
    in_flight: int
    capacity: int
    model_ids: tuple[str, ...] = ()
    # Mappings have no hash, and a replica's identity does not depend on what it reports.
    routing_stats: Facts = field(default_factory=_no_facts, hash=False)
    replica_metadata: Facts = field(default_factory=_no_facts, hash=False)

    @property
    def multiplexed_model_ids(self) -> frozenset[str]:
        """The models, under the name that Ray Serve uses."""
        return frozenset(self.model_ids)

    @property
    def max_ongoing_requests(self) -> int:
        """The capacity, under the name that Ray Serve uses."""
        return self.capacity


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """The call that wants a replica.

    Attributes:
        path: ``/pkg.Service/Method``, or the path of plain HTTP; ``""``: not known yet.
        session_id: ``""``: none.
        multiplexed_model_id: ``""``: none.
        internal_request_id: names the call in ``on_request_completed``; ``""``: it is not sent yet.
    """

    path: str
    session_id: str
    multiplexed_model_id: str
    internal_request_id: str = ""

    @property
    def method_name(self) -> str:
        """What follows the last slash of the path."""
        return self.path.rpartition("/")[2]

    @property
    def call_method(self) -> str:
        """The method, under the name that Ray Serve uses."""
        return self.method_name

    @property
    def metadata(self) -> RoutedRequest:
        """This object itself: Ray Serve keeps the facts about a call in ``metadata``."""
        return self


def policy_class(import_path: str) -> Any:
    """Import the class of a policy, ``module:Class``.

    Raises:
        OptionError: It cannot be imported, or is no policy.
    """
    module, _, name = import_path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise refuse(_FIELD, import_path, f"a class that can be imported ({error})") from error
    except FAILURES as error:
        raise_ctrl_c(error)
        why = f"{module} raises {type(error).__name__}: {text_of(error)}"
        raise refuse(_FIELD, import_path, f"a class that can be imported ({why})") from error
    has_method = any(callable(getattr(found, each, None)) for each in ("choose", "choose_replicas"))
    if inspect.isabstract(found) or not has_method:
        allowed = "a class with a method choose(candidates, request), or choose_replicas"
        raise refuse(_FIELD, import_path, allowed)
    return found


def check_policy(import_path: str, kwargs: Mapping[str, object]) -> None:
    """Look whether a policy can be made of these arguments, without making it.

    Raises:
        OptionError: It cannot be imported, is no policy, or takes other arguments.
    """
    found = policy_class(import_path)
    make = getattr(found, "initialize_state", None)
    # A method of the class takes the policy first.
    first = () if make is None else (None,)
    try:
        signature = read_signature(found if make is None else make)
    except ValueError:
        return  # Of C, without a signature; its log will tell.
    try:
        signature.bind(*first, **kwargs)
    except TypeError as error:
        allowed = f"what {import_path} takes, {signature} ({error})"
        raise refuse("request_router_config.policy_kwargs", dict(kwargs), allowed) from error
