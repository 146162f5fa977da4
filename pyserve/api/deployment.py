"""``@pyserve.deployment`` and what it makes: a class or function with options."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeGuard,
    TypeVar,
    overload,
)

from pyserve.api.step_targets import check_step_targets
from pyserve.batching import Batched
from pyserve.config import BackpressureConfig, DeploymentOptions, LoggingConfig, check_name
from pyserve.config.options import check_replicas, described_options
from pyserve.config.placement import check_placement_group
from pyserve.errors import KindError, OptionError, WrongMoment
from pyserve.signatures import read_signature

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping
    from types import FunctionType
    from typing import ClassVar, Unpack

    from pyserve.api.handles.handle import DeploymentHandle
    from pyserve.api.handles.typing import Arguments, Deployed_co, Result
    from pyserve.config.keywords import DeploymentKeywords

    # An application stands for the handle that the constructor gets in its place.
    _BoundHandle = DeploymentHandle
else:
    Arguments = ParamSpec("Arguments")
    Deployed_co = TypeVar("Deployed_co", covariant=True)

    class _BoundHandle(Generic[Deployed_co]):
        """Takes a type parameter."""


class Deployment(Generic[Deployed_co, Arguments]):
    """A class or function together with the options for running it in the mesh. Immutable.

    The type parameters are the class and the parameters of its constructor, which may be left out.
    For a function they are its type, and no parameters.

    Attributes:
        target: The user's class, or the function, which ``__call__`` then runs.
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
    def version(self) -> None:
        """None: the mesh tells versions apart by their code and options."""

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
    def max_queued_cost(self) -> float | None:
        """The option."""
        return self.settings.max_queued_cost

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
        self, func_or_class: object = None, **options: Unpack[DeploymentKeywords]
    ) -> Deployment[Deployed_co, Arguments]:
        """Return a copy in which the given options replace the present ones.

        Args:
            func_or_class: What is deployed instead; ``None``: the same.
            **options: As of ``deployment``, which has their meanings and defaults.

        Raises:
            OptionError: An option has an unknown name or a wrong value.
            UsageError: ``func_or_class`` is no class and no function.
        """
        check_replicas(options)
        target = self.target if func_or_class is None else _deployable(func_or_class)
        settings = self.settings.updated(options)
        check_placement_group(settings)
        check_step_targets(target, settings)
        if "interceptors" in options:
            _check_interceptors(settings)
        return Deployment(target, settings)

    def bind(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Application[Deployed_co]:
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

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: object) -> object:
            # Without what the constructor takes, as checkers know it by a default.
            given = parameters if isinstance(parameters, tuple) else (parameters, ...)
            return super().__class_getitem__(given)

        def __getattr__(self, name: str) -> object:
            # The methods of the class, to be named: handle[Predictor.predict].
            if name.startswith("_") or not inspect.isclass(self.__dict__.get("target")):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.target, name)

    def __repr__(self) -> str:
        return f"Deployment({self.target.__module__}:{self.target.__qualname__}, {self.name!r})"


@dataclass(frozen=True, eq=False)
class Application(_BoundHandle[Deployed_co]):
    """A deployment bound to its constructor's arguments, with all that these refer to.

    ``pyserve.run`` turns it into a handle. Type checkers treat it as a handle, since it may be
    passed where a constructor takes one; it cannot make calls itself.

    Compared by identity: the same object twice in a graph is one deployment.
    """

    deployment: Deployment[Deployed_co]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    if TYPE_CHECKING:
        remote: ClassVar[_RunItFirst]  # type: ignore[misc, assignment]  # Not yet.

    @property
    def name(self) -> str:
        """The name of the bound deployment."""
        return self.deployment.name


class Deployable:
    """A base for deployed classes that lets type checkers use the class's own name.

    Type checkers treat a decorated class as either the class or the decorator's result. With this
    base they treat it as both: ``Predictor.bind(...)`` is checked against the constructor, and
    ``DeploymentHandle[Predictor]`` names a class. It has no effect at run time.
    """

    if TYPE_CHECKING:

        @classmethod
        def bind(
            cls: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
        ) -> Application[Result]:
            """Return an application; see ``Deployment.bind``."""

        @classmethod
        def options(
            cls: Callable[Arguments, Result], **options: Unpack[DeploymentKeywords]
        ) -> Deployment[Result, Arguments]:
            """Return a copy with other options; see ``Deployment.options``."""


if TYPE_CHECKING:
    Base = TypeVar("Base", bound=type[Deployable])
    # Functions made by `def`, for pyright and for mypy, and no classes.
    Function = TypeVar("Function", bound=FunctionType | builtins.function)

    class _RunItFirst:
        """``pyserve.run(application)`` returns a handle, which has ``remote``."""


# The more specific overloads come first. For mypy the bound of Function includes all callables, but
# no class matches it.


class Decorator(Protocol):
    """The decorator that ``deployment`` with options returns."""

    @overload
    def __call__(self, target: Base, /) -> Base: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Function, /) -> Deployment[Function, []]: ...
    @overload
    def __call__(self, target: Batched[Result], /) -> Deployment[Batched[Result], []]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, target: Callable[Arguments, Result], /
    ) -> Deployment[Result, Arguments]: ...


@overload
def deployment(target: Base, /, **options: Unpack[DeploymentKeywords]) -> Base: ...  # type: ignore[overload-overlap]
@overload
def deployment(
    target: Function, /, **options: Unpack[DeploymentKeywords]
) -> Deployment[Function, []]: ...
@overload
def deployment(
    target: Batched[Result], /, **options: Unpack[DeploymentKeywords]
) -> Deployment[Batched[Result], []]: ...
@overload
def deployment(  # type: ignore[overload-cannot-match]
    target: Callable[Arguments, Result], /, **options: Unpack[DeploymentKeywords]
) -> Deployment[Result, Arguments]: ...
@overload
def deployment(name: str | None = None, /, **options: Unpack[DeploymentKeywords]) -> Decorator: ...
def deployment(target: Any = None, /, **options: Any) -> Any:
    """Make a class or function deployable; written with or without parentheses.

    Args:
        target: A class, with or without generated servicers among its bases, or a function
            (``def``, ``async def``, with ``yield`` or without), which is called as it is. A text
            is the option ``name``.
        **options: What is left out has the value in brackets; times are seconds.

            {options}

    Raises:
        OptionError: An option has an unknown name or a wrong value, or does not fit the class.
        KindError: The decorated object is no class and no function.
    """
    return _deployment(target, options)


deployment.__doc__ = (deployment.__doc__ or "").replace("{options}", described_options())


def _deployment(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, str):
        if "name" in options:
            raise OptionError(
                f"@pyserve.deployment has two names, {target!r} and {options['name']!r}; keep one"
            )
        options, target = {**options, "name": target}, None
    check_replicas(options)
    validated = DeploymentOptions.of(options)
    check_placement_group(validated)
    _check_interceptors(validated)

    def decorate(decorated: Any, /) -> Deployment[Any, ...]:
        found = _deployable(decorated)
        check_step_targets(found, validated)
        return Deployment(found, validated)

    return decorate if target is None else decorate(target)


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
        signature = read_signature(target)
    except (TypeError, ValueError):  # Classes written in C need not tell.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{target.__qualname__}.bind: {error}; it takes {signature}") from None
