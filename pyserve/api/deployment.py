"""``@pyserve.deployment`` and what it makes: a class or function with options."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar, overload

from pyserve.batching import Batched
from pyserve.config import BackpressureConfig, DeploymentOptions, LoggingConfig, check_name
from pyserve.errors import KindError, OptionError, WrongMoment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Target = TypeVar("Target")
Deployed_co = TypeVar("Deployed_co", covariant=True)


class Deployment(Generic[Deployed_co]):
    """A class or function together with how the mesh shall run it. Immutable.

    Attributes:
        target: The user's class, or the function, which is what ``__call__`` runs then.
        settings: The validated options.
    """

    def __init__(self, target: type[Deployed_co], options: DeploymentOptions) -> None:
        self.target = target
        self.settings = options
        self.__doc__ = target.__doc__

    @property
    def name(self) -> str:
        """The deployment's name: the option, or else the name of the class or function."""
        return self.settings.name or self.target.__name__

    @property
    def func_or_class(self) -> type[Deployed_co]:
        """The target, under the name that Ray Serve uses; so are those that follow."""
        return self.target

    @property
    def num_replicas(self) -> int | str:
        """The option."""
        return self.settings.num_replicas

    @property
    def user_config(self) -> object:
        """The option."""
        return self.settings.user_config

    @property
    def max_ongoing_requests(self) -> int:
        """How many calls a replica takes at once, before its batches are counted."""
        return self.settings.ongoing_requests_limit()

    @property
    def max_queued_requests(self) -> int:
        """The option."""
        return self.settings.max_queued_requests

    @property
    def backpressure_config(self) -> BackpressureConfig | None:
        """The option."""
        return self.settings.backpressure_config

    @property
    def ray_actor_options(self) -> dict[str, object]:
        """The option ``resources``, and as ``runtime_env`` what replicas are given besides."""
        given = {
            "env_vars": dict(self.settings.env_vars),
            "working_dir": self.settings.working_dir,
            "pip": list(self.settings.pip),
        }
        runtime_env = {name: value for name, value in given.items() if value}
        return asdict(self.settings.resources) | {"runtime_env": runtime_env}

    @property
    def logging_config(self) -> LoggingConfig:
        """The option."""
        return self.settings.logging_config

    def options(
        self, func_or_class: Target | None = None, **options: object
    ) -> Deployment[Deployed_co]:
        """Return a copy in which the given options replace the present ones.

        Args:
            func_or_class: What is deployed instead; ``None``: the same.
            **options: As of ``deployment``.

        Raises:
            OptionError: An option has an unknown name or a wrong value.
            UsageError: ``func_or_class`` is no class and no function.
        """
        _check_replicas(options)
        target = self.target if func_or_class is None else _deployable(func_or_class)
        settings = self.settings.updated(options)
        if "interceptors" in options:
            _check_interceptors(settings)
        return Deployment(target, settings)

    def bind(self, *args: object, **kwargs: object) -> Application:
        """Return an application whose replicas construct the class with these arguments.

        Arguments may hold other applications; the constructor gets their handles instead.
        They travel by cloudpickle. A function has no constructor, so it takes none.

        Raises:
            TypeError: The constructor does not take these arguments.
            UsageError: An argument, or code that no module has, cannot be pickled; the text has
                the way to the part that is to blame.
        """
        from pyserve.api.code import is_reachable
        from pyserve.api.travel import check_arguments, check_code

        _check_arguments(self.target, args, kwargs)
        if self.settings.name is None:
            check_name("name", self.target.__name__)  # That of a lambda cannot be used.
        if not is_reachable(self.target):
            check_code(self.name, self.target)
        application = Application(self, args, dict(kwargs))
        check_arguments(application)
        return application

    def __call__(self, *_args: object, **_kwargs: object) -> Deployed_co:
        raise WrongMoment(
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


class Decorator(Protocol):
    """What ``deployment`` with options returns."""

    @overload
    def __call__(self, target: type[Target], /) -> Deployment[Target]: ...
    @overload
    def __call__(self, target: Callable[..., object], /) -> Deployment[Any]: ...


@overload
def deployment(target: type[Target], /, **options: object) -> Deployment[Target]: ...
@overload
def deployment(target: Callable[..., object], /, **options: object) -> Deployment[Any]: ...
@overload
def deployment(name: str | None = None, /, **options: object) -> Decorator: ...
def deployment(
    target: type[Any] | Callable[..., object] | str | None = None, /, **options: object
) -> Deployment[Any] | Decorator:
    """Make a class or function deployable; written with or without parentheses.

    Args:
        target: A class, with or without generated servicers among its bases, or a function
            (``def``, ``async def``, with ``yield`` or without), which is called as it is. A text
            is the option ``name``.
        **options: Section 4 of the reference: ``num_replicas``, ``max_ongoing_requests``, ...

    Raises:
        OptionError: An option has an unknown name or a wrong value.
        KindError: The decorated object is no class and no function.
    """
    if isinstance(target, str):
        if "name" in options:
            raise OptionError(
                f"@pyserve.deployment has two names, {target!r} and {options['name']!r}; keep one"
            )
        options, target = {**options, "name": target}, None
    _check_replicas(options)
    validated = DeploymentOptions.of(options)
    _check_interceptors(validated)

    def decorate(decorated: Any, /) -> Deployment[Any]:
        return Deployment(_deployable(decorated), validated)

    return decorate if target is None else decorate(target)


def _check_replicas(options: Mapping[str, object]) -> None:
    """Refuse what is a slip in code, as in Ray Serve; a mesh may be told to run none."""
    if options.get("num_replicas") == 0:
        raise OptionError(
            "num_replicas=0 is not allowed; allowed: a whole number, at least 1, or 'auto'; for "
            "none end the application with pyserve.delete"
        )


def _deployable(decorated: Any) -> Any:
    if not inspect.isclass(decorated) and not is_function(decorated):
        raise KindError(
            f"@pyserve.deployment: {decorated!r} is neither a class nor a function; decorate "
            f"the `class`, `def` or `async def` that the replicas shall run"
        )
    return decorated


def _check_interceptors(options: DeploymentOptions) -> None:
    if options.interceptors:
        from pyserve.api.travel import check_interceptors

        check_interceptors(options.interceptors)


def is_function(target: object) -> TypeGuard[Callable[..., object]]:
    """Say whether ``target`` can be deployed as a function: a ``def``, batched or not."""
    return inspect.isfunction(target) or isinstance(target, Batched)


def _check_arguments(
    target: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Find a wrong argument where it is written, not minutes later in a replica."""
    if is_function(target):
        if args or kwargs:
            raise TypeError(
                f"{target.__qualname__}.bind: a function has no constructor and takes no "
                f"arguments; write {target.__qualname__}.bind(), or make it a class"
            )
        return
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # Classes written in C need not tell.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{target.__qualname__}.bind: {error}; it takes {signature}") from None
