"""The arithmetic of the in-sync set: what is committed, and when a write may be refused.

A record is committed when every in-sync replica has it (KIP-101, KIP-966); the high watermark is
the end of the committed records. Pure functions, shared by one replica and by many.
"""


def effective_min_isr(configured: int, replica_count: int) -> int:
    """min.insync.replicas, but never more than the partition has replicas."""
    return min(configured, replica_count)


def committed_end(current: int, in_sync_end: int, in_sync: int, min_isr: int) -> int:
    """The new high watermark, given the end of what all who count have, and how many are in sync.

    It never moves back, and stands still while fewer than `min_isr` replicas are in sync, so that
    a sole survivor commits nothing that acks=all would have refused (KIP-966).
    """
    if in_sync < min_isr:
        return current
    return max(current, in_sync_end)
