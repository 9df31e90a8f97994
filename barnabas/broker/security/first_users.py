"""Users and rules in the metadata store before any broker serves (KIP-900)."""

import random
from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.registration import missing_nodes
from barnabas.broker.cluster.stored_passwords import StoredPasswords
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.store.metadata_store import MetadataStore, NodeExists
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.security.acl.rules import AclBinding
from barnabas.security.sasl.credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    new_salt,
)

_NO_BROKER = -1


async def add_users(
    store: MetadataStore,
    passwords: Mapping[str, str],
    mechanisms: Iterable[ScramMechanism],
    *,
    iterations: int = MIN_ITERATIONS,
    replace: bool = True,
) -> None:
    """Store the credentials of users, in place of those that exist if `replace`. Raises
    StoreError."""
    users = await stored_users(store)
    bits = random.SystemRandom().getrandbits
    for name, password in passwords.items():
        for mechanism in mechanisms:
            if not replace and users.find(name, mechanism) is not None:
                continue
            salt = new_salt(bits)
            await users.put(
                name,
                ScramCredential.of_password(mechanism, password.encode(), salt, iterations),
            )


async def stored_users(store: MetadataStore) -> ScramUsers:
    """Return the users in a store, which gets the nodes of a cluster. Raises StoreError."""
    await _create_nodes(store)
    config = BrokerConfig()
    passwords = StoredPasswords(config, InlineOffload())
    users = ScramUsers(Configs(store, DynamicConfig(config), _NO_BROKER, passwords))
    await users.start()
    return users


async def add_rules(store: MetadataStore, rules: Sequence[AclBinding]) -> None:
    """Store access control rules. Raises StoreError, and ValueError for an invalid rule."""
    await _create_nodes(store)
    acls = ClusterAcls(store)
    await acls.start(lambda: None)
    try:
        for error in await acls.create(rules):
            if error is not None:
                raise ValueError(error.message)
    finally:
        acls.stop()


async def _create_nodes(store: MetadataStore) -> None:
    while ops := await missing_nodes(store, znodes.PERSISTENT_PATHS):
        try:
            await store.multi(ops)
        except NodeExists:
            # Another broker creates them too.
            continue
