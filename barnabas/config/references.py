"""Values that stand for other values, and that mean nothing before they are replaced.

`${PROVIDER:PATH:KEY}` and `${PROVIDER:KEY}` are references to config providers (KIP-421), which
`barnabas/security/config_providers.py` replaces in the files of brokers and clients. Kafka leaves a
reference that no provider replaces as it is, so that its text becomes a password.
"""

import re
from typing import Final

REFERENCE: Final = re.compile(
    r"\$\{(?P<provider>[A-Za-z0-9_.-]+):((?P<path>[^}]*?):)?(?P<key>[^}]*?)\}"
)
_VARIABLE: Final = re.compile(r"\$\{\w+(:?[-+=?][^}]*)?\}")
"""A variable of a shell or of Compose."""
_TEMPLATE: Final = re.compile(r"[$<>{}]|%[^%]+%")
FILL_IN: Final = "It is a template: write the name or the address of the host in its place"


def is_template(address: str) -> bool:
    """Return whether an address is a template, such as `PLAINTEXT://${HOST_IP}:9092`."""
    return _TEMPLATE.search(address) is not None


def unreplaced(text: str, *, secret: bool) -> str:
    """Return what in a value should have been replaced, for an error; empty if nothing should.

    A variable is allowed in what is no secret. The words have no part of a value that may be a
    password.
    """
    if "${" not in text:
        return ""
    if _VARIABLE.search(text):
        return (
            "a variable in ${...}, which nothing replaces here: write the secret, or a reference "
            "to a config provider, such as ${env:VARIABLE}"
            if secret
            else ""
        )
    found = REFERENCE.search(text)
    if found is None:
        return ""
    return (
        f"a reference to the config provider {found['provider']}, which nothing replaces here: "
        "name it in config.providers, in the file of a broker or of a client"
    )
