"""Which partition of a coordinator's topic a key belongs to: by Java's hash, as in Kafka."""

from barnabas.protocol.java_hash import coordinating_partition as partition_for
from barnabas.protocol.java_hash import java_hash

__all__ = ["java_hash", "partition_for"]
