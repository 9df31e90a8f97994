"""The value of `sasl.jaas.config`: one login module with its options, in Java's grammar.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="a;b=\\"c\\"";

Tokens are those of the Java parser that Kafka uses: words, which begin with a letter, `_` or `$`;
strings in single or double quotes with C's escapes; and comments, which a `/` outside of quotes
begins. Stricter than Java: a string ends on its line, and an option is given once. Errors give a
position and no text, because the text may be a part of a password.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

PLAIN_LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
)
CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_CONTROLS: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


class JaasError(ValueError):
    """An invalid JAAS configuration; the text gives the place, and nothing that may be secret."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class in Java, its control flag, and its options."""

    name: str
    flag: str
    options: dict[str, str] = field(repr=False)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_jaas(text: str) -> LoginModule:
    """Parse a JAAS configuration with one login module; raise JaasError."""
    tokens = _Tokens(text)
    module = _module(tokens)
    if tokens.next.kind != "end":
        raise tokens.error("JAAS config property contains more than 1 login module")
    return module


@cache
def _token() -> re.Pattern[str]:
    """Return the pattern of a token. It takes 3 ms to compile, and most processes read no login."""
    return re.compile(
        r"""(?P<skip> [\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ | /(?!\*)[^\r\n]* )
          | (?P<word> [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]* )
          | "(?P<double> (?: [^"\\\r\n] | \\[^\r\n] )* )"
          | '(?P<single> (?: [^'\\\r\n] | \\[^\r\n] )* )'
          | (?P<mark> [;=] )""",
        re.VERBOSE | re.DOTALL,
    )


class _Tokens:
    """The tokens of a text, with one token in advance."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._rest = self._read()
        self.next = next(self._rest)

    def take(self, kind: str, otherwise: str) -> str:
        """Return and skip the text of the next token; JaasError if it is of another kind."""
        token = self.next
        if token.kind != kind:
            raise self.error(otherwise)
        self.next = next(self._rest)
        return token.text

    def error(self, problem: str) -> JaasError:
        """Return an error at the next token."""
        before = self._text[: self.next.at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return JaasError(f"{problem} (line {line}, column {column})")

    def _read(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            match = _token().match(self._text, at)
            if match is None:
                self.next = _Token("none", "", at)
                opened = self._text[at] in "\"'"
                problem = "A string is not closed" if opened else "Text has to be quoted"
                raise self.error(f"{problem} in JAAS config")
            kind, text = match.lastgroup or "", match[match.lastgroup or 0]
            if kind == "mark":
                yield _Token(text, text, at)
            elif kind != "skip":
                yield _Token("text", text if kind == "word" else _unescaped(text), at)
            at = match.end()
        yield _Token("end", "", at)


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.take("text", "Login module not specified in JAAS config")
    at_flag = tokens.next
    flag = tokens.take("text", "Login module control flag not specified in JAAS config").lower()
    if flag not in CONTROL_FLAGS:
        tokens.next = at_flag
        raise tokens.error("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    while tokens.next.kind == "text":
        if tokens.next.text in options:
            raise tokens.error("Option specified twice in JAAS config")
        key = tokens.take("text", "")
        tokens.take("=", "Value not specified for a key in JAAS config")
        options[key] = tokens.take("text", "Value not specified for a key in JAAS config")
    tokens.take(";", "JAAS config entry not terminated by semi-colon")
    return LoginModule(name, flag, options)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _CONTROLS.get(escaped, escaped)
