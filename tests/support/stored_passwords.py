"""The passwords of a broker without keys for their encryption, or with some."""

from barnabas.broker.cluster.stored_passwords import StoredPasswords
from barnabas.broker.loop.offload import InlineOffload
from barnabas.config.broker import BrokerConfig


def passwords(**keys: str) -> StoredPasswords:
    """Return them; keys are written with underscores."""
    texts = {name.replace("_", "."): text for name, text in keys.items()}
    return StoredPasswords(BrokerConfig.from_properties(texts), InlineOffload())
