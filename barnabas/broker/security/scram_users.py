"""The SCRAM users of the cluster: every broker follows them in the metadata store (KIP-84).

Their credentials are in `/config/users`, with the quotas of users, as in Kafka 3.9.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs, FollowedEntities, Values, entity_name
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import Create, MetadataStore, NodeExists
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism

USERS: Final = "users"
Credentials = Mapping[ScramMechanism, ScramCredential]
_NOTHING: Final[Credentials] = MappingProxyType({})
_log = get_logger(__name__)


async def stored_secret(store: MetadataStore, new: bytes) -> bytes:
    """Return the cluster's secret of `StandIns`; it is `new` if there was none.

    All brokers have the same, so that none of them gives away who exists. Raises StoreError, and
    ZnodeError.
    """
    with suppress(NodeExists):
        await store.multi([Create(znodes.SCRAM_STAND_INS, znodes.encode_stand_ins(new))])
    data, _ = await store.get(znodes.SCRAM_STAND_INS)
    return znodes.decode_stand_ins(data)


class ScramUsers:
    """The credentials of all users, as this broker knows them."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._users: dict[str, Credentials] = {}

    async def start(self) -> None:
        """Read all users, and follow their changes. Raises StoreError."""
        await FollowedEntities(self._configs, [USERS], self._install).start()

    def find(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's credential for a mechanism; None without one."""
        return self.credentials(name).get(mechanism)

    def credentials(self, name: str) -> Credentials:
        """Return a user's credentials; none for an unknown user."""
        return self._users.get(name, _NOTHING)

    @property
    def names(self) -> Iterable[str]:
        """The users who have credentials."""
        return self._users

    async def put(self, name: str, credential: ScramCredential) -> None:
        """Store a credential in place of the user's one for its mechanism. Raises StoreError."""

        async def changed(values: Values) -> Values:
            return {**values, credential.mechanism.value: credential.encode()}

        await self._configs.alter(USERS, name, changed)

    async def delete(self, name: str, mechanism: ScramMechanism) -> None:
        """Delete a user's credential, if there is one. Raises StoreError."""

        async def changed(values: Values) -> Values:
            return {key: text for key, text in values.items() if key != mechanism.value}

        await self._configs.alter(USERS, name, changed)

    def _install(self, path: str, values: Values) -> None:
        name = entity_name(path)
        if name is None:
            return
        credentials = _decoded(name, values)
        if credentials:
            self._users[name] = credentials
        else:
            self._users.pop(name, None)


def _decoded(name: str, values: Mapping[str, str]) -> Credentials:
    credentials = {}
    for mechanism in ScramMechanism:
        if mechanism.value in values:
            try:
                text = values[mechanism.value]
                credentials[mechanism] = ScramCredential.decode(mechanism, text)
            except ValueError as error:
                _log.error("user's credential ignored", user=name, reason=str(error))
    return credentials
