"""The reader of records against the definition, on batches that are whole, cut or damaged; and
what is written is read."""

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records import record as reading
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    crc_matches,
    pack_batch,
    read_header,
)
from barnabas.protocol.records.compression import Compression, compress
from barnabas.protocol.records.record import BatchBuilder, Headers, Record, build_batch
from barnabas.protocol.records.varint import read_varint, read_varlong

FIELDS: Final = st.none() | st.binary(max_size=100)
HEADERS: Final = st.lists(st.tuples(st.text(max_size=8), FIELDS), max_size=3).map(tuple)
CASES: Final = 12_000
MOST: Final = 2000
"""The bytes that a record of a compressed batch may have."""

Read = tuple[list[Record], bool]
"""The records before an error, and whether there was one."""
Case = tuple[bytes, BatchHeader, list[int]]
"""The decompressed records of a batch, its header, and where the pieces are cut."""


class Refused(Exception):
    """The definition does not allow these bytes."""


def field(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_varint(body, at)
    if size == -1:
        return None, at
    if not 0 <= size <= end - at:
        raise Refused
    return body[at : at + size], at + size


def defined(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records as KIP-98 defines them, field by field."""
    at = 0
    for _ in range(header.record_count):
        size, at = read_varint(body, at)
        end = at + size
        if not 6 <= size <= len(body) - at or (header.compression and size > MOST):
            raise Refused
        delta, at = read_varlong(body, at + 1)
        offset, at = read_varint(body, at)
        key, at = field(body, at, end)
        value, at = field(body, at, end)
        count, at = read_varint(body, at)
        if count and not 0 < count <= (end - at) // 2:
            raise Refused
        headers = []
        for _ in range(count):
            name, at = field(body, at, end)
            content, at = field(body, at, end)
            if name is None:
                raise Refused
            headers.append((name.decode(), content))
        if at != end:
            raise Refused
        timestamp = header.max_timestamp if header.timestamp_type else header.base_timestamp + delta
        yield Record(header.base_offset + offset, timestamp, key, value, tuple(headers))
    if at != len(body):
        raise Refused


def by_definition(case: Case) -> Read:
    body, header, _ = case
    found: list[Record] = []
    try:
        found.extend(defined(body, header))
    except (Refused, ProtocolError, UnicodeDecodeError):
        return found, True
    return found, False


def by_reader(module: ModuleType, case: Case) -> Read:
    body, header, cuts = case
    reader = module.RecordReader(header, MOST)
    found: list[Record] = []
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
            found.extend(Record(*each) for each in reader.fields(body[start:stop]))
        reader.finish()
    except ProtocolError:
        return found, True
    return found, False


def cases(seed: int) -> Iterator[Case]:
    chance = random.Random(seed)

    def content() -> bytes | None:
        sizes = (0, 1, 5, 62, 63, 64, 65, 300, 8191, 8192)
        size = chance.choices(sizes, (3, 3, 3, 1, 1, 1, 1, 1, 0.1, 0.1))[0]
        return None if chance.random() < 0.3 else chance.randbytes(size)

    def record(offset: int) -> Record:
        timestamp = 10**12 + chance.choice((0, 1, -1, 63, 64, -65, 8191, 8192, 2**39, -(2**39)))
        names = chance.choices(("", "a", "ü" * 40), k=chance.choice((0, 0, 0, 1, 3)))
        headers = tuple((name, content()) for name in names)
        return Record(offset, timestamp, content(), content(), headers)

    for _ in range(CASES):
        step = chance.choice((1, 1, 70, 9000))
        batch = build_batch([record(number * step) for number in range(chance.randint(1, 6))])
        header, body = read_header(batch), bytearray(batch[HEADER_SIZE:])
        header = header._replace(
            attributes=chance.choice((0, 0, 1, 8)),
            record_count=max(0, header.record_count + chance.choice((0, 0, 0, 0, 0, 0, 1, -1))),
        )
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            at = chance.randrange(min(len(body), chance.choice((10, 40, len(body)))))
            new = chance.choice(
                (body[at] ^ 1, body[at] ^ 0x80, 0, 1, 0x80, 0xFF, body[at] + 2 & 255)
            )
            where = chance.choice((slice(at, at + 1), slice(at, at), slice(max(at, 1), None)))
            body[where] = b"" if where.stop is None else chance.choice((b"", bytes([new])))
        cuts = sorted(chance.choices(range(len(body) + 1), k=chance.choice((0, 0, 1, 3, 8))))
        yield bytes(body), header, cuts


def differing(module: ModuleType) -> Case | None:
    """Return the first case that a module reads in another way than the definition."""
    for each in cases(1):
        try:
            if by_reader(module, each) != by_definition(each):
                return each
        except (IndexError, UnicodeDecodeError):
            return each
    return None


def test_records_are_read_as_they_are_defined() -> None:
    read, errors = 0, 0
    for each in cases(2):
        expected = by_definition(each)
        assert by_reader(reading, each) == expected, each
        read, errors = read + len(expected[0]), errors + expected[1]
    assert read > CASES, "the cases are one-sided"
    assert CASES / 10 < errors < CASES * 0.9, "the cases are one-sided"


# Other checks only give an error its reason: a field behind its record ends off its length, too.
MUTANTS: Final = {
    "odd lengths of records": ("if raw & 1 or raw < _MIN_RAW_LENGTH:", "if raw < 12:"),
    "long records": ("if end - start > limit:", "if False:"),
    "records behind their piece": ("if end > size:", "if end > size + 1:"),
    "lengths cut by a piece": ("elif _is_cut_off(piece, at, size):", "elif False:"),
    "timestamps before the first": ("timestamp + (~(raw >> 1)", "timestamp + (0"),
    "offsets before the base": ("base + (~(raw >> 1)", "base + (0"),
    "timestamps of the broker": ("if stamp is None else stamp", ""),
    "keys with negative lengths": ("elif not raw & 0x81 and", "elif not raw & 0x80 and"),
    "values with negative lengths": ("if raw & 1 or stop > end:", "if raw == 1 or stop > end:"),
    "bytes behind the headers": ("if at != end:", "if at > end:"),
    "headers behind their record": ("if at != end:", "if at < end:"),
    "numbers behind the piece": ("except IndexError:", "except KeyError:"),
    "the count of records": ("left\n        if at < size", "0\n        if at < size"),
}  # fmt: skip


@pytest.mark.parametrize("check", MUTANTS)
def test_reader_without_a_check_is_noticed(check: str) -> None:
    source, (old, new) = Path(reading.__file__).read_text(), MUTANTS[check]
    assert source.count(old) == 1
    mutant: Any = ModuleType(reading.__name__)
    exec(compile(source.replace(old, new), "mutant", "exec"), mutant.__dict__)
    assert differing(mutant) is not None


HUGE: Final = b"\xfe\xff\xff\xff\x0f"
"""The number 2^31 - 1."""


@pytest.mark.parametrize(
    "record",
    [
        HUGE + b"\0\0\0\1\1\0",
        b"\x20\0\0\0" + HUGE + b"\1" + bytes(10),
        b"\x20\0\0\0\1" + HUGE + bytes(10),
        b"\x20\0\0\0\1\1" + HUGE + bytes(5),
        b"\x20\0\0\0\1\1\2" + HUGE + bytes(4),
        b"\x20\0\0\0\1\1\2\2a" + HUGE + bytes(2),
    ],
    ids=["record", "key", "value", "headers", "name", "content"],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_announced_lengths_take_no_memory(record: bytes, codec: Compression) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)], compression=codec))
    batch = pack_batch(header._replace(record_count=2**31 - 1), compress(codec, record))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            list(reading.iter_records(batch, 0, read_header(batch)))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@given(
    st.lists(st.tuples(FIELDS, FIELDS, st.integers(-(2**40), 2**40), HEADERS), max_size=40),
    st.integers(0, 2000),
    st.sampled_from(Compression),
)
def test_builder_takes_what_fits_and_builds_what_it_took(
    records: list[tuple[bytes | None, bytes | None, int, Headers]], limit: int, codec: Compression
) -> None:
    builder, taken = BatchBuilder(10**12), list[Record]()
    for key, value, delta, headers in records:
        before, stamp = builder.size, 10**12 + delta
        size = builder.add(key, value, stamp, headers, limit=limit)
        alone = BatchBuilder(10**12)
        alone.add(key, value, stamp, headers, offset=len(taken))
        needed = alone.size - HEADER_SIZE
        fits = not taken or before + needed <= limit
        assert (size, builder.size - before) == (needed if fits else 0,) * 2
        if fits:
            taken.append(Record(len(taken), stamp, key, value, headers))
    if taken:
        built = bytes(builder.build(compression=codec, producer_id=7, base_sequence=3))
        header = read_header(built)
        assert crc_matches(built, 0, header)
        assert (header.record_count, header.last_offset_delta) == (len(taken), len(taken) - 1)
        newest = max(10**12, *(each.timestamp for each in taken))
        assert (header.base_timestamp, header.max_timestamp) == (10**12, newest)
        assert list(reading.iter_records(built, 0, header)) == taken


def test_builder_refuses_a_value_that_is_no_buffer_and_goes_on() -> None:
    builder = BatchBuilder(5)
    builder.add(None, b"first")
    for value in ("text", 7):
        with pytest.raises(TypeError):
            builder.add(None, value)  # type: ignore[arg-type]
    builder.add(None, b"second")
    built = bytes(builder.build())
    values = [each.value for each in reading.iter_records(built, 0, read_header(built))]
    assert values == [b"first", b"second"]


def test_builder_keeps_the_value_of_a_buffer_that_changes_afterwards() -> None:
    builder, buffer = BatchBuilder(5), bytearray(b"value")
    builder.add(None, buffer)  # type: ignore[arg-type]
    buffer[:] = b"another"
    built = bytes(builder.build())
    (record,) = reading.iter_records(built, 0, read_header(built))
    assert record.value == b"value"


def test_record_without_a_timestamp_has_that_of_the_batch_behind_a_later_one() -> None:
    builder = BatchBuilder(5)
    for timestamp in (None, 9, None, 3):
        builder.add(None, b"", timestamp)
    built = bytes(builder.build())
    header = read_header(built)
    assert [each.timestamp for each in reading.iter_records(built, 0, header)] == [5, 9, 5, 3]
    assert header.max_timestamp == 9
