"""Broker keys of transactions and of their coordinator."""

from typing import Final

from barnabas.config.declare import boolean, integer, short
from barnabas.config.key import Update
from barnabas.config.table import Table

_DAY_MS: Final = 24 * 60 * 60 * 1000


class TransactionKeys(Table):
    """Transactional ids, the topic that remembers them, and how leaders check with it."""

    add_partitions_to_txn_retry_backoff_max_ms = integer(
        100,
        "How long a leader goes on asking while the transaction before is not over (Produce from "
        "v12).",
        at_least=0,
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        20, "Longest pause before a leader asks again; the first ones are shorter.", at_least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10_000, "How often transactions are looked for whose time is over.", at_least=1
    )
    transaction_blocking_max_wait_ms = integer(
        100,
        "How long a call that begins a transaction waits for the markers of the one before, in "
        "place of CONCURRENT_TRANSACTIONS (KIP-609); 0 switches waiting off.",
        at_least=0,
        at_most=10_000,
    )
    transaction_fence_older_connections = boolean(
        True,
        "Whether a request of the older transaction protocol is refused on an older connection "
        "than one its producer has used since (KAFKA-17754).",
    )
    transaction_max_timeout_ms = integer(
        900_000, "Longest transaction timeout that a producer may ask for.", at_least=1
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Whether a leader asks the coordinator before the first record of a transaction (KIP-890).",
        update=Update.CLUSTER_WIDE,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3_600_000, "How often expired transactional ids are looked for.", at_least=1
    )
    transaction_state_log_load_buffer_size = integer(
        5 << 20, "Bytes read at a time when a coordinator loads its partition.", at_least=1
    )
    transaction_state_log_min_isr = integer(
        2,
        "min.insync.replicas of the transaction topic. A broker on the embedded metadata store, "
        "which is alone, makes it with 1.",
        at_least=1,
    )
    transaction_state_log_num_partitions = integer(
        50, "Partitions of the transaction topic; not to be changed once it exists.", at_least=1
    )
    transaction_state_log_replication_factor = short(
        3,
        "Replicas of the transaction topic. A broker on the embedded metadata store, which is "
        "alone, makes one.",
        at_least=1,
    )
    transaction_state_log_segment_bytes = integer(
        104_857_600,
        "Segment size of the transaction topic; small ones load faster.",
        at_least=1 << 20,
    )
    transactional_id_expiration_ms = integer(
        7 * _DAY_MS,
        "How long a transactional id is remembered that nobody uses; more than "
        "transaction.max.timeout.ms.",
        at_least=1,
    )
