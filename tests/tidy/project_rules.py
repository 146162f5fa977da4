"""Rules that look at several files together."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from tests.tidy.tree import Finding, Source

# What each crate may not depend on, in any section of its manifest: core <- net <- py.
_FORBIDDEN_EDGES = {
    "router_rs/core/Cargo.toml": (
        "pyserve-router-net", "pyserve-router-py", "tokio", "hyper", "h2", "pyo3", "rand",
        "socket2", "rustls", "libc",
    ),
    "router_rs/net/Cargo.toml": ("pyserve-router-py", "pyo3"),
    "benchmarks/loadgen/Cargo.toml": (
        "pyserve-router-core", "pyserve-router-net", "pyserve-router-py", "pyo3",
    ),
    "benchmarks/meshload/Cargo.toml": (
        "pyserve-router-core", "pyserve-router-net", "pyserve-router-py", "pyo3",
    ),
}  # fmt: skip
_DEPENDENCY_SECTIONS = ("dependencies", "dev-dependencies", "build-dependencies")
_DATA_FOLDERS = ("scenario", "scenarios", "testdata")
_GENERATED_WITH = {
    "grpcio": r"GRPC_GENERATED_VERSION = '([\d.]+)'",
    "protobuf": r"# Protobuf Python Version: ([\d.]+)",
}
_CODE_SUFFIXES = (".py", ".rs", ".md", ".js", ".mjs", ".pyi")


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
    """Whoever installs the lowest versions that pyproject.toml allows can import our code."""
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


PROJECT_RULES = (crate_edges, data_files_are_used, generated_code_fits_the_bounds)
