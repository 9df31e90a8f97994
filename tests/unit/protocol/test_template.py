"""Templates: put together as the codec encodes, and found again by equal bytes only."""

from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    fetch,
    heartbeat,
    offset_commit,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from barnabas.protocol.schema import Message, fields_of
from barnabas.protocol.template import (
    COMPACT_LENGTH,
    LENGTH,
    Elements,
    Templates,
    template_of,
    with_value,
)
from tests.unit.protocol.declared import FEW, messages

START = b"client"
PREFIX = Struct(">hhi")
NUMBER = 77
_COMMITTED = ("topics.0.partitions.0.committed_offset",)
_OFFSETS = tuple(
    f"responses.partitions.{name}"
    for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records")
)
_APPENDED = tuple(
    f"responses.partition_responses.{name}"
    for name in ("base_offset", "log_append_time_ms", "log_start_offset")
)
RECORDS = ("topic_data.partition_data.records",)
REQUESTS = (
    (produce.ProduceRequest, range(7, 14), RECORDS),
    (
        fetch.FetchRequest,
        range(7, 19),
        ("session_epoch", "topics.partitions.fetch_offset"),
    ),
    (end_txn.EndTxnRequest, range(6), ()),
    (end_txn.EndTxnRequest, range(6), ("producer_id", "producer_epoch", "committed")),
    (heartbeat.HeartbeatRequest, range(5), ()),
    (offset_commit.OffsetCommitRequest, range(2, 11), _COMMITTED),
    (txn_offset_commit.TxnOffsetCommitRequest, range(6), _COMMITTED),
    (add_partitions_to_txn.AddPartitionsToTxnRequest, range(6), ()),
)
"""The messages of which templates are made, and more."""
ANSWERS = (
    (produce.ProduceResponse, range(7, 14), _APPENDED),
    (fetch.FetchResponse, range(7, 19), _OFFSETS),
    (end_txn.EndTxnResponse, range(5, 6), ("producer_id", "producer_epoch")),
)
ELEMENTS = (
    Elements(
        write_txn_markers.WriteTxnMarkersRequest,
        2,
        "markers",
        "producer_id",
        "producer_epoch",
        "transaction_result",
    ),
    Elements(write_txn_markers.WriteTxnMarkersResponse, 2, "markers", "producer_id"),
    Elements(
        add_partitions_to_txn.AddPartitionsToTxnRequest,
        5,
        "transactions",
        "producer_id",
        "producer_epoch",
    ),
    Elements(add_partitions_to_txn.AddPartitionsToTxnResponse, 5, "results_by_transaction"),
)


def uses(some: Any) -> list[Any]:
    return [
        pytest.param(cls, version, fields, id=f"{cls.__name__}-v{version}-{len(fields)}")
        for cls, versions, fields in some
        for version in versions
    ]


def filled(data: st.DataObject, cls: Any, version: int, path: list[str]) -> Any:
    """Return a message in which the field of a path exists."""
    message = data.draw(messages(cls, version))
    return _filled(data, message, version, path)


def _filled(data: st.DataObject, message: Any, version: int, path: list[str]) -> Any:
    name, *rest = path
    if not rest:
        return message
    inner = getattr(message, name)
    if isinstance(inner, list):
        (item,) = (f.type.item for f in fields_of(type(message)) if f.name == name)
        rest = rest[1:] if rest[0].isdigit() else rest
        first = inner[0] if inner else data.draw(messages(item.struct, version))
        setattr(message, name, [_filled(data, first, version, rest), *inner[1:]])
    return message


def value_of(message: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(message, list):
            if name.isdigit():
                message = message[int(name)]
                continue
            message = message[0]
        message = getattr(message, name)
    return message


def is_flexible(cls: Any, version: int) -> bool:
    flexible: bool = cls._schema.is_flexible(version)
    return flexible


def frame(body: bytes) -> memoryview:
    return memoryview(PREFIX.pack(0, 0, NUMBER) + START + body)


@pytest.mark.parametrize(("cls", "version", "paths"), uses(REQUESTS))
@FEW
@given(data=st.data())
def test_frame_is_found_by_exactly_equal_bytes_around_the_fields(
    cls: type[Message], version: int, paths: tuple[str, ...], data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version))
    for path in paths:
        _filled(data, message, version, path.split("."))
    other = message
    for path in paths:
        twin = filled(data, cls, version, path.split("."))
        value = value_of(twin, path)
        if path.endswith("records"):
            value = b"r" * data.draw(st.sampled_from([6, 7, 125, 126, 127, 128, 129, 16_400]))
        other = with_value(other, path.split("."), value)
    known: Templates[str] = Templates("4xi", flexible=is_flexible(cls, version))
    known.put(template_of(message, version, paths, START), "known")
    find = known.find_with_records if paths == RECORDS else known.find
    body = encode(other, version)
    whole = frame(body)
    found = find(whole)
    assert found is not None
    assert found == ("known", NUMBER, tuple(value_of(other, path) for path in paths))
    assert find(whole[:-1]) is None
    assert find(memoryview(bytes(whole) + b"\0")) is None
    for at in range(PREFIX.size, min(len(whole), 150)):
        changed = bytearray(whole)
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
        found = find(memoryview(changed))
        if found is None:
            continue
        again = other
        for path, value in zip(paths, found[2], strict=True):
            again = with_value(again, path.split("."), value)
        assert at >= PREFIX.size + len(START)
        assert decode(cls, version, changed, PREFIX.size + len(START)) == again
        if bool not in map(type, found[2]):
            assert again != other
    for path in paths:
        if not path.endswith("records"):
            value = value_of(filled(data, cls, version, path.split(".")), path)
            again = with_value(other, path.split("."), value)
            assert known.find(frame(encode(again, version))) is not None


@pytest.mark.parametrize(("cls", "version", "paths"), uses(ANSWERS))
@FEW
@given(data=st.data())
def test_packed_answer_equals_the_encoded_one(
    cls: type[Message], version: int, paths: tuple[str, ...], data: st.DataObject
) -> None:
    message = filled(data, cls, version, paths[0].split("."))
    made = template_of(message, version, paths, START)
    pack, size, first, last = made.packing("i")
    values = []
    for path in paths:
        value = value_of(filled(data, cls, version, path.split(".")), path)
        if path.endswith("records"):
            value = value or b"1"
        values.append(value)
        message = with_value(message, path.split("."), value)
    records = b""
    if made.end is not None:
        records = values.pop()
        length = LENGTH.pack(len(records))
        if is_flexible(cls, version):
            length = COMPACT_LENGTH(len(records) + 1)
        records = length + records + made.end
    expected = LENGTH.pack(5) + START + encode(message, version)
    packed = pack(5, first, *values, last)
    assert packed + records == expected
    assert size == len(packed) - LENGTH.size


@pytest.mark.parametrize("elements", ELEMENTS, ids=lambda each: each.message.__name__)
@FEW
@given(data=st.data())
def test_joined_elements_equal_the_encoded_message_and_are_found(
    elements: Elements, data: st.DataObject
) -> None:
    (item,) = (f.type.item for f in fields_of(elements.message) if f.name == elements.array)
    some = data.draw(st.lists(messages(item.struct, elements.version), max_size=4))
    known: Templates[int] = Templates("")
    packed = []
    for number, each in enumerate(some):
        template = elements.template(data.draw(st.just(each)))
        pack, _, first, last = template.packing()
        values = [getattr(each, name) for name in elements.fields]
        packed.append(pack(first, *values, last))
        known.put(template, number)
    whole = elements.joined(packed)
    assert whole == encode(elements.message(**{elements.array: some}), elements.version)
    at = len(elements.before) + 1
    for each in some:
        found = known.find_at(whole, at)
        assert found is not None
        number, at, values = found
        assert values == tuple(getattr(each, name) for name in elements.fields)
        twin = some[number]
        for name in elements.fields:
            twin = with_value(twin, [name], getattr(each, name))
        assert twin == each
    assert whole[at:] == elements.behind
    for cut in range(at):
        assert known.find_at(whole[:cut], max(at - 1, 0)) is None


def test_field_that_does_not_vary_in_place_is_refused() -> None:
    request = end_txn.EndTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=2, committed=True
    )
    with pytest.raises(ValueError, match="producer_id does not vary in place"):
        template_of(request, 3, ("producer_epoch", "producer_id"))
    answer = end_txn.EndTxnResponse()
    with pytest.raises(ValueError, match="producer_id does not vary in place in version 4"):
        template_of(answer, 4, ("producer_id",))
    produced = produce.ProduceResponse(responses=[])
    with pytest.raises(IndexError):
        template_of(produced, 9, _APPENDED)


def test_fields_that_are_no_neighbours_are_not_packed() -> None:
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            fetch.FetchTopic(
                topic="t",
                partitions=[
                    fetch.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1)
                ],
            )
        ],
    )
    made = template_of(request, 12, ("session_epoch", "topics.partitions.fetch_offset"))
    with pytest.raises(ValueError, match="between the varying fields"):
        made.packing()


def test_array_that_is_not_compact_has_no_elements() -> None:
    with pytest.raises(ValueError, match="no compact array topic_data"):
        Elements(produce.ProduceRequest, 8, "topic_data")
