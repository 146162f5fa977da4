"""Circles among modules that use each other: where they are, and how many uses lie on them."""

from collections.abc import Mapping, Set

# A module by its path below the root: a file, or a folder that stands for all in it.
Module = tuple[str, ...]
Uses = Mapping[Module, Set[Module]]


def circles(uses: Uses) -> list[list[Module]]:
    """Return the strongly connected components of more than one module, each in order."""
    reached = {module: _reached(module, uses) for module in uses}
    found = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in uses
        if module in reached[module]
    }
    return sorted(map(sorted, found))


def uses_on_circles(uses: Uses) -> int:
    """Count the uses inside of circles.

    Another number than that of the circles: two that are joined are one less. This one rises with
    every use that closes a circle, and falls with every one that is taken out of it.
    """
    return sum(len(uses[module] & {*circle}) for circle in circles(uses) for module in circle)


def beside_each_other(uses: Uses) -> Uses:
    """Let each use be one between the two that lie in one folder, files or folders themselves."""
    result: dict[Module, set[Module]] = {}
    for module, used in uses.items():
        for other in used:
            depth = _common(module, other)
            # A folder and what lies in it are not beside each other.
            if depth < min(len(module), len(other)):
                result.setdefault(module[: depth + 1], set()).add(other[: depth + 1])
                result.setdefault(other[: depth + 1], set())
    return result


def _reached(start: Module, uses: Uses) -> set[Module]:
    """Return what ``start`` uses, and what that uses; itself only by way of others."""
    reached: set[Module] = set()
    open_ends = [start]
    while open_ends:
        fresh = uses[open_ends.pop()] - reached
        reached |= fresh
        open_ends += fresh
    return reached


def _common(one: Module, other: Module) -> int:
    """Return how many folders two modules have in common."""
    pairs = zip(one, other, strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
