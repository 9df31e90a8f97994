"""Regular expressions of clients: RE2, with bounds on the time and memory that one takes.

RE2 matches in time linear in the text for every expression. Python's `re` does not, so it is no
substitute. The package google-re2 is the extra `re2`; it is imported with the first expression.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Protocol

NOT_INSTALLED: Final = "needs google-re2 on the broker: pip install 'barnabas[re2]'"

_MAX_BYTES: Final = 4096
"""The longest expression: of 16 KB, RE2 compiles some in 0.1 s and needs 10 ms for each text."""
_MAX_COSTLY: Final = 128
"""Classes such as \\pL and counted repeats in one expression. Each takes 0.1 ms to compile."""
_MAX_MEMORY: Final = 256 << 10
"""The bytes of a compiled expression and of its automaton. google-re2 keeps the last 128."""

_RE2J_DESCRIPTIONS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Kafka's words (of RE2/J) for errors of RE2."""


class ExpressionError(Exception):
    """An expression that is invalid or too large; the text is for its client."""


class NotInstalledError(Exception):
    """The package google-re2 is missing."""


class _Compiled(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def takes_patterns() -> bool:
    """Return whether the package is installed; it is not imported."""
    return find_spec("re2") is not None


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    text: str
    _compiled: _Compiled

    def matches(self, text: str) -> bool:
        """Return whether the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None

    def matching(self, texts: Iterable[str]) -> frozenset[str]:
        """Return the texts that it matches. Some expressions take 2 ms for a text of 249 letters,
        most take 2 us."""
        return frozenset(filter(self.matches, texts))


def compiled(text: str) -> Expression:
    """Compile an expression. Raises ExpressionError and NotInstalledError."""
    try:
        import re2
    except ModuleNotFoundError as error:
        raise NotInstalledError from error
    if len(text) > _MAX_BYTES or len(text.encode(errors="replace")) > _MAX_BYTES:
        raise ExpressionError(f"it has more than {_MAX_BYTES} bytes")
    if sum(map(text.count, ("\\p", "\\P", "{"))) > _MAX_COSTLY:
        raise ExpressionError(f"it has more than {_MAX_COSTLY} classes \\p and counted repeats")
    options = re2.Options()
    # The client gets the error; it does not belong in the broker's log.
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    # Groups are not asked for, and RE2 can spend seconds and 500 MB to find thousands of them.
    options.never_capture = True
    try:
        return Expression(text, re2.compile(text, options))
    except UnicodeEncodeError as error:
        raise ExpressionError("invalid UTF-8") from error
    except re2.error as error:
        raise ExpressionError(_description(error.args[0])) from error


def _description(error: bytes | str) -> str:
    reason = error.decode(errors="replace") if isinstance(error, bytes) else error
    # RE2 names the part of the expression that is wrong, as RE2/J does not.
    head = reason.partition(":")[0]
    return _RE2J_DESCRIPTIONS.get(head, head)
