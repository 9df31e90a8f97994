"""Two-phase commit without a producer (KIP-939): end transactions that other processes wrote.

A driver keeps the prepared transaction of a transactional id, decides, and ends it:

    kept = await keep_transaction(cluster, "sink-1", 60_000)
    if kept.ongoing is not None:
        await end_transaction(cluster, "sink-1", kept.client, committed=True)
"""

from barnabas.client.cluster import Cluster
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transactions.requests import InitialisedProducer, TransactionCalls

__all__ = ["InitialisedProducer", "end_transaction", "init_producer_id", "keep_transaction"]


async def init_producer_id(
    cluster: Cluster,
    transactional_id: str,
    timeout_ms: int,
    *,
    two_phase: bool = False,
    keep_prepared: bool = False,
) -> InitialisedProducer:
    """Take over a transactional id: the producers that had it before are fenced.

    Its open transaction is aborted, or kept with `keep_prepared`; with `two_phase` it has no
    timeout. CONCURRENT_TRANSACTIONS is waited out. Raises KafkaError with the code of the response
    (UNSUPPORTED_VERSION and TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the text names what two-phase
    commit lacks), TimeoutError after the timeout of the cluster.
    """
    calls = TransactionCalls(cluster, transactional_id, classified=False)
    return await calls.init_producer_id(
        timeout_ms, two_phase=two_phase, keep_prepared=keep_prepared
    )


async def keep_transaction(
    cluster: Cluster, transactional_id: str, timeout_ms: int
) -> InitialisedProducer:
    """Keep the open transaction of a transactional id, without its timeout: the caller ends it.

    A repeated call gives the caller another identity. Without an open transaction, `timeout_ms` is
    that of the next. Raises as `init_producer_id` does.
    """
    return await init_producer_id(
        cluster, transactional_id, timeout_ms, two_phase=True, keep_prepared=True
    )


async def end_transaction(
    cluster: Cluster, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool
) -> ProducerIdAndEpoch:
    """Commit or abort the open transaction of `producer`; return the producer of the next one.

    Of a kept transaction, `producer` is the client's. A lost response is asked for again. Raises
    KafkaError with the code of the response (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED: another
    producer has the id; INVALID_TXN_STATE: nothing is open, or the outcome was the other one), and
    TimeoutError after the timeout of the cluster: the outcome is then unknown.
    """
    calls = TransactionCalls(cluster, transactional_id, classified=False)
    newer = await calls.is_newer()
    return await calls.end(producer, commit=committed, newer=newer)
