"""The protocols of consumer groups, as settings of Java's clients and librdkafka."""

QUICK_CLASSIC = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
"""A member of the classic protocol learns of a rebalance in the answer to a heartbeat. Libraries
refuse these keys in the consumer protocol, where the broker decides."""


def settings(protocol: str) -> dict[str, object]:
    """Return the settings of a member of a protocol, "classic" or "consumer"."""
    return {"group.protocol": protocol, **(QUICK_CLASSIC if protocol == "classic" else {})}
