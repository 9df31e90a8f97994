"""Java's choice of a partition: murmur2 of the key, so that keys land where Java puts them."""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, seeded as Kafka's Java client seeds it; 32 bits unsigned."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
