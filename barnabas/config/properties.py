"""Sources of properties: `server.properties` files and the environment of a container."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.config.key import ConfigError

_COMMENT: Final = re.compile(r"[ \t\f]*[#!]")
_PAIR: Final = re.compile(r"(?s)((?:[^\\=: \t\f]|\\.)*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)")
_ESCAPE: Final = re.compile(r"(?s)\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_IN_NAME: Final = re.compile(r"[\\=:#! ]|[^ -~]")
_IN_VALUE: Final = re.compile(r"\\|^ |[^ -~]")

_OF_THE_IMAGE: Final = frozenset(
    {
        "KAFKA_CLUSTER_ID",
        "KAFKA_DEBUG",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""Environment variables that configure a container image and its JVM; they are no broker keys."""
_OF_A_SERVICE: Final = re.compile(
    r"KAFKA_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)=|PORT_[0-9]+_(TCP|UDP)(_\w+)?=|PORT=(tcp|udp)://)"
)
"""Variables that Kubernetes sets in each pod for a service with the name kafka or kafka-..."""


def parse_properties(text: str) -> dict[str, str]:
    """Parse the format of java.util.Properties; the last value of a repeated key counts."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        found = _PAIR.fullmatch(line)
        assert found is not None, "the pattern matches every line"
        properties[_unescape(found[1])] = _unescape(found[2])
    return properties


def property_line(name: str, value: str) -> str:
    """Return the line of a file with this key: `parse_properties` reads it back."""
    return f"{_IN_NAME.sub(_escape, name)}={_IN_VALUE.sub(_escape, value)}"


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys given as `KAFKA_LOG_DIRS` or `KAFKA_CFG_LOG_DIRS`, as in Kafka's images.

    `_` stands for a dot, `__` for an underscore, `___` for a dash. The images write each value into
    a file behind its key. So it is read as a line of a file, except that a line break without a
    backslash, which begins another key there, is part of the value here.
    """
    properties: dict[str, str] = {}
    for variable, value in sorted(environment.items()):
        if (
            variable.startswith("KAFKA_")
            and variable not in _OF_THE_IMAGE
            and not _OF_A_SERVICE.match(f"{variable}={value}")
        ):
            name = variable.removeprefix("KAFKA_").removeprefix("CFG_").lower()
            lines = list(_logical_lines(f"={value}"))
            lines[0] = lines[0][1:].lstrip(" \t\f")
            properties[_key_of(name)] = "\n".join(map(_unescape, lines))
    return properties


def cluster_id(environment: Mapping[str, str]) -> str:
    """Return the cluster id given to a container for a new cluster, or an empty text.

    Kafka's images take `CLUSTER_ID`, others `KAFKA_CLUSTER_ID` or `KAFKA_KRAFT_CLUSTER_ID`. Raise
    ConfigError if it is not one word.
    """
    names = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
    found = (environment.get(name, "").strip() for name in names)
    text = next(filter(None, found), "")
    if not re.fullmatch("[!-~]*", text):
        raise ConfigError.invalid("CLUSTER_ID", text, "Expected letters, digits, - and _")
    return text


def _key_of(name: str) -> str:
    return re.sub("_{1,3}", lambda run: ("", ".", "_", "-")[len(run[0])], name)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines; continued lines are joined."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or _COMMENT.match(line)):
            continue
        pending += line
        # A backslash at the end continues the line unless it is escaped itself.
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _escape(found: re.Match[str]) -> str:
    if found[0].isascii() and found[0].isprintable():
        return f"\\{found[0]}"
    return re.sub("....", r"\\u\g<0>", found[0].encode("utf-16-be").hex())


def _character(escape: str) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)
