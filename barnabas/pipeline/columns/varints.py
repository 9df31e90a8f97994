"""Many variable-length integers at once, in NumPy.

`barnabas/protocol/records/varint.py` has single ones.

No position is trusted: a read outside the buffer gets the buffer's nearest byte, and a value that
is too long or too large moves its reader to FAR, where no field ends.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

VARINT = 5
"""Bytes of the longest 32-bit value."""
VARLONG = 10
"""Bytes of the longest 64-bit value."""
FAR = 1 << 62
"""The position after a value that cannot be read."""

_BITS = {VARINT: 32, VARLONG: 64}
_ONE_BYTE = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)] + [0] * 128, np.int64)


def read_varints(data: Bytes, at: Ints, longest: int = VARINT) -> tuple[Ints, Ints]:
    """Return the values at the positions `at`, and the positions after them.

    The position after a value that is longer than `longest` bytes or out of range is FAR.
    """
    first = data.take(at, mode="clip")
    if first.max(initial=0) < 0x80:
        return _ONE_BYTE.take(first), at + 1
    raw = (first & 0x7F).astype(np.uint64)
    after = at + 1
    which = np.flatnonzero(first & 0x80)
    for index in range(1, longest):
        byte = data.take(after.take(which), mode="clip")
        raw[which] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[which] += 1
        if index == longest - 1:
            last = 1 << _BITS[longest] - 7 * index
            after[which[byte >= last]] = FAR
            break
        which = which[byte >= 0x80]
        if not which.size:
            break
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def varint_sizes(values: Ints) -> Ints:
    """Return the bytes that each value takes."""
    raw = _zigzag(values)
    sizes = np.ones(raw.size, np.int64)
    for bits in range(7, int(raw.max(initial=0)).bit_length(), 7):
        sizes += raw >= np.uint64(1 << bits)
    return sizes


def write_varints(columns: Sequence[Ints]) -> tuple[Bytes, Ints]:
    """Return the values of each row, one after the other, and the bytes that each row takes."""
    written: list[Bytes] = []
    present: list[Flags] = []
    for values in columns:
        rest = _zigzag(values)
        there = np.ones(rest.size, np.bool_)
        for _ in range(max(1, -(-int(rest.max(initial=0)).bit_length() // 7))):
            more = rest > np.uint64(0x7F)
            written.append((rest & np.uint64(0x7F)).astype(np.uint8) | (more * np.uint8(0x80)))
            present.append(there)
            rest, there = rest >> np.uint64(7), more
    which = np.stack(present, axis=1)
    return np.stack(written, axis=1)[which], np.count_nonzero(which, axis=1).astype(np.int64)


def _zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)
