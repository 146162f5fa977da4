"""Circles of imports become fewer: no module, and no folder, joins one that is there today.

**How to lower a limit:** take an import out of a circle (a failing test names them all), run this
file, and write the smaller numbers that it prints into `LIMITS`. Where a large circle falls into
two, `circles` may rise with a `uses` that falls; nothing else raises a limit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grimp
import pytest

from tests.tidy.circles import Module, Uses, beside_each_other, circles, uses_on_circles
from tests.tidy.rust_rules import ROUTER_CRATES
from tests.tidy.rust_uses import Crate
from tests.tidy.tree import Source, read_tree


@dataclass(frozen=True)
class Limit:
    circles: int
    uses: int  # that lie on circles


# Files are one Python module or one Rust file each. Neighbours are files or whole folders, at every
# depth: a circle of two folders need not be one of files.
LIMITS = {
    "python files": Limit(circles=3, uses=8),
    "python beside each other": Limit(circles=2, uses=6),
    "rust files": Limit(circles=0, uses=0),
    "rust beside each other": Limit(circles=0, uses=0),
}


def python_uses(_sources: Sequence[Source]) -> Uses:
    """Read the imports of the package as the contracts of import-linter do."""
    graph = grimp.build_graph("pyserve", exclude_type_checking_imports=True, cache_dir=None)
    return {
        tuple(module.split(".")): {
            tuple(used.split(".")) for used in graph.find_modules_directly_imported_by(module)
        }
        # The entry points of processes wire packages above their own; nothing imports them.
        for module in graph.modules
        if not module.endswith(".__main__")
    }


def rust_uses(sources: Sequence[Source]) -> Uses:
    return {
        module: used
        for crate in (*ROUTER_CRATES, "py")
        for module, used in Crate(crate, sources).uses().items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("language", "read"), [("python", python_uses), ("rust", rust_uses)])
def test_circles_become_fewer(language: str, read: Callable[[Sequence[Source]], Uses]):
    uses = read(read_tree())

    check(f"{language} files", uses)
    check(f"{language} beside each other", beside_each_other(uses))


def check(kind: str, uses: Uses) -> None:
    found, limit = Limit(len(circles(uses)), uses_on_circles(uses)), LIMITS[kind]
    print(kind, found)

    assert found.circles <= limit.circles, _report(kind, uses)
    assert found.uses <= limit.uses, _report(kind, uses)


def _report(kind: str, uses: Uses) -> str:
    lines = [f"{kind}: more than {LIMITS[kind]}"]
    for circle in circles(uses):
        lines.append(f"a circle of {len(circle)}:")
        for module in circle:
            inside = sorted(".".join(used) for used in uses[module] & {*circle})
            lines.append(f"  {'.'.join(module)} -> {', '.join(inside)}")
    return "\n".join(lines)


def graph(edges: str) -> dict[Module, set[Module]]:
    """Read ``"a.x>b a>c"``."""
    uses: dict[Module, set[Module]] = {}
    for edge in edges.split():
        one, other = (tuple(end.split(".")) for end in edge.split(">"))
        uses.setdefault(one, set()).add(other)
        uses.setdefault(other, set())
    return uses


@pytest.mark.parametrize(
    ("edges", "members", "inside"),
    [
        ("a>b b>c a>c", [], 0),
        ("a>b b>a c>a", ["ab"], 2),
        ("a>b b>c c>a b>a d>e e>d c>d", ["abc", "de"], 6),
        ("a>b b>a c>d d>c a>c c>a", ["abcd"], 6),
    ],
)
def test_a_circle_is_what_reaches_itself(edges: str, members: list[str], inside: int):
    uses = graph(edges)

    assert members == ["".join(module[0] for module in circle) for circle in circles(uses)]
    assert inside == uses_on_circles(uses)


def test_folders_can_be_in_a_circle_whose_files_are_in_none():
    uses = graph("p.a.x>p.b.y p.b.z>p.a.w p.a.x>p.a p.b>q.c")

    assert [] == circles(uses)
    assert [[("p", "a"), ("p", "b")]] == circles(beside_each_other(uses))


@pytest.mark.parametrize(
    ("path", "text", "used"),
    [
        ("a.rs", "use crate::b::{self, c::{D, E}};", ["b", "b.c"]),
        ("b/c.rs", "use super::super::a::A;", ["a"]),
        ("b/c.rs", "use super::{B, c};", ["b"]),
        ("b/c.rs", "fn f() { crate::a::g(); self::h(); std::mem::swap(); }", ["a"]),
        ("b/mod.rs", "mod c; fn f() { c::g() }", ["b.c"]),
        ("a.rs", "#[cfg(test)]\nmod tests { use crate::b::B; }\nuse crate::b::c::D;", ["b.c"]),
        ("a.rs", "#[cfg(all(test, loom))]\nmod tests { use crate::b::B; }", []),
        ("b/c.rs", "pub(in crate::b) fn f() {}", []),
        ("a.rs", '// crate::b\nconst TEXT: &str = "crate::b::c";', []),
    ],
)
def test_a_rust_file_uses_what_its_paths_lead_to(path: str, text: str, used: list[str]):
    texts = {"lib.rs": "mod a; mod b;", "a.rs": "", "b/mod.rs": "mod c;", "b/c.rs": "", path: text}
    crate = Crate("x", [Source(f"router_rs/x/src/{name}", texts[name]) for name in texts])
    module = ("x", *path.removesuffix(".rs").removesuffix("/mod").split("/"))

    assert used == sorted(".".join(other[1:]) for other in crate.uses()[module])


def test_a_name_that_is_passed_on_belongs_to_its_file():
    texts = {"lib.rs": "", "a.rs": "use crate::b::D;", "b/mod.rs": "pub use c::D;", "b/c.rs": ""}
    uses = Crate("x", [Source(f"router_rs/x/src/{name}", texts[name]) for name in texts]).uses()

    assert {("x", "b", "c")} == uses["x", "a"]
    assert set() == uses["x", "b"]


def test_a_name_that_is_passed_on_and_used_is_a_use():
    texts = {"lib.rs": "", "b/mod.rs": "pub use c::D; fn f() -> D {}", "b/c.rs": ""}
    uses = Crate("x", [Source(f"router_rs/x/src/{name}", texts[name]) for name in texts]).uses()

    assert {("x", "b", "c")} == uses["x", "b"]


def test_files_of_tests_are_left_out():
    texts = {"lib.rs": "#[cfg(test)]\nmod tests;\n", "tests/mod.rs": "mod a;", "tests/a.rs": ""}
    crate = Crate("x", [Source(f"router_rs/x/src/{name}", texts[name]) for name in texts])

    assert {("x",): set()} == crate.uses()
