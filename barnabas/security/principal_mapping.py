"""`ssl.principal.mapping.rules` (KIP-371): from the name in a certificate to a principal's name.

Rules are matched in time linear to the name, because the peer chooses the name: by RE2, or by
Python for the frequent `^CN=(.*)$`, so that certificates do not need the package google-re2.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.config.key import ConfigError

KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
    r"|)\s*(?:,|$)",
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"\^?[\w=, -]*\(\.\*\)\$?", re.ASCII)
"""Patterns that Python matches as RE2 does, in linear time: the start of the name, and the rest."""
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)", re.DOTALL)

Mapper = Callable[[str], str | None]
"""A function from a distinguished name to the name of a principal; None if no rule applies."""


class _Rule(NamedTuple):
    pattern: Any
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java's replaceAll, each match inside the name is replaced: a lazy pattern may match
        # less than the whole name now.
        parts, end = [], 0
        for found in self.pattern.finditer(name):
            parts += [name[end : found.start()], self._expand(found)]
            end = found.end()
        text = "".join(parts) + name[end:]
        return {"L": text.lower(), "U": text.upper()}.get(self.case, text)

    def _expand(self, found: Any) -> str:
        def value(reference: re.Match[str]) -> str:
            if reference["literal"] is not None:
                return reference["literal"]
            # The longest number that is a group; the digits behind it are text.
            digits = reference["group"]
            for length in range(len(digits), 0, -1):
                if int(digits[:length]) <= self.pattern.groups:
                    return (found.group(int(digits[:length])) or "") + digits[length:]
            return reference[0]

        return _REFERENCE.sub(value, self.replacement)


def parse_rules(text: str) -> Mapper:
    """Parse rules, separated by commas; the first that matches a whole name applies to it.

    Raise ConfigError for a malformed rule, and for a pattern that RE2 does not know.
    """
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ConfigError.invalid(KEY, text, f"Invalid rule: `{text[at:].strip()}`")
        at = found.end()
        if found["default"] is not None:
            rules.append(None)
        elif found["pattern"] is not None:
            rules.append(_Rule(_compile(found["pattern"]), found["replacement"], found["case"]))

    def principal_name(name: str) -> str | None:
        for rule in rules:
            mapped = name if rule is None else rule.apply(name)
            if mapped is not None:
                return mapped
        return None

    return principal_name


def _compile(pattern: str) -> Any:
    if _PLAIN.fullmatch(pattern):
        return re.compile(pattern)
    try:
        import re2
    except ImportError:
        raise ConfigError(
            f"{KEY} needs the package google-re2 for {pattern}: pip install 'barnabas[re2]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else reason
        raise ConfigError.invalid(KEY, pattern, f"RE2 does not know this pattern: {text}") from None
