"""Keys of one listener alone: `listener.name.<listener>.<key>` stands over `<key>` there."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_PREFIXED: Final = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<key>.+)")
_OF_A_LISTENER: Final = frozenset({"max.connections"})
"""Those that Kafka has for each listener and that have an effect here."""


class ListenerKey(NamedTuple):
    """A key with its prefix taken off."""

    listener: str
    key: str


def parse_listener_key(name: str) -> ListenerKey | None:
    """None where `name` is no key of a listener. The prefix is in lower case, as in Kafka."""
    found = _PREFIXED.fullmatch(name)
    if found is None or found["key"] not in _OF_A_LISTENER or name != name.lower():
        return None
    return ListenerKey(found["listener"].upper(), found["key"])


def listener_keys(names: Iterable[str], listeners: Iterable[str]) -> Mapping[str, ListenerKey]:
    """Those of `names` that are keys of one of these listeners."""
    known = set(listeners)
    parsed = ((name, parse_listener_key(name)) for name in names)
    return {name: key for name, key in parsed if key is not None and key.listener in known}
