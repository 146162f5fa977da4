"""Rules that look at several files together."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from tests.tidy import rust
from tests.tidy.rust_rules import BINDING, ROUTER_CRATES
from tests.tidy.tree import Finding, Source


def _crates(*names: str) -> tuple[str, ...]:
    return tuple(f"pyserve-router-{name}" for name in names)


_ALL = ("py", *ROUTER_CRATES)
# What each crate may not depend on, in any section of its manifest. Circles are refused by cargo.
_FORBIDDEN_EDGES = {
    **{f"router_rs/{crate}/Cargo.toml": (*_crates("py"), "pyo3") for crate in ROUTER_CRATES},
    "router_rs/core/Cargo.toml": (
        *_crates(*_ALL), "tokio", "hyper", "h2", "pyo3", "rand", "socket2", "rustls", "libc",
    ),
    "router_rs/protocol/Cargo.toml": (
        *_crates(*set(_ALL) - {"core"}), "tokio", "hyper", "pyo3", "socket2", "rustls", "libc",
    ),
    "router_rs/call/Cargo.toml": (*_crates(*set(_ALL) - {"protocol"}), "tokio", "hyper", "h2"),
    "router_rs/llm/Cargo.toml": (
        *_crates(*set(_ALL) - {"protocol"}), "tokio", "hyper", "h2", "socket2", "rustls", "libc",
    ),
    "router_rs/arena/Cargo.toml": (*_crates(*_ALL), "tokio", "hyper", "h2", "http", "libc"),
    "router_rs/wire/Cargo.toml": (
        *_crates(*set(_ALL) - {"arena", "protocol"}),
        "tokio", "hyper", "h2", "socket2", "rustls", "libc",
    ),
    "router_rs/io/Cargo.toml": (*_crates(*set(_ALL) - {"core"}), "hyper", "h2", "http", "pyo3"),
    "router_rs/transcode/Cargo.toml": (
        *_crates("upstream", "py"), "hyper", "h2", "pyo3", "socket2", "rustls",
    ),
    "router_rs/upstream/Cargo.toml": (*_crates("core", "call", "transcode"), "hyper"),
    "router_rs/dispatch/Cargo.toml": (*_crates("py"), "hyper", "pyo3", "socket2", "rustls"),
    "benchmarks/loadgen/Cargo.toml": (*_crates(*_ALL), "pyo3"),
    "benchmarks/meshload/Cargo.toml": (*_crates(*_ALL), "pyo3"),
}  # fmt: skip
_DEPENDENCY_SECTIONS = ("dependencies", "dev-dependencies", "build-dependencies")
_DATA_FOLDERS = ("scenario", "scenarios", "testdata")
_GENERATED_WITH = {
    "grpcio": r"GRPC_GENERATED_VERSION = '([\d.]+)'",
    "protobuf": r"# Protobuf Python Version: ([\d.]+)",
}
_CODE_SUFFIXES = (".py", ".rs", ".md", ".js", ".mjs", ".pyi")
_ARCHITECTURE = "ARCHITECTURE.md"
_STATE_PAGE = "docs/internals/process-state.md"
# `Router`, `Router::offer`, `Mesh.Join`: names of types begin with a capital and go on small.
_NAMED_TYPE = re.compile(r"`([A-Z][A-Za-z]*[a-z][A-Za-z]*)(?:(?:::|\.)\w+)?`")
_DEFINITION = re.compile(r"\b(?:class|struct|enum|trait|type|service|message) ([A-Z]\w+)")
# What lives as long as the process: statics that change and locals of threads in Rust, the
# `PROCESS_…` objects and rebound names of modules in Python.
_RUST_GLOBAL = re.compile(
    r"\bthread_local!|\bstatic [A-Z_]+: (?:\w+::)*(?:Mutex|RwLock|OnceLock|RefCell)\b"
)
_PYTHON_GLOBAL = re.compile(r"^PROCESS_\w+\b[^=\n]*= |^ +global \w", re.MULTILINE)
# Compiled for tests, fuzzing and measuring only.
_WITHOUT_GLOBALS = ("fuzzing.rs", "stopwatch.rs")


def crate_edges(sources: Sequence[Source]) -> Iterator[Finding]:
    """The crates depend on each other in one direction only."""
    for source in sources:
        forbidden = _FORBIDDEN_EDGES.get(source.path, ())
        for name in _dependencies(tomllib.loads(source.text)) if forbidden else ():
            if name in forbidden:
                yield Finding(source.path, 1, f"must not depend on {name}")


def _dependencies(manifest: Mapping[str, object]) -> Iterator[str]:
    for key, value in manifest.items():
        if key in _DEPENDENCY_SECTIONS and isinstance(value, Mapping):
            for name, options in value.items():
                yield options.get("package", name) if isinstance(options, Mapping) else name
        elif key == "target" and isinstance(value, Mapping):
            for section in value.values():
                yield from _dependencies(section)


def data_files_are_used(sources: Sequence[Source]) -> Iterator[Finding]:
    """A scenario or a test's data file is named, itself or by its folder, by some test."""
    code = [source for source in sources if source.path.endswith((".py", ".rs"))]
    for source in sources:
        folders = source.path.split("/")[:-1]
        if source.path.endswith(_CODE_SUFFIXES) or not set(_DATA_FOLDERS) & set(folders):
            continue
        stem, folder = source.name.rpartition(".")[0], folders[-1]
        wanted = re.compile(rf"""["'/](?:{re.escape(stem)}(?:\.\w+)?|{re.escape(folder)}/?)["'/]""")
        if not any(wanted.search(test.text) for test in code):
            yield Finding(source.path, 1, "a data file that no test names")


def generated_code_fits_the_bounds(sources: Sequence[Source]) -> Iterator[Finding]:
    """Our code can be imported with the lowest versions that pyproject.toml allows."""
    bounds = next(
        (_lower_bounds(source.text) for source in sources if source.path == "pyproject.toml"), {}
    )
    for source in sources:
        for package, pattern in _GENERATED_WITH.items():
            for version in re.findall(pattern, source.text) if source.generated else ():
                if _numbers(bounds.get(package, "0")) < _numbers(version):
                    message = f"needs {package}>={version}, pyproject.toml allows less"
                    yield Finding(source.path, 1, message)


def _lower_bounds(manifest: str) -> dict[str, str]:
    dependencies = tomllib.loads(manifest)["project"]["dependencies"]
    found = (re.match(r"([\w.-]+)>=([\d.]+)", line) for line in dependencies)
    return {match[1]: match[2] for match in found if match}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def named_types_exist(sources: Sequence[Source]) -> Iterator[Finding]:
    """A type that ARCHITECTURE.md names is defined somewhere."""
    code = (source for source in sources if source.path.endswith((".py", ".rs", ".proto")))
    defined = {name for source in code for name in _DEFINITION.findall(source.text)}
    for source in sources:
        for number, line in enumerate(source.lines if source.path == _ARCHITECTURE else (), 1):
            for name in _NAMED_TYPE.findall(line):
                if name not in defined:
                    yield Finding(source.path, number, f"there is no type {name}")


def globals_are_named(sources: Sequence[Source]) -> Iterator[Finding]:
    """State of the process is where its page says, and nowhere else."""
    text = next((source.text for source in sources if source.path == _STATE_PAGE), "")
    named = re.findall(r"`([\w/]+\.(?:rs|py))`", text)
    for source in sources:
        if has_globals(source) and not any(f"/{source.path}".endswith(f"/{n}") for n in named):
            message = f"state of the process that {_STATE_PAGE} does not name: pass it instead"
            yield Finding(source.path, 1, message)


def has_globals(source: Source) -> bool:
    """Whether a module of the product keeps something that belongs to the process."""
    if source.under("pyserve") and source.path.endswith(".py"):
        return _PYTHON_GLOBAL.search(source.text) is not None
    crates = (BINDING, *(f"router_rs/{crate}" for crate in ROUTER_CRATES))
    in_crate = source.under(*(f"{crate}/src" for crate in crates))
    if not in_crate or source.name in _WITHOUT_GLOBALS:
        return False
    return _RUST_GLOBAL.search(rust.code_only(source.text)) is not None


PROJECT_RULES = (
    crate_edges,
    data_files_are_used,
    generated_code_fits_the_bounds,
    named_types_exist,
    globals_are_named,
)
