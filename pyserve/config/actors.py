"""Helpers that all replicas of a deployment share, by the name that Ray Serve has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.config.parts import Part
from pyserve.config.validation import check_mapping, check_text, refuse


@dataclass(frozen=True, kw_only=True)
class DeploymentActorConfig(Part):
    """One object that all replicas of a deployment share; see ``pyserve.get_deployment_actor``.

    It lives in a process of its own from before the first replica until the deployment ends, is
    looked at like a replica, and is made anew when it fails, without its state.

    Attributes:
        name: Unique in the deployment.
        actor_class: The class, one that ``ray.remote`` has decorated, or an import path such as
            ``"package.module:Class"``; ``None``: as replicas know it, which need its name only.
        init_args: What its constructor gets.
        init_kwargs: The same by names.
        actor_options: ``num_cpus`` and others as ``ray_actor_options``, whose ``runtime_env`` comes
            on top of the deployment's; and ``max_concurrency``, how many calls it takes at once (by
            default 1, or 1000 if one of its methods is a coroutine).
    """

    name: str
    actor_class: object = None
    init_args: Sequence[object] = ()
    init_kwargs: Mapping[str, object] = field(default_factory=dict)
    actor_options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text("deployment_actors.name", self.name, "a name, such as 'cache'")
        check_mapping("deployment_actors.init_kwargs", self.init_kwargs)
        check_mapping("deployment_actors.actor_options", self.actor_options)
        if not isinstance(self.init_args, list | tuple):
            raise refuse("deployment_actors.init_args", self.init_args, "a list of arguments", list)
        object.__setattr__(self, "init_args", tuple(self.init_args))


def deployment_name(owner: str, actor_name: str) -> str:
    """Return the name of the deployment that a helper of another one is."""
    return f"{owner}.{actor_name}"


def read_actors(value: object) -> tuple[DeploymentActorConfig, ...]:
    """Read the option ``deployment_actors``.

    Raises:
        OptionError: It is no list, an entry is none, or two have the same name.
    """
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise refuse("deployment_actors", value, "a list of DeploymentActorConfig", list)
    found = tuple(DeploymentActorConfig.of("deployment_actors", each) for each in value)
    names = [each.name for each in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise refuse("deployment_actors", sorted(repeated), "a name of its own for each")
    return found
