"""Enough of Rust's syntax to find functions, words and comments: no parser, a scanner."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# What may hold text that looks like code, longest opening first. A quote after an identifier
# character or without a closing quote is a lifetime, not a character.
_OPAQUE = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\(?:u\{[0-9a-fA-F_]+\}|x[0-9a-fA-F]{2}|.)|[^'\\\n])')
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_FUNCTION = re.compile(r"\bfn\s+([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Function:
    name: str
    line: int
    length: int  # lines from `fn` to the closing brace


def code_only(text: str) -> str:
    """Blank out comments, strings and characters; every offset and line stays where it was."""
    pieces: list[str] = []
    position = 0
    while found := _OPAQUE.search(text, position):
        end = _block_end(text, found.start()) if found.lastgroup == "block" else found.end()
        pieces += [text[position : found.start()], re.sub(r"[^\n]", " ", text[found.start() : end])]
        position = end
    return "".join([*pieces, text[position:]])


def _block_end(text: str, start: int) -> int:
    depth = 0
    for edge in _BLOCK_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def functions(text: str) -> Iterator[Function]:
    """Find every function that has a body, nested ones and those of tests included."""
    code = code_only(text)
    for found in _FUNCTION.finditer(code):
        body = _body(code, found.end())
        if body is None:
            continue
        first_line = code.count("\n", 0, found.start()) + 1
        yield Function(found.group(1), first_line, code.count("\n", found.start(), body[1]) + 1)


def _body(code: str, start: int) -> tuple[int, int] | None:
    """Return where the braces of the body open and close; None for a declaration."""
    depth = 0  # of brackets and parentheses: `[u8; 4]` in a signature does not end it
    for position in range(start, len(code)):
        letter = code[position]
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == ";" and depth == 0:
            return None
        elif letter == "{" and depth == 0:
            return position, matching_brace(code, position)
    return None


def matching_brace(code: str, start: int) -> int:
    depth = 0
    for position in range(start, len(code)):
        if code[position] == "{":
            depth += 1
        elif code[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return len(code) - 1
