"""Broker keys of transactions and of their coordinator."""

from typing import Final

from barnabas.config.declare import boolean, integer, short
from barnabas.config.key import Update
from barnabas.config.table import Table

_DAY_MS: Final = 24 * 60 * 60 * 1000


class TransactionKeys(Table):
    """Keys of transactional ids, the transaction topic, and verification by leaders."""

    add_partitions_to_txn_retry_backoff_max_ms = integer(
        100,
        "Maximum time that a leader retries while the previous transaction is still "
        "completing (Produce since v12).",
        at_least=0,
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        20, "Maximum pause between these retries; the first pauses are shorter.", at_least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10_000, "Interval of the check for transactions that have timed out.", at_least=1
    )
    transaction_blocking_max_wait_ms = integer(
        100,
        "Maximum time that a request which begins a transaction waits for the markers of the "
        "previous one before it gets CONCURRENT_TRANSACTIONS (KIP-609); 0 disables waiting.",
        at_least=0,
        at_most=10_000,
    )
    transaction_fence_older_connections = boolean(
        True,
        "Refuse a request of the older transaction protocol (before KIP-890) over an older "
        "connection than the latest one that its producer has used (KAFKA-17754).",
    )
    transaction_max_timeout_ms = integer(
        900_000, "Maximum transaction timeout that a producer may request.", at_least=1
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Let leaders verify the first record of a transaction with the coordinator (KIP-890).",
        update=Update.CLUSTER_WIDE,
    )
    transaction_refuse_future_markers = boolean(
        False,
        "Refuse a marker that an operator sends (WriteTxnMarkers on a listener for clients) with "
        "an epoch of the producer or of its coordinator above the last one that the partition "
        "knows: it would fence them. `barnabas transactions repair` sends such markers.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3_600_000, "Interval of the check for expired transactional ids.", at_least=1
    )
    transaction_state_log_load_buffer_size = integer(
        5 << 20, "Bytes per read when a coordinator loads its partition.", at_least=1
    )
    transaction_state_log_min_isr = integer(
        2,
        "`min.insync.replicas` of the transaction topic. A broker on the embedded metadata "
        "store, which is alone, creates it with 1.",
        at_least=1,
    )
    transaction_state_log_num_partitions = integer(
        50, "Partitions of the transaction topic; must not be changed once it exists.", at_least=1
    )
    transaction_state_log_replication_factor = short(
        3,
        "Replication factor of the transaction topic. A broker on the embedded metadata "
        "store, which is alone, creates it with 1; `serve --processes` without ZooKeeper sets 1.",
        at_least=1,
    )
    transaction_state_log_segment_bytes = integer(
        104_857_600,
        "Segment size of the transaction topic; small segments load faster.",
        at_least=1 << 20,
    )
    transaction_two_phase_commit_enable = boolean(
        False,
        "Serve two-phase commit (KIP-939): a producer may ask for transactions without a timeout, "
        "and keep an open transaction over its restart. Needs `transaction.version` 2, and every "
        "broker of this release or later.",
    )
    transactional_id_expiration_ms = integer(
        7 * _DAY_MS,
        "Time that an unused transactional id is kept; must exceed `transaction.max.timeout.ms`.",
        at_least=1,
    )
