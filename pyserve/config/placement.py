"""Whether what somebody wrote of placement groups fits together, as Ray asks for it.

It is checked where options are written, not where they are read: specs of releases that did not
ask for it go on serving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyserve.config.validation import refuse

if TYPE_CHECKING:
    from pyserve.config.options import DeploymentOptions
    from pyserve.config.parts import Resources

_BUNDLES = "placement_group_bundles"
_SELECTORS = "placement_group_bundle_label_selector"


def check_placement_group(options: DeploymentOptions) -> None:
    """Refuse what no placement group can be made of, or what needs one and has none.

    Raises:
        OptionError: The text has the option, its value and what is allowed.
    """
    bundles, selectors = options.placement_group_bundles, _selectors(options)
    if bundles is None:
        if options.placement_group_strategy != "PACK":
            what = f"PACK, or another one beside {_BUNDLES}, which it is about"
            raise refuse("placement_group_strategy", options.placement_group_strategy, what)
        if selectors:
            raise refuse(_SELECTORS, selectors, f"none without {_BUNDLES}, which it is about")
        return
    if not bundles or not all(any(bundle.values()) for bundle in bundles):
        what = "at least one mapping, each with an amount above 0, or none at all"
        raise refuse(_BUNDLES, bundles, what)
    if len(selectors) not in (0, 1, len(bundles)):
        raise refuse(
            _SELECTORS, selectors, f"one for all bundles, or one for each ({len(bundles)})"
        )
    for name, amount in _amounts(options.resources):
        if amount > bundles[0].get(name, 0):
            what = f"a first bundle with at least {name}={amount:g}: it holds the replica itself"
            raise refuse(_BUNDLES, bundles, what)


def _selectors(options: DeploymentOptions) -> list[Mapping[str, str]]:
    return list(options.placement_group_bundle_label_selector or ())


def _amounts(resources: Resources) -> Iterator[tuple[str, float]]:
    """Yield what a replica takes, by the names that bundles have."""
    yield "CPU", resources.num_cpus or 0
    yield "GPU", resources.num_gpus
    yield "memory", resources.memory or 0
    yield from resources.resources.items()
