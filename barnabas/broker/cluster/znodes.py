"""The paths and contents of nodes: Kafka's paths and JSON; pure.

Kafka's tools for ZooKeeper can read these nodes. Every decoder raises ZnodeError for content that
is not in the expected form.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from barnabas.protocol.types import uuid_from_text, uuid_text
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import DelegationToken

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
CLUSTER_ID = "/cluster/id"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE = f"{TOKEN_CHANGES}/token_change_"
SCRAM_STAND_INS = "/scram_stand_ins"
"""A secret of the brokers that Kafka does not have."""

CONFIG_TYPES = ("topics", "brokers", "groups", "users", "clients", "ips")
"""Kinds of entities with dynamic configuration."""
DEFAULT_ENTITY = "<default>"
"""Child of /config/brokers with the values for all brokers. No other name is written like this."""

PERSISTENT_PATHS = (
    BROKER_IDS,
    TOPICS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
    CONFIG_CHANGES,
    DELETE_TOPICS,
    LOG_DIR_EVENTS,
    "/cluster",
)
"""Nodes that exist in every cluster from the start."""

_FEATURES_ENABLED = 1
_TOKEN_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_WRONG_CONTENT = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of decoders. JSON that is nested too deeply is a RecursionError."""
T = TypeVar("T")


class ZnodeError(ValueError):
    """A node has content that no broker of ours or of Kafka writes."""


class BrokerEndpoint(NamedTuple):
    listener: str
    security_protocol: str
    host: str
    port: int


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    min_version: int
    max_version: int


class Restart(StrEnum):
    """The way a broker's last run left its logs."""

    CLEAN = "clean"
    """Every log was closed."""
    KILLED = "killed"
    """Not closed, but the machine kept running: written data is still in its page cache."""
    REBOOTED = "rebooted"
    """Not closed, and the machine has rebooted: data that was not flushed is lost."""
    EMPTY = "empty"
    """A log directory is new: the data of an earlier one is lost."""


class BrokerInfo(NamedTuple):
    """A broker's registration. `epoch` is the node's czxid, which differs for each incarnation."""

    id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    epoch: int = -1
    features: Mapping[str, FeatureRange] = MappingProxyType({})
    restart: Restart = Restart.CLEAN


class TopicAssignment(NamedTuple):
    topic_id: bytes
    replicas: Mapping[int, tuple[int, ...]]
    """Broker ids by partition, the preferred leader first."""
    adding: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """Replicas that a reassignment adds."""
    removing: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """Replicas that a reassignment removes."""


NEVER_JUDGED = -1
"""Value below the zxid of every registration."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A decision about one partition; `partition_epoch` is the version of its node.

    `doubtful` has the only member of the ISR, if its machine may have lost records that it
    acknowledged: only an unclean election can make it leader. The decision considered registrations
    up to the zxid `judged_until`. A later one may have waited in the controller's queue.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = field(default=0, compare=False)
    doubtful: tuple[int, ...] = ()
    judged_until: int = field(default=NEVER_JUDGED, compare=False)


class ProducerIdBlock(NamedTuple):
    broker_id: int
    first: int
    last: int


def broker_ids(names: Iterable[str]) -> list[int]:
    """Return the broker ids among the children of /brokers/ids, in order; skip other names."""
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def is_state_path(path: str) -> bool:
    """Return whether the path is that of a partition's state."""
    return path.startswith(f"{TOPICS}/") and path.endswith("/state")


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(kind: str, name: str) -> str:
    """Return the path of an entity."""
    return f"{CONFIG}/{config_entity(kind, name)}"


def config_entity(kind: str, name: str) -> str:
    """Return the path of an entity below /config."""
    return f"{kind}/{config_node(kind, name)}"


def config_node(kind: str, name: str) -> str:
    """Return the child of /config/<kind> for an entity. Names of groups and users may have any
    character, so some are percent-encoded."""
    return name if kind == "brokers" else _sanitized(name)


def _sanitized(name: str) -> str:
    """Percent-encode the characters that Kafka's Sanitizer encodes."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, "").replace("~", "%7E")


def config_name(node: str) -> str:
    """Return the entity name of a child of /config/<kind>."""
    return unquote(node)


def guarded(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return a decoder that raises ZnodeError for each way in which content can be wrong."""

    @wraps(decode)
    def guarded(data: bytes) -> T:
        try:
            return decode(data)
        except _WRONG_CONTENT as cause:
            raise ZnodeError(f"{decode.__name__}: {data[:200]!r}: {cause!r}") from cause

    return guarded


def compact_json(value: Mapping[str, Any]) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def encode_broker(info: BrokerInfo, timestamp_ms: int) -> bytes:
    first = info.endpoints[0]
    return compact_json(
        {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "jmx_port": -1,
            "timestamp": str(timestamp_ms),
            "endpoints": [f"{each.listener}://{_uri(each)}" for each in info.endpoints],
            "listener_security_protocol_map": {
                each.listener: each.security_protocol for each in info.endpoints
            },
            "rack": info.rack,
            "features": {name: each._asdict() for name, each in info.features.items()},
            "restart": info.restart,
        }
    )


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerInfo:
    try:
        value = json.loads(data)
        protocols = value["listener_security_protocol_map"]
        endpoints = []
        for each in value["endpoints"]:
            listener, _, address = each.partition("://")
            host, _, port = address.rpartition(":")
            endpoint = BrokerEndpoint(listener, protocols[listener], host.strip("[]"), int(port))
            endpoints.append(endpoint)
        features = {
            name: FeatureRange(int(each["min_version"]), int(each["max_version"]))
            for name, each in value.get("features", {}).items()
        }
        restart = Restart(value.get("restart", Restart.CLEAN))
        return BrokerInfo(broker_id, tuple(endpoints), value.get("rack"), epoch, features, restart)
    except _WRONG_CONTENT as cause:
        raise ZnodeError(f"registration of broker {broker_id}: {data[:200]!r}") from cause


def encode_topic(topic: TopicAssignment) -> bytes:
    return compact_json(
        {
            "version": 3,
            "topic_id": uuid_text(topic.topic_id),
            "partitions": _by_text(topic.replicas),
            "adding_replicas": _by_text(topic.adding),
            "removing_replicas": _by_text(topic.removing),
        }
    )


@guarded
def decode_topic(data: bytes) -> TopicAssignment:
    value = json.loads(data)
    return TopicAssignment(
        uuid_from_text(value["topic_id"]),
        dict(sorted(_by_number(value["partitions"]).items())),
        _by_number(value.get("adding_replicas", {})),
        _by_number(value.get("removing_replicas", {})),
    )


def encode_state(state: LeaderAndIsr) -> bytes:
    """Return Kafka's form, with additional fields of ours only where they have a value."""
    return compact_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **({"doubtful": list(state.doubtful)} if state.doubtful else {}),
            **({"judged_until": state.judged_until} if state.judged_until >= 0 else {}),
        }
    )


def decode_state(data: bytes, version: int) -> LeaderAndIsr:
    try:
        value = json.loads(data)
        return LeaderAndIsr(
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            isr=tuple(value["isr"]),
            controller_epoch=value["controller_epoch"],
            partition_epoch=version,
            doubtful=tuple(value.get("doubtful", ())),
            judged_until=value.get("judged_until", NEVER_JUDGED),
        )
    except _WRONG_CONTENT as cause:
        raise ZnodeError(f"partition state: {data[:200]!r}") from cause


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return compact_json({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


@guarded
def decode_controller(data: bytes) -> int:
    return int(json.loads(data)["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


@guarded
def decode_controller_epoch(data: bytes) -> int:
    return int(data)


def encode_config(values: Mapping[str, str]) -> bytes:
    return compact_json({"version": 1, "config": dict(values)})


def decode_config(data: bytes) -> dict[str, str]:
    try:
        values = json.loads(data)["config"]
        return {str(key): str(value) for key, value in values.items()}
    except _WRONG_CONTENT as cause:
        # Passwords may be in it, so the error repeats nothing.
        what = f"{len(data)} bytes that are no configuration: {type(cause).__name__}"
        raise ZnodeError(what) from None


def encode_stand_ins(secret: bytes) -> bytes:
    return compact_json({"version": 1, "secret": secret.hex()})


@guarded
def decode_stand_ins(data: bytes) -> bytes:
    secret = bytes.fromhex(json.loads(data)["secret"])
    if not secret:
        raise ValueError("empty")
    return secret


def token_path(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def is_token_id(name: str) -> bool:
    """Return whether a name can be the id of a token: Kafka's are uuids in base64."""
    return _TOKEN_ID.fullmatch(name) is not None


def encode_token(token: DelegationToken) -> bytes:
    """Return the node of a delegation token, without its HMAC."""
    return compact_json(
        {
            "version": 3,
            "owner": _sanitized(str(token.owner)),
            "tokenRequester": _sanitized(str(token.requester)),
            "renewers": [_sanitized(str(each)) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode_token(token_id: str, data: bytes, hmac: bytes) -> DelegationToken:
    """Return the delegation token of a node. Before version 3 its owner has asked for it."""
    try:
        value = json.loads(data)
        if value["version"] not in (1, 2, 3) or value["tokenId"] != token_id:
            raise ValueError
        owner = _principal(value["owner"])
        return DelegationToken(
            id=token_id,
            owner=owner,
            requester=_principal(value["tokenRequester"]) if value["version"] > 2 else owner,
            renewers=tuple(map(_principal, value["renewers"])),
            issued_ms=int(value["issueTimestamp"]),
            max_ms=int(value["maxTimestamp"]),
            expires_ms=int(value["expiryTimestamp"]),
            hmac=hmac,
        )
    except _WRONG_CONTENT as cause:
        raise ZnodeError(f"delegation token {token_id}: {data[:200]!r}: {cause!r}") from cause


def _principal(text: str) -> Principal:
    return Principal.parse(unquote(text))


def encode_config_change(entity: str) -> bytes:
    """Encode the change of an entity, which is its path below /config."""
    return compact_json({"version": 2, "entity_path": entity})


@guarded
def decode_config_change(data: bytes) -> str:
    """Return the path of the entity below /config: its kind, and its node, which may have
    slashes."""
    entity: str = json.loads(data)["entity_path"]
    if not entity.partition("/")[2]:
        raise ValueError("entity missing")
    return entity


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return compact_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


@guarded
def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    value = json.loads(data)
    return ProducerIdBlock(value["broker"], int(value["block_start"]), int(value["block_end"]))


def encode_features(finalized: Mapping[str, int], epochs_before: int = 0) -> bytes:
    """`epochs_before` is the highest feature epoch of the store that the levels were copied
    from."""
    more = {"epochs_before": epochs_before} if epochs_before else {}
    return compact_json(
        {"version": 2, "status": _FEATURES_ENABLED, "features": dict(finalized), **more}
    )


@guarded
def decode_features(data: bytes) -> dict[str, int]:
    """Return levels by feature; empty if features are disabled."""
    value = json.loads(data)
    if value["status"] != _FEATURES_ENABLED:
        return {}
    return {str(name): int(level) for name, level in value["features"].items()}


@guarded
def decode_epochs_before(data: bytes) -> int:
    return int(json.loads(data).get("epochs_before", 0))


def encode_cluster_id(cluster_id: str) -> bytes:
    return compact_json({"version": "1", "id": cluster_id})


@guarded
def decode_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def encode_log_dir_event(broker_id: int) -> bytes:
    return compact_json({"version": 1, "broker": broker_id, "event": 1})


@guarded
def decode_log_dir_event(data: bytes) -> int:
    return int(json.loads(data)["broker"])


def _by_text(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(index): list(ids) for index, ids in replicas.items()}


def _by_number(replicas: Mapping[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(ids) for index, ids in replicas.items()}


def _uri(endpoint: BrokerEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
