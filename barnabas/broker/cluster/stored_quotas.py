"""The quotas in the metadata store: every broker follows them, in Kafka 3.9's nodes (KIP-546).

`/config/users/<user>`, `/config/clients/<client id>`, `/config/ips/<address>`, and
`/config/users/<user>/clients/<client id>`; the node `<default>` is that of all others. Users have
their SCRAM credentials next to their quotas.
"""

import math
from collections.abc import Mapping
from typing import Final

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs, FollowedEntities, Values
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.limits.quotas import DEFAULT, ClientQuotas, Entity, Quota
from barnabas.security.acl.rules import host_key

KINDS: Final = ("users", "clients", "ips")
_CLIENTS: Final = "clients"
_KEYS: Final = {each.value: each for each in Quota}
_log = get_logger(__name__)


class StoredQuotas:
    """The quotas of the cluster. They are in effect in `quotas`."""

    def __init__(self, configs: Configs, quotas: ClientQuotas) -> None:
        self._configs = configs
        self.quotas = quotas

    async def start(self) -> None:
        """Read all quotas, and follow their changes. Raises StoreError."""
        await FollowedEntities(self._configs, KINDS, self._install).start()

    async def alter(self, entity: Entity, limits: Mapping[Quota, float | None]) -> None:
        """Set limits of an entity, and remove those that are None. Raises StoreError."""

        async def changed(values: Values) -> Values:
            values = {**values}
            for quota, limit in limits.items():
                if limit is None:
                    values.pop(quota.value, None)
                else:
                    values[quota.value] = f"{limit:.0f}" if limit.is_integer() else repr(limit)
            return values

        await self._configs.alter_entity(_path(entity), changed)

    def _install(self, path: str, values: Values) -> None:
        entity = _entity(path)
        if entity is not None:
            self.quotas.limit(entity, _limits(path, values))


def _limits(path: str, values: Mapping[str, str]) -> Mapping[Quota, float]:
    limits = {}
    for key, quota in _KEYS.items():
        if key in values:
            try:
                limit = float(values[key])
            except ValueError:
                limit = 0.0
            if 0 < limit < math.inf:
                limits[quota] = limit
            else:
                _log.error("quota ignored", entity=path, key=key, value=values[key])
    return limits


def _path(entity: Entity) -> str:
    """Return the path of an entity below /config."""
    if entity.ip is not None:
        return f"ips/{_node(entity.ip)}"
    of_client = f"{_CLIENTS}/{_node(entity.client_id or DEFAULT)}"
    if entity.user is None:
        return of_client
    of_user = f"users/{_node(entity.user)}"
    return of_user if entity.client_id is None else f"{of_user}/{of_client}"


def _entity(path: str) -> Entity | None:
    """Return the entity of a path below /config; None if it cannot have quotas."""
    match path.split("/"):
        case ["users", user]:
            return Entity(_name(user))
        case ["users", user, "clients", client_id]:
            return Entity(_name(user), _name(client_id))
        case ["clients", client_id]:
            return Entity(client_id=_name(client_id))
        case ["ips", ip]:
            return Entity(ip=host_key(_name(ip)))
    return None


def _node(name: str) -> str:
    return znodes.DEFAULT_ENTITY if name == DEFAULT else znodes.config_node("users", name)


def _name(node: str) -> str:
    return DEFAULT if node == znodes.DEFAULT_ENTITY else znodes.config_name(node)
