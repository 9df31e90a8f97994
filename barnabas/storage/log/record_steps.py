"""Work on the records of batches in steps, with bounded memory.

A batch of a few kilobytes may hold millions of records, so nothing here looks at a whole batch at
once. The steps say where work may be interrupted, what a thread should do, and how much memory the
rest needs; the broker carries them out (`barnabas/broker/replication/leader/record_work.py`).
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.compression import (
    MAX_RATIO,
    PIECE,
    Compression,
    inflate,
    inflation_memory,
    joined,
)
from barnabas.protocol.records.record import (
    MAX_RECORD,
    Record,
    RecordReader,
    codec_of,
    records_part,
)
from barnabas.protocol.records.varint import Buffer

T = TypeVar("T")
RECORDS_PER_STEP: Final = 256
"""Records, or headers, that take about a millisecond to check."""
BYTES_PER_STEP: Final = PIECE
"""Decompressed or recompressed bytes from which codecs take a millisecond and longer."""
_PART_COST: Final = 16
"""The time for a part of BYTES_PER_STEP bytes, whatever is in it, in records."""
LARGEST_BLOCK: Final = 88 * 1024 * 1024
"""The bytes that a block of Snappy may have, which is in memory as a whole. Producers limit a batch
before they compress it, to 1 MB unless configured, so theirs are far smaller."""
_LONG_STREAM: Final = 4 * BYTES_PER_STEP
_BRIEF_CALLS: Final = 3
"""Calls of codecs for a batch that has one piece: copy, look for another, finish the copy."""


class Memory(NamedTuple):
    """A step that waits for memory.

    Attributes:
        size: the bytes that the work holds in all from here on.
        call: the bytes that a call of a codec decompresses at most from here on.
    """

    size: int
    call: int = BYTES_PER_STEP


Step = Callable[[], Any] | Memory | None
RecordSteps = Generator[Step, Any, T]
"""Work in steps. It yields None after a step of about a millisecond, Memory before it takes memory,
or a function that may run in a thread, whose result is sent to it."""


class TakesLong(Exception):
    """Work that is too long to be done at once, and was not finished."""


def at_once(steps: RecordSteps[T]) -> T:
    """Do all the work without a pause, and return its result."""
    try:
        step = next(steps)
        while True:
            step = call(steps, step) if callable(step) else next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


def briefly(steps: RecordSteps[T]) -> T:
    """Do short work without a pause, and return its result; raise TakesLong after a few steps."""
    calls = 0
    try:
        step = next(steps)
        while step is not None and calls < _BRIEF_CALLS:
            if callable(step):
                calls += 1
                step = call(steps, step)
            else:
                step = next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
    steps.close()
    raise TakesLong


def call(steps: RecordSteps[Any], work: Callable[[], Any]) -> Step:
    """Call a function that work has yielded; return the next step."""
    try:
        result = work()
    except Exception as error:
        return steps.throw(error)
    return steps.send(result)


def longest_call(header: BatchHeader) -> int:
    """Return the bytes that a call of a codec decompresses at most, before the batch is read."""
    if codec_of(header) is not Compression.SNAPPY:
        return BYTES_PER_STEP
    return MAX_RATIO[Compression.SNAPPY] * header.size


def each_record(
    batch: Buffer,
    header: BatchHeader,
    max_bytes: int,
    visit: Callable[[Record], bool | None],
    copy_to: Callable[[bytes], None] | None = None,
    max_record: int = MAX_RECORD,
) -> RecordSteps[None]:
    """Call `visit` with each record of a batch, until it returns True.

    Long records come without their content; see `RecordReader.check`.

    `copy_to` gets the decompressed bytes before; it may run in a thread. The first piece of a batch
    is decompressed at once, because most batches have no more. Raises ProtocolError if a record is
    damaged, if their number is not the header's, or if they have more than `max_bytes`, and
    RecordTooLargeError if one of a compressed batch has more than `max_record`.
    """
    data = records_part(batch, 0, header)
    codec = codec_of(header)
    # The search for the frames of a long stream takes a millisecond and longer.
    is_long = codec is Compression.ZSTD and len(data) > _LONG_STREAM
    measure = partial(inflation_memory, codec, data, max_bytes, LARGEST_BLOCK)
    memory = (yield measure) if is_long else measure()
    # A block of Snappy is decompressed as a whole, however long it is.
    call = memory if codec is Compression.SNAPPY else BYTES_PER_STEP
    yield Memory(header.size + memory, call)
    reader = RecordReader(header, max_record)
    next_piece = partial(joined, inflate(codec, data, max_bytes, LARGEST_BLOCK))
    in_thread = is_long or call > 3 * BYTES_PER_STEP
    checked = -_PART_COST
    if in_thread:
        yield None
    while (piece := (yield next_piece) if in_thread else next_piece()) is not None:
        in_thread = codec is not Compression.NONE
        for start in range(0, len(piece), BYTES_PER_STEP):
            part = piece[start : start + BYTES_PER_STEP]
            if copy_to is not None:
                yield partial(copy_to, part)
            checked += _PART_COST
            for record in reader.check(part):
                if record is None:
                    checked = RECORDS_PER_STEP
                elif visit(record):
                    return
                else:
                    checked += 1 + len(record.headers)
                if checked >= RECORDS_PER_STEP:
                    checked = 0
                    yield None
            if checked >= RECORDS_PER_STEP:
                checked = 0
                yield None
    reader.finish()
