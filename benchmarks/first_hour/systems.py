"""Who is compared: how each is installed, started, asked and misused. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

PROGRAMS = Path(__file__).parent / "programs"
MODULE = "sentiment"

# What every service says, and what is put in its place.
CONSTRUCTOR = 'self.good = {"good", "great"}'
MISSING_FILE = "words.txt"
RAISING_CONSTRUCTOR = f'self.good = set(open("{MISSING_FILE}").read().split())'
# An empty text has no words.
RAISING_LINE = "/ len(words)"
LABEL = '"positive"'
RIGHT = {"text": "a good day"}
ANSWER = {"label": "positive", "score": 1 / 3}
EMPTY = {"text": ""}
WRONG_TYPE = {"text": 7}
WRONG_FIELD = {"txt": "a good day"}


@dataclass(frozen=True)
class System:
    """One way to serve the same small model.

    In commands and programs ``{port}`` stands for the port.

    Attributes:
        name: Of its files and its environment.
        title: What people call it.
        requirement: What is installed, pinned; "": a wheel of this tree.
        start: The command of its documentation.
        option: An option as it is written in the service, and misspelt.
        reload: The command that reloads, None where there is none.
        path: Where the method is called.
        page: Where a page to try it is, below the same address; None: its terminal says where.
        port: How the service itself says its port, and where it has to be another one.
        after: What the service says besides, so that it can have another port; not counted.
        after_shows: What is in the lines that this brings into the terminal; nor are they.
        variables: Of its environment, beside those of everybody.
    """

    name: str
    title: str
    requirement: str
    start: tuple[str, ...]
    option: tuple[str, str]
    reload: tuple[str, ...] | None = None
    path: str = "/"
    page: str | None = "/docs"
    port: tuple[str, str] = ("", "")
    after: str = ""
    after_shows: str = ""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def program(self) -> str:
        """The service, as a user writes it."""
        return (PROGRAMS / f"{self.name}_service.py").read_text(encoding="utf-8")

    @property
    def caller(self) -> str:
        """A program that calls it by what the system has for that; "": it has nothing."""
        file = PROGRAMS / f"{self.name}_caller.py"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def at(self, port: int, program: str) -> str:
        """Return a form of the service that listens at ``port``, if it says so itself."""
        written, other = self.port
        placed = program.replace(written, other.format(port=port)) if written else program
        return placed + self.after.format(port=port)


_PYSERVE = ("pyserve", "run", f"{MODULE}:Sentiment", "--address", "127.0.0.1:{port}")
_BENTOML = ("bentoml", "serve", f"{MODULE}:Sentiment", "--host", "127.0.0.1", "--port", "{port}")
_RAY = ("serve", "run", f"{MODULE}:app")
_FASTAPI = (f"{MODULE}.py", "--host", "127.0.0.1", "--port", "{port}")

SYSTEMS = (
    System(
        name="pyserve",
        title="pyserve",
        requirement="",
        start=_PYSERVE,
        option=("max_ongoing_requests=16", "max_ongoing_request=16"),
        reload=(*_PYSERVE, "--reload"),
        page=None,
        # Its page has a fixed port, which a mesh of this machine may have.
        variables={"PYSERVE_METRICS_PORT": "0"},
    ),
    System(
        name="litserve",
        title="LitServe",
        requirement="litserve==0.2.19",
        start=("python", f"{MODULE}.py"),
        option=("timeout=16", "timeuot=16"),
        path="/predict",
        port=("port=8000", "port={port}"),
    ),
    System(
        name="bentoml",
        title="BentoML",
        requirement="bentoml==1.4.40",
        start=_BENTOML,
        option=("traffic=", "trafic="),
        reload=(*_BENTOML, "--reload"),
        path="/score",
        page="/",
        variables={"BENTOML_DO_NOT_TRACK": "True"},
    ),
    System(
        name="ray",
        title="Ray Serve",
        requirement="ray[serve]==2.60.0",
        start=_RAY,
        option=("max_ongoing_requests=16", "max_ongoing_request=16"),
        reload=(*_RAY, "--reload"),
        # `serve run` has no option for it. At the end, so that mistakes above come first.
        after=(
            '\nimport sys\n\nif sys.argv[0].endswith("serve"):\n'
            '    serve.start(http_options={{"port": {port}}})\n'
        ),
        after_shows="New http_options/controller_options will not be applied",
        variables={"RAY_USAGE_STATS_ENABLED": "0"},
    ),
    System(
        name="mosec",
        title="mosec",
        requirement="mosec==0.9.8",
        start=("python", f"{MODULE}.py", "--address", "127.0.0.1", "--port", "{port}"),
        option=("num=1", "nun=1"),
        path="/inference",
        page="/openapi/swagger/",
    ),
    System(
        name="fastapi",
        title="FastAPI",
        requirement="fastapi[standard]==0.165.0",
        start=("fastapi", "run", *_FASTAPI),
        option=("summary=", "sumary="),
        reload=("fastapi", "dev", *_FASTAPI),
    ),
)
