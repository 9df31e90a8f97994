"""Values that stand for other values, and that are of no use before they are replaced."""

import re
from typing import Final

from barnabas.config.key import ConfigError

_TEMPLATE: Final = re.compile(r"[$<>{}]|%[^%]+%")


def refuse_template(key: str, address: str) -> None:
    """Raise ConfigError if an address is a template, such as `PLAINTEXT://${HOST_IP}:9092`."""
    if _TEMPLATE.search(address):
        reason = "It is a template: write the name or the address of the host in its place"
        raise ConfigError.invalid(key, address, reason)
