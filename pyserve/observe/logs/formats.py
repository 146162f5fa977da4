"""The forms of lines: text, and JSON for programs.

Clients choose some of the text (paths, ids, texts of exceptions). In neither form can they add a
line of their own, or control characters that a terminal obeys.

A long line that is an object of JSON comes from an application with a logger of its own. A cut
through it would leave no object, and programs that read logs would lose its level and its fields.
So a log file gets it whole, and a terminal an object with shorter values.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX
from pyserve.config.logs import EncodingType
from pyserve.request import CURRENT, Source

_FORMAT = "%(levelname).1s %(asctime)s %(name)s: %(message)s"
INDENT = "  "
"""The beginning of further lines of a record."""
# Characters that a terminal obeys or may take for the end of a line (C0 and C1 of ECMA-48,
# separators and directions of Unicode), and lone surrogates, which cannot be encoded. Not tabs and
# line feeds.
_UNWRITTEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Attributes of every record; others came with ``extra=``, or are about the request.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_OF_REQUEST = ("request_id", "trace_id")
_GIVEN_IDS = tuple(f"extra_{name}" for name in _OF_REQUEST)
# The beginning of a record in JSON.
_RECORD = '{"asctime": "'
# A line of a replica, as its launcher hands it on.
_OUTPUT = re.compile(r"\[(?P<source>[^\]]+)\] (?P<line>.*)", re.DOTALL)


class TextFormatter(logging.Formatter):
    r"""Makes lines of records: only the first of each begins at the margin, as records do.

    Control characters are written as in Python's source (``\x1b``).

    Args:
        additional: Attributes of records that stand after the message.
    """

    def __init__(self, additional: Sequence[str] = ()) -> None:
        super().__init__(_FORMAT)
        self._additional = additional

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the first line: what it is, when, who, for which request, what."""
        given = [name for name in _GIVEN_IDS if hasattr(record, name)]
        names = dict.fromkeys((*self._additional, *given))
        added = {name: text_of(getattr(record, name, None)) for name in names}
        more = "".join(f" {name}={text}" for name, text in added.items())
        return (
            f"{level_letter(record)} {record.asctime} {record.name}{request_mark(record)}: "
            f"{record.message}{more}"
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of one record, those of its traceback included."""
        try:
            text = super().format(record)
        except Exception as error:
            text = super().format(readable(record, error))
        text = _UNWRITTEN.sub(_escape, text)
        return text.replace("\n", f"\n{INDENT}")


class JsonFormatter(logging.Formatter):
    """Makes one line with a JSON object of each record.

    Args:
        facts: What each object has besides.
        additional: Attributes of records that it has too.
        line_bytes_max: Values of a longer line are cut, since what cuts the line itself would leave
            no object; ``None``: there is no limit.
    """

    def __init__(
        self,
        facts: Mapping[str, str],
        additional: Sequence[str] = (),
        *,
        line_bytes_max: int | None = None,
    ) -> None:
        super().__init__()
        self._facts = dict(facts)
        self._additional = additional
        self._line_bytes_max = line_bytes_max

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON has not is written as its text."""
        try:
            return self._line(record)
        except Exception as error:
            return self._line(readable(record, error))

    def _line(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "asctime": self.formatTime(record),
            "levelname": level_name(record),
            "name": record.name,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            **self._facts,
        }
        if record.exc_info:
            # What makes records of failures has taken our own frames out.
            values["exc_text"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            values["stack_info"] = self.formatStack(record.stack_info)
        for name in self._additional:
            values.setdefault(name, getattr(record, name, None))
        # The record's own are those that readers look for, and come first.
        whole = {**values, **self._extra(record, values)}
        line = json_of(whole)
        if self._line_bytes_max is None or len(line) <= self._line_bytes_max:
            return line
        return shortened(whole, line, self._line_bytes_max)

    def _extra(self, record: logging.LogRecord, values: Mapping[str, object]) -> dict[str, object]:
        """Return what a record has besides, where the mesh's facts leave the names."""
        found: dict[str, object] = {}
        given = vars(record)
        for name, value in given.items():
            if name in _STANDARD or (name in _OF_REQUEST and not value):
                continue
            key = other_name(name, {*values, *given}) if name in self._facts else name
            found[key] = value
        return found


def formatter_of(
    encoding: str, facts: Mapping[str, str], *, line_bytes_max: int | None = None
) -> logging.Formatter:
    """Return what makes lines of that encoding; ``facts`` and the limit are for JSON."""
    if encoding != EncodingType.JSON:
        return TextFormatter()
    return JsonFormatter(facts, line_bytes_max=line_bytes_max)


def said(text: str, encoding: str, component: str, level: int = logging.INFO) -> str:
    """Return the line by which a process of a mesh says something, in the encoding of its logs.

    Args:
        text: What it says.
        encoding: Of the logs.
        component: Which process it is.
        level: Of the record.
    """
    if encoding != EncodingType.JSON:
        return f"pyserve: warning: {text}" if level == logging.WARNING else f"pyserve: {text}"
    values = {"name": "pyserve", "msg": text, "levelno": level}
    record = logging.makeLogRecord({**values, "levelname": logging.getLevelName(level)})
    return JsonFormatter({"component": component}).format(record)


def output_as_json(line: str) -> str:
    """Return a line that a process of the mesh has printed, as an object of one line.

    A line of a replica that is an object already stays as it is. If a record stands behind what was
    printed without a line's end, as progress bars are, it gets a line of its own.
    """
    found = _OUTPUT.fullmatch(line)
    source, text = ("", line) if found is None else (found["source"], found["line"])
    if text.startswith("{") and _is_object(text):
        return text
    known = {"replica": source} if source else {}
    record = ""
    if (at := text.find(_RECORD)) > 0 and _is_object(text[at:]):
        text, record = text[:at], f"\n{text[at:]}"
    printed = {"levelname": "INFO", "name": "output", "message": text, **known}
    return json.dumps(printed) + record


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


# Formats records that are hard to write: values whose `str` raises or JSON lacks, colours.
#
# User code logs such records when it fails, and just then a lost line would be missed.

# Escaped backslashes and whole pairs of surrogates, which stay, and other surrogates.
_ESCAPES = re.compile(r"(\\\\|\\ud[89ab]..\\ud[c-f]..)|\\ud[89a-f]..")
# Deeper containers, and those that contain themselves, are written as "...". Arbitrary; json's own
# encoder fails somewhat below the interpreter's limit, a thousand.
_DEPTH_MAX = 32
# Of each value of a line that is too long. Arbitrary; in JSON a character may take twelve bytes.
_CUT_CHARACTERS = (6000, 2000, 500, 100)
# The key that says so where an object has too many.
_FIELDS_CUT = "..."
_STANDARD_NAMES = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
# Escape sequences that colour text at a terminal (ECMA-48, 8.3.117).
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def level_name(record: logging.LogRecord) -> str:
    """Return the name of a record's level, without colours that code has put into the names.

    ``logging.addLevelName`` changes them for the whole process.
    """
    name = record.levelname
    if "\x1b" not in name:
        return name
    return _STANDARD_NAMES.get(record.levelno) or _COLOUR.sub("", name)


def level_letter(record: logging.LogRecord) -> str:
    """Return the letter for the level in a line of text."""
    return next(filter(str.isalnum, level_name(record)), "?")


def text_of(value: object, make: Callable[[object], str] = str) -> str:
    """Return the text that ``make`` gives for a value, or a placeholder if it raises."""
    try:
        return make(value)
    except Exception:
        return f"<{type(value).__name__} without a text>"


def readable(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    """Return a record of the same event whose message says why the record's own cannot be had."""
    copied = copy.copy(record)
    arguments = f" with {text_of(record.args, repr)}" if record.args else ""
    copied.msg = (
        f"{text_of(record.msg)}{arguments} makes no message: {type(error).__name__}: "
        f"{text_of(error)} ({record.pathname}:{record.lineno})"
    )
    copied.args = None
    return copied


def json_of(values: Mapping[str, object]) -> str:
    """Return an object of JSON; what JSON has not is its text, which is so for keys too.

    A lone surrogate becomes the text of its escape: strict readers refuse the escape itself (RFC
    8259, 8.2), and would lose the line.
    """
    try:
        line = json.dumps(values, default=str, allow_nan=False)
    except Exception:
        line = json.dumps(_plain(values, frozenset()), default=str)
    if "\\ud" not in line:
        return line
    return _ESCAPES.sub(lambda found: found[1] or "\\" + found[0], line)


def shortened(values: Mapping[str, object], line: str, line_bytes_max: int) -> str:
    """Return an object of JSON whose line is not longer, with long values cut in the middle.

    Args:
        values: What the object has.
        line: The object as it is.
        line_bytes_max: The limit; a line is ASCII.
    """
    texts = {
        key: each if isinstance(each, str) else json_of({"": each}) for key, each in values.items()
    }
    for characters_max in _CUT_CHARACTERS:
        cut = {
            key: _without_middle(texts[key], characters_max)
            if len(texts[key]) > characters_max
            else each
            for key, each in values.items()
        }
        line = json_of(cut)
        if len(line) <= line_bytes_max:
            return line
    # Too many values: those of the record come first.
    kept = cut
    while len(line) > line_bytes_max and kept:
        kept = dict(list(kept.items())[: len(kept) * 3 // 4])
        line = json_of({**kept, _FIELDS_CUT: f"{len(cut) - len(kept)} fields cut"})
    return line


def _without_middle(text: str, characters_max: int) -> str:
    """Shorten a text; a traceback says most where it ends."""
    half = characters_max // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters cut) ... {text[-half:]}"


def _plain(value: object, above: frozenset[int]) -> object:
    if isinstance(value, Mapping | list | tuple):
        if len(above) >= _DEPTH_MAX or id(value) in above:
            return "..."
        above |= {id(value)}
        if isinstance(value, Mapping):
            return {_key(key): _plain(each, above) for key, each in tuple(value.items())}
        return [_plain(each, above) for each in value]
    try:
        json.dumps(value, default=str, allow_nan=False)
    except Exception:
        return text_of(value)
    return value


def _key(key: object) -> str | bool | None:
    return key if key is None or isinstance(key, str | bool) else text_of(key)


class LongLine(str):
    """The line that a terminal gets, which is short enough for it.

    Attributes:
        whole: The object as it was printed.
        prefix: What stands before the object, in the text too.
    """

    __slots__ = ("prefix", "whole")

    whole: str
    prefix: str

    def after(self, prefix: str) -> LongLine:
        """Return the same line with a prefix."""
        return _made(prefix + self, self.whole, prefix + self.prefix)


def long_line(text: str) -> LongLine | None:
    """Return the line for a long text; ``None`` if it is not an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return _made(shortened(found, text, OUTPUT_LINE_BYTES_MAX), text, "")


def with_prefix(prefix: str, line: str) -> str:
    """Return a line with a prefix; a long one stays what it is."""
    return line.after(prefix) if isinstance(line, LongLine) else prefix + line


def _made(text: str, whole: str, prefix: str) -> LongLine:
    line = LongLine(text)
    line.whole, line.prefix = whole, prefix
    return line


# What a text line shows of an id: clients choose theirs. More than any common id has.
_SHOWN_MAX = 128
_NOT_SHOWN = re.compile(r"[^!-~]|[\[\]%]")
# version, trace id, parent id, flags (w3.org/TR/trace-context, "traceparent Header").
_TRACE_ID = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")
_NO_TRACE = "0" * 32


class _Known(str):
    """An id that the filter has found, as opposed to one that code gave by ``extra=``.

    A record passes the filters of several handlers, which may run in other contexts.
    """

    __slots__ = ()


class RequestFilter(logging.Filter):
    """Gives each record ``request_id`` and ``trace_id``, ``""`` outside of a request.

    It belongs to handlers, because those see the records of every logger, in the context of the
    code that logs. Values that a record has by ``extra=`` stay outside of a request; of a call's
    record they become ``extra_request_id`` and ``extra_trace_id``.

    Args:
        of_deployments_only: Requests that no deployment handles (between processes of a mesh) are
            no requests.
    """

    def __init__(self, *, of_deployments_only: bool = False) -> None:
        super().__init__()
        self._of_deployments_only = of_deployments_only

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record; every one is to be written."""
        known = vars(record)
        if not (_is_known(known, "request_id") and _is_known(known, "trace_id")):
            source = CURRENT.get()
            _complete(known, "request_id", self._request_id(source))
            _complete(known, "trace_id", trace_id_of(source))
        return True

    def _request_id(self, source: Source | None) -> str:
        if source is None:
            return ""
        request = source.request()
        return request.request_id if request.deployment or not self._of_deployments_only else ""


def _is_known(values: dict[str, Any], name: str) -> bool:
    return isinstance(values.get(name), _Known)


def _complete(values: dict[str, Any], name: str, found: str) -> None:
    if _is_known(values, name):
        return
    given = values.get(name, "")
    if found and not (isinstance(given, str) and given in ("", found)):
        values[other_name(name, values)] = given
    if found or name not in values:
        values[name] = _Known(found)


def other_name(name: str, taken: Container[str]) -> str:
    """Return the name under which a value of ``extra=`` stays where the mesh's has its own."""
    while name in taken:
        name = f"extra_{name}"
    return name


def trace_id_of(source: Source | None) -> str:
    """Return the id of the sampled trace that this code belongs to, ``""`` without one."""
    # A process that traces has imported it; in other processes it is not imported.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        found = trace.get_current_span().get_span_context()
        if found.is_valid and found.trace_flags.sampled:
            return f"{found.trace_id:032x}"
    call = getattr(source, "call", None)
    return trace_in(getattr(call, "traceparent", ""))


def trace_in(traceparent: str) -> str:
    """Return the id of the trace if it is sampled, ``""`` if not."""
    found = _TRACE_ID.fullmatch(traceparent)
    sampled = found is not None and int(found[2], 16) & 1 and found[1] != _NO_TRACE
    return found[1] if found is not None and sampled else ""


def request_mark(record: logging.LogRecord) -> str:
    """Return what a text line says of the request, ``""`` for a record outside of one."""
    names = {"": "request_id", "trace=": "trace_id"}
    found = [
        f"{mark}{shown_id(value)}"
        for mark, name in names.items()
        if (value := getattr(record, name, ""))
    ]
    return f" [{' '.join(found)}]" if found else ""


def shown_id(value: object) -> str:
    """Return an id as text lines have it, in which nothing can be taken for something else."""
    return _NOT_SHOWN.sub(_percent_escape, str(value)[:_SHOWN_MAX])


def _percent_escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
