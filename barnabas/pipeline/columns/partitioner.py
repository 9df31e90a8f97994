"""The partition of each row as Kafka's Java client chooses it, for a column of keys at once."""

import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.producer import murmur2
from barnabas.pipeline.columns.varints import Ints

STICKY_BYTES = 1024 * 1024
"""Bytes of rows without a key that go to one partition before the next one is chosen.

Each partition of a transaction costs a marker; Java's client changes with every batch.
"""

_SEED = np.uint32(0x9747B28C)
_MURMUR = np.uint32(0x5BD1E995)
_FEW = 8

Words = npt.NDArray[np.uint32]


class Partitioner:
    """The partitioner of one topic; rows without a key begin at a random partition."""

    def __init__(self, partitions: int, first: int | None = None) -> None:
        self._partitions = partitions
        self._sticky = random.randrange(partitions) if first is None else first
        self._filled = 0

    def choose(self, keys: pa.Array, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the partition of each row; keys and values are binary or string."""
        keys = keys.cast(pa.binary())
        if keys.null_count == len(keys):
            return self._choose_sticky(values)
        hashes = murmur2_of(keys)
        chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(self._partitions)).astype(np.int32)
        if keys.null_count:
            null = keys.is_null()
            chosen[null.to_numpy(zero_copy_only=False)] = self._choose_sticky(values.filter(null))
        return chosen

    def _choose_sticky(self, values: pa.Array) -> npt.NDArray[np.int32]:
        sizes = pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
        before = self._filled + np.cumsum(sizes) - sizes
        self._filled += int(sizes.sum())
        chosen: Ints = (self._sticky + before // STICKY_BYTES) % self._partitions
        return chosen.astype(np.int32)


def murmur2_of(keys: pa.Array) -> Words:
    """Return the hash of each key, as `client.producer.murmur2` does for one; 0 for null.

    All keys are hashed together, four bytes of each at a time.
    """
    starts, lengths, data = _strings(keys)
    hashes = _SEED ^ lengths.astype(np.uint32)
    # Every position of the data as the start of a word, without a copy.
    words = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))
    rows = np.flatnonzero(lengths >= 4)
    at = 0
    while rows.size >= _FEW or (rows.size and at < 4 * _FEW):
        k = words[starts[rows] + at] * _MURMUR
        hashes[rows] = (hashes[rows] * _MURMUR) ^ ((k ^ k >> np.uint32(24)) * _MURMUR)
        at += 4
        rows = rows[lengths[rows] >= at + 4]
    long = rows
    rest = np.where(lengths > 0, lengths & 3, 0)
    for index in (2, 1, 0):
        rows = np.flatnonzero(rest > index)
        byte = data[starts[rows] + (lengths[rows] & ~3) + index].astype(np.uint32)
        hashes[rows] ^= byte << np.uint32(8 * index)
    rows = np.flatnonzero(rest)
    hashes[rows] *= _MURMUR
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MURMUR
    hashes ^= hashes >> np.uint32(15)
    for row in long:
        # A few long keys: one at a time costs less than a step of NumPy for each of their words.
        hashes[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    hashes[lengths < 0] = 0
    return hashes


def _strings(keys: pa.Array) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
    """Return start and length of each key, -1 for null, and the bytes that hold them all."""
    _, bounds, data = keys.buffers()
    starts = np.frombuffer(bounds, np.int32)[keys.offset : keys.offset + len(keys)]
    lengths = pc.binary_length(keys).fill_null(-1).to_numpy().astype(np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return starts.astype(np.int64), lengths, held
