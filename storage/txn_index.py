"""The `.txnindex` of a segment: transactions that were aborted in it (KIP-98).

    2 bytes version 0 | producer id | first offset | last offset | last stable offset   (34 bytes)

all big-endian, in the order of their markers. Most segments have none, and then no file.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


class CorruptTxnIndexError(Exception):
    """The file holds something else than entries of this segment: to be rebuilt from the log."""


class AbortedTxn(NamedTuple):
    """The data of `producer_id` in [first_offset, last_offset] is void; `last_offset` is the abort
    marker's, `last_stable_offset` the partition's once the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(txn: AbortedTxn) -> bytes:
    return _ENTRY.pack(_VERSION, *txn)


def decode(data: bytes, *, base_offset: int = 0) -> list[AbortedTxn]:
    """The entries of a segment's index; CorruptTxnIndexError where it cannot be one."""
    if len(data) % ENTRY_SIZE:
        raise CorruptTxnIndexError(f"{len(data)} bytes are no multiple of {ENTRY_SIZE}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        txn = AbortedTxn(*fields)
        if version != _VERSION:
            raise CorruptTxnIndexError(f"unknown version {version}")
        if txn.last_offset < base_offset or txn.first_offset > txn.last_offset:
            raise CorruptTxnIndexError(f"{txn} does not belong to the segment at {base_offset}")
        entries.append(txn)
    return entries


def search(
    entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound: int
) -> tuple[list[AbortedTxn], bool]:
    """Transactions that overlap [fetch_offset, upper_bound), and whether later ones can not.

    Once the last stable offset stored with an entry reaches the upper bound, transactions that end
    later also began later.
    """
    found = []
    for txn in entries:
        if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
            found.append(txn)
        if txn.last_stable_offset >= upper_bound:
            return found, True
    return found, False
