"""Says which options of a deployment a launcher supports, and checks a deploy for that. Pure.

A deploy is refused if it has an option that the launcher neither supports nor may ignore. A replica
that lacks what its author asked for would fail later, and elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from pyserve.config.options import DeploymentOptions

# Names of options, grouped by the capability that a launcher needs for them.
RESOURCES = frozenset(
    f"resources.{name}"
    for name in ("num_cpus", "num_gpus", "memory", "accelerator_type", "resources")
)
BUNDLES = frozenset({"placement_group_bundles", "placement_group_strategy"})
# Zones are labels of nodes.
LABELS = frozenset(
    {
        "resources.label_selector",
        "resources.fallback_strategy",
        "placement_group_bundle_label_selector",
    }
)
ENVIRONMENTS = frozenset({"env_vars", "working_dir", "pip"})
SPREAD_CAPS = frozenset({"max_replicas_per_node"})
PODS = frozenset({"pod_template"})
GANGS = frozenset({"gang_scheduling_config"})
OF_LAUNCHERS = RESOURCES | BUNDLES | LABELS | ENVIRONMENTS | SPREAD_CAPS | GANGS | PODS


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The options that a launcher supports or ignores; all others are refused.

    Attributes:
        acts_on: the options that it supports, names of ``OF_LAUNCHERS``.
        needless: the options that have no meaning where it starts replicas, each with the reason,
            which the deploying user is shown.
        starts_none: why it starts no replica at all, and what to do instead; "": it does.
        are_elsewhere: its replicas need neither the controller's machine nor its process. They go
            on when a signal ends it, and the next controller finds them. ``pyserve shutdown`` ends
            them too.
        check: returns why it cannot provide the values of options that it supports; "": it can.

    Raises:
        ValueError: a name is not in ``OF_LAUNCHERS``.
    """

    acts_on: frozenset[str] = frozenset()
    needless: Mapping[str, str] = field(default_factory=dict)
    starts_none: str = ""
    are_elsewhere: bool = False
    check: Callable[[DeploymentOptions], str] = lambda _: ""

    def __post_init__(self) -> None:
        unknown = sorted((self.acts_on | self.needless.keys()) - OF_LAUNCHERS)
        if unknown:
            raise ValueError(
                f"no option that launchers act on is called {', '.join(unknown)}; there are: "
                f"{', '.join(sorted(OF_LAUNCHERS))}"
            )

    def refusal(self, options: DeploymentOptions) -> str:
        """Return why a deployment with these options cannot be started, "" if it can be."""
        if self.starts_none:
            return self.starts_none
        refused = [
            name for name in asked(options) if name not in self.acts_on | self.needless.keys()
        ]
        if not refused:
            return self.check(options)
        return f"it cannot give {' and '.join(refused)}; leave that out, or use another launcher"

    def lines_on(self, options: DeploymentOptions) -> list[str]:
        """Return a line on each option that is written and changes nothing."""
        return [
            f"{name} has no effect: {self.needless[name]}"
            for name in asked(options)
            if name in self.needless
        ]


def asked(options: DeploymentOptions) -> Iterator[str]:
    """Yield the names of ``OF_LAUNCHERS`` that differ from their defaults, in order."""
    default = DeploymentOptions()
    for name in sorted(OF_LAUNCHERS):
        if _value(options, name) != _value(default, name):
            yield name


def _value(options: DeploymentOptions, name: str) -> object:
    found: object = reduce(getattr, name.split("."), options)
    # A list from a file and a tuple from code are the same.
    return list(found) if isinstance(found, tuple) else found
