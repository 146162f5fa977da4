"""``@pyserve.deployment`` and what it makes: a class with options, and bound to arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from pyserve.config import DeploymentOptions
from pyserve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Target = TypeVar("Target")
Deployed_co = TypeVar("Deployed_co", covariant=True)


class Deployment(Generic[Deployed_co]):
    """A class together with how the mesh shall run it. Immutable.

    Attributes:
        target: The user's class.
        settings: The validated options.
    """

    def __init__(self, target: type[Deployed_co], options: DeploymentOptions) -> None:
        self.target = target
        self.settings = options
        self.__doc__ = target.__doc__

    @property
    def name(self) -> str:
        """The deployment's name: the option, or else the name of the class."""
        return self.settings.name or self.target.__name__

    def options(self, **options: object) -> Deployment[Deployed_co]:
        """Return a copy in which the given options replace the present ones.

        Raises:
            OptionError: An option has an unknown name or a wrong value.
        """
        return Deployment(self.target, self.settings.updated(options))

    def bind(self, *args: object, **kwargs: object) -> Application:
        """Return an application whose replicas construct the class with these arguments.

        Arguments may hold other applications; the constructor gets their handles instead.
        They travel by cloudpickle.

        Raises:
            TypeError: The constructor does not take these arguments.
        """
        _check_arguments(self.target, args, kwargs)
        return Application(self, args, dict(kwargs))

    def __call__(self, *_args: object, **_kwargs: object) -> Deployed_co:
        raise UsageError(
            f"deployment {self.name!r} cannot be called: write {self.name}.bind(...) for an "
            f"application, or {self.name}.target(...) for a plain instance in this process"
        )

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type[Deployed_co]]:
        # `class Special(Echo)` derives from the class that the name Echo stood for.
        return (self.target,)

    def __repr__(self) -> str:
        return f"Deployment({self.target.__module__}:{self.target.__qualname__}, {self.name!r})"


@dataclass(frozen=True, eq=False)
class Application:
    """A deployment bound to its constructor's arguments, with all that these refer to.

    Compared by identity: the same object twice in a graph is one deployment.
    """

    deployment: Deployment[object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the bound deployment."""
        return self.deployment.name


@overload
def deployment(target: type[Target], /) -> Deployment[Target]: ...
@overload
def deployment(**options: object) -> Callable[[type[Target]], Deployment[Target]]: ...
def deployment(
    target: type[Target] | None = None, /, **options: object
) -> Deployment[Target] | Callable[[type[Target]], Deployment[Target]]:
    """Make a class deployable; written with or without parentheses.

    Args:
        target: A class with generated servicers among its bases.
        **options: Section 4 of the reference: ``num_replicas``, ``max_ongoing_requests``, ...

    Raises:
        OptionError: An option has an unknown name or a wrong value.
        UsageError: The decorated object is no class.
    """
    validated = DeploymentOptions.of(options)

    def decorate(decorated: type[Target]) -> Deployment[Target]:
        given: object = decorated
        if not inspect.isclass(given):
            raise UsageError(
                f"@pyserve.deployment: {given!r} is no class; decorate a class that implements "
                f"a generated servicer"
            )
        return Deployment(decorated, validated)

    return decorate if target is None else decorate(target)


def _check_arguments(target: type, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Find a wrong argument where it is written, not minutes later in a replica."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # Classes written in C need not tell.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{target.__qualname__}.bind: {error}; it takes {signature}") from None
