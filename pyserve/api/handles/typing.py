"""What type checkers know of handles: from the class behind one to the types of its calls.

Python has no type for "the method of that name of that class". So ``handle.remote`` is checked
against ``__call__``, and ``handle[Class.method].remote`` against the method; ``handle.method`` by
its name alone is not. Type variables have defaults, so that a handle may be annotated without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from typing import Protocol, Unpack, overload

    from typing_extensions import ParamSpec
    from typing_extensions import TypeVar as TypeVarWithDefault

    from pyserve.api.handles.choosing import BroadcastResponse
    from pyserve.api.handles.handle import DeploymentHandle
    from pyserve.api.handles.inputs import Input
    from pyserve.api.handles.response import DeploymentResponse
    from pyserve.api.handles.stream import DeploymentResponseGenerator
    from pyserve.config.keywords import HandleKeywords

    Deployed_co = TypeVarWithDefault("Deployed_co", covariant=True, default=Any)
    Result_co = TypeVarWithDefault("Result_co", covariant=True, default=Any)
    Arguments = ParamSpec("Arguments", default=...)
    Result = TypeVar("Result")

    class Untyped:
        """A type that no value has; pyright picks the overload with it when types are unknown."""

    class RemoteCall(Protocol[Arguments, Result_co]):
        """Calls a method of a deployment and returns at once.

        It takes what the method takes. Of the first two arguments each may also be the response
        of another call, or a reference, in place of its value; then the others are not checked.
        """

        @overload
        def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result_co: ...
        @overload
        def __call__(self, first: Input, /, *args: Any, **kwargs: Any) -> Result_co: ...
        @overload
        def __call__(
            self, first: Any, second: Input, /, *args: Any, **kwargs: Any
        ) -> Result_co: ...

    class Remote:
        """``handle.remote``, by what ``__call__`` of the class, or the function, returns."""

        @overload
        def __get__(
            self, handle: DeploymentHandle[Untyped], owner: Any
        ) -> RemoteCall[..., Any]: ...
        @overload
        def __get__(
            self, handle: DeploymentHandle[Callable[Arguments, AsyncIterator[Result]]], owner: Any
        ) -> RemoteCall[Arguments, DeploymentResponseGenerator[Result]]: ...
        @overload
        def __get__(
            self, handle: DeploymentHandle[Callable[Arguments, Iterator[Result]]], owner: Any
        ) -> RemoteCall[Arguments, DeploymentResponseGenerator[Result]]: ...
        @overload
        def __get__(
            self, handle: DeploymentHandle[Callable[Arguments, Awaitable[Result]]], owner: Any
        ) -> RemoteCall[Arguments, DeploymentResponse[Result]]: ...
        @overload
        def __get__(
            self, handle: DeploymentHandle[Callable[Arguments, Result]], owner: Any
        ) -> RemoteCall[Arguments, DeploymentResponse[Result]]: ...
        def __get__(self, handle: Any, owner: Any) -> Any: ...

    class MethodHandle(Protocol[Arguments, Result_co]):
        """A handle of one method: what ``handle[Class.method]`` is."""

        @property
        def remote(self) -> RemoteCall[Arguments, Result_co]:
            """Call the method; see ``DeploymentHandle.remote``."""

        def options(self, **options: Unpack[HandleKeywords]) -> MethodHandle[Arguments, Result_co]:
            """Return a copy with other options; see ``DeploymentHandle.options``."""

        def flush(self) -> BroadcastResponse[None]:
            """Let batches of the method run now; see ``DeploymentHandle.flush``."""

else:
    Deployed_co = TypeVar("Deployed_co", covariant=True)
    Result_co = TypeVar("Result_co", covariant=True)

__all__ = ["Deployed_co", "Result_co"]
