"""The list of APIs: key, module and versions.

A module of `barnabas/protocol/messages/` declares the messages of an API, and one of the same name
in `barnabas/broker/handlers/` answers them. A module is imported when it is needed.
"""

from functools import cache
from typing import Any, Final, NamedTuple

from barnabas.protocol.late_import import import_late
from barnabas.protocol.schema import MAX_REQUEST_ELEMENTS, Api


class Listed(NamedTuple):
    """An API in the list."""

    module: str
    versions: range
    """The versions that the codec can encode and decode."""
    served: range
    """The versions that a broker serves."""
    clients: range
    """The versions that a broker serves to clients of a cluster, where brokers have a listener of
    their own. A broker that is not in a cluster serves them all, if it serves any."""


def _listed(
    module: str, versions: range, *, served_since: int = 0, clients: range | None = None
) -> Listed:
    served = range(max(served_since, versions.start), versions.stop)
    return Listed(module, versions, served, served if clients is None else clients)


NO_CLIENTS: Final = range(0)
FIRST_OWN_KEY: Final = 10_000
"""The keys from here on are ours; those of Kafka are below 100."""
APIS: Final = {
    0: _listed("produce", range(3, 14)),
    1: _listed("fetch", range(4, 19)),
    2: _listed("list_offsets", range(1, 12)),
    3: _listed("metadata", range(14)),
    4: _listed("leader_and_isr", range(8), served_since=5, clients=NO_CLIENTS),
    5: _listed("stop_replica", range(5), served_since=3, clients=NO_CLIENTS),
    6: _listed("update_metadata", range(9), served_since=7, clients=NO_CLIENTS),
    7: _listed("controlled_shutdown", range(1, 4), served_since=2, clients=NO_CLIENTS),
    8: _listed("offset_commit", range(2, 11)),
    9: _listed("offset_fetch", range(1, 11)),
    10: _listed("find_coordinator", range(7)),
    11: _listed("join_group", range(10)),
    12: _listed("heartbeat", range(5)),
    13: _listed("leave_group", range(6)),
    14: _listed("sync_group", range(6)),
    15: _listed("describe_groups", range(7)),
    16: _listed("list_groups", range(6)),
    17: _listed("sasl_handshake", range(2)),
    18: _listed("api_versions", range(6)),
    19: _listed("create_topics", range(2, 8)),
    20: _listed("delete_topics", range(1, 7)),
    21: _listed("delete_records", range(3)),
    22: _listed("init_producer_id", range(7)),
    23: _listed("offset_for_leader_epoch", range(2, 5)),
    24: _listed("add_partitions_to_txn", range(6), clients=range(4)),
    25: _listed("add_offsets_to_txn", range(5)),
    26: _listed("end_txn", range(6)),
    27: _listed("write_txn_markers", range(1, 3)),
    28: _listed("txn_offset_commit", range(7)),
    29: _listed("describe_acls", range(4), served_since=1),
    30: _listed("create_acls", range(4), served_since=1),
    31: _listed("delete_acls", range(4), served_since=1),
    32: _listed("describe_configs", range(1, 5)),
    33: _listed("alter_configs", range(3)),
    34: _listed("alter_replica_log_dirs", range(1, 3)),
    35: _listed("describe_log_dirs", range(1, 6)),
    36: _listed("sasl_authenticate", range(3)),
    37: _listed("create_partitions", range(4)),
    38: _listed("create_delegation_token", range(1, 4)),
    39: _listed("renew_delegation_token", range(1, 3)),
    40: _listed("expire_delegation_token", range(1, 3)),
    41: _listed("describe_delegation_token", range(1, 4)),
    42: _listed("delete_groups", range(4)),
    43: _listed("elect_leaders", range(3)),
    44: _listed("incremental_alter_configs", range(2)),
    45: _listed("alter_partition_reassignments", range(2)),
    46: _listed("list_partition_reassignments", range(1)),
    47: _listed("offset_delete", range(1)),
    48: _listed("describe_client_quotas", range(2)),
    49: _listed("alter_client_quotas", range(2)),
    50: _listed("describe_user_scram_credentials", range(1)),
    51: _listed("alter_user_scram_credentials", range(1)),
    56: _listed("alter_partition", range(2, 4), clients=NO_CLIENTS),
    57: _listed("update_features", range(3)),
    58: _listed("envelope", range(1), clients=NO_CLIENTS),
    60: _listed("describe_cluster", range(3)),
    61: _listed("describe_producers", range(1)),
    65: _listed("describe_transactions", range(1)),
    66: _listed("list_transactions", range(3)),
    67: _listed("allocate_producer_ids", range(1), clients=NO_CLIENTS),
    68: _listed("consumer_group_heartbeat", range(2)),
    69: _listed("consumer_group_describe", range(2)),
    74: _listed("list_config_resources", range(2)),
    75: _listed("describe_topic_partitions", range(1)),
    FIRST_OWN_KEY: _listed("expect_producers", range(1), clients=NO_CLIENTS),
}
"""Every API by key.

The header of a request is decoded with it: a broker closes the connection of a request whose key is
missing here, even if `barnabas/broker/routes.py` has a row for it.
"""
KEYS: Final = {listed.module: key for key, listed in APIS.items()}
"""The keys by module."""


def declare(
    module: str,
    *,
    flexible: int | None,
    request: type[Any],
    response: type[Any],
    max_elements: int = MAX_REQUEST_ELEMENTS,
) -> Api:
    """Return the API of a module of messages; `module` is its `__name__`."""
    key = KEYS[module.rpartition(".")[2]]
    name = request.__name__.removesuffix("Request")
    return Api(key, name, APIS[key].versions, flexible, request, response, max_elements)


@cache
def api(key: int) -> Api:
    """Return the API of a key; import its module on the first call. KeyError for an unknown key.

    Raises ReleaseReplaced.
    """
    found: Api = import_late(f"barnabas.protocol.messages.{APIS[key].module}").API
    return found
