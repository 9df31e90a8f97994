"""Our messages compared with kio's, generated from Kafka's definitions: shape and bytes."""

import dataclasses
import io
import types
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import admin, producer
from kio.serial import entity_reader, entity_writer

from barnabas.protocol.apis import FIRST_OWN_KEY
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionEvent,
    TransactionState,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, WrittenTopic
from barnabas.protocol.schema import FIRST_OWN_TAG, Field, Message, WireType, fields_of
from tests.support.failures import Failures
from tests.unit.protocol.declared import FEW, declared_apis, messages

BETWEEN_BROKERS = (4, 5, 6, 7)
"""Messages that Kafka 4 dropped, and kio with it."""

KAFKA_3_ONLY = {(29, 0), (30, 0), (31, 0)}
"""Versions that Kafka 4 dropped, by API key; kafka-python has them."""

KAFKA_4_4 = {(18, 5), (28, 6), (42, 3)}
"""Versions that kio, of Kafka 4.3, lacks: `tests/referee/test_definitions.py` has them."""

KIO_NAMES = {"enable_two_phase_commit": "enable2_pc"}
"""Kio's names of fields for which we have clearer ones."""

KIO_INTERNAL = {
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
}


def pairs() -> Iterator[tuple[str, type[Message], int, Any]]:
    """Yield a name, our class, the version and kio's class of every API in every version."""
    for name, ours in declared_apis():
        if ours.key in BETWEEN_BROKERS or ours.key >= FIRST_OWN_KEY:
            continue
        for version in ours.versions:
            if (ours.key, version) in KAFKA_3_ONLY | KAFKA_4_4:
                continue
            for side, cls in (("request", ours.request), ("response", ours.response)):
                module = import_module(f"kio.schema.{name}.v{version}.{side}")
                theirs = getattr(module, cls.__name__)
                yield f"{cls.__name__}-v{version}", cls, version, theirs


def is_ours(field: Field) -> bool:
    """Return whether a field is our own, unknown to Kafka."""
    return field.spec.tag is not None and field.spec.tag >= FIRST_OWN_TAG


def remove_ours(message: Message) -> None:
    """Remove our own fields at every depth."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if is_ours(field):
            setattr(message, field.name, field.default())
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                remove_ours(each)


def unwrapped(annotation: Any) -> Any:
    """Return X of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation


def assert_same_shape(ours: type[Message], version: int, theirs: Any) -> None:
    mine = [f for f in fields_of(ours) if f.exists(version) and not is_ours(f)]
    foreign = dataclasses.fields(theirs)
    # kio converts times to timedelta and datetime, and drops the unit from the name.
    names = [f.name for f in mine]
    assert [KIO_NAMES.get(f.name, f.name).removesuffix("_ms") for f in mine] == [
        f.name.removesuffix("_ms") for f in foreign
    ], names
    for field, other in zip(mine, foreign, strict=True):
        where = f"{ours.__name__}.{field.name} v{version}"
        assert field.spec.tag == other.metadata.get("tag"), where
        assert_same_type(field.type, version, other.metadata.get("kafka_type"), other.type, where)
        nullable = type(None) in get_args(other.type)
        if field.type.kind not in ("uuid", "int64"):
            assert field.nullable(version) == nullable, where
        if field.spec.default_factory is None and isinstance(other.default, int | str):
            assert field.spec.default == other.default, where


def assert_same_type(
    ours: WireType, version: int, kind: str | None, theirs: Any, where: str
) -> None:
    theirs = unwrapped(theirs)
    if ours.kind == "array":
        assert ours.item is not None
        assert get_origin(theirs) is tuple, where
        assert_same_type(ours.item, version, kind, get_args(theirs)[0], where)
    elif ours.struct is not None:
        assert_same_shape(ours.struct, version, theirs)
    else:
        same = {
            "timedelta_i32": "int32",
            "timedelta_i64": "int64",
            "datetime_i64": "int64",
            "error_code": "int16",
        }
        assert same.get(str(kind), kind) == ours.kind, where


def test_declares_the_fields_that_kio_declares() -> None:
    with Failures() as failures:
        for name, cls, version, theirs in pairs():
            with failures.of(name):
                assert_same_shape(cls, version, theirs)


@pytest.mark.timeout(400)
def test_kio_reads_and_writes_the_same_bytes() -> None:
    with Failures() as failures:
        for name, cls, version, theirs in pairs():
            with failures.of(name):
                assert_same_bytes(cls, version, theirs)


@FEW
@given(data=st.data())
def assert_same_bytes(cls: type[Message], version: int, theirs: Any, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    remove_ours(message)
    encoded = encode(message, version)
    foreign, size = entity_reader(theirs)(encoded, 0)
    assert size == len(encoded)
    again = io.BytesIO()
    entity_writer(theirs)(again, foreign)
    assert again.getvalue() == encoded
    assert encode(decode(cls, version, again.getvalue()), version) == encoded


WITH_OUR_TAGS: list[tuple[Any, int]] = [
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=2,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 7])],
            group_id="g",
        ),
        3,
    ),
    *(
        (
            EndTxnRequest(
                transactional_id="t",
                producer_id=1,
                producer_epoch=2,
                committed=True,
                written=[WrittenTopic(name="a", partitions=[0, 7])],
            ),
            version,
        )
        for version in (3, 4, 5)
    ),
    (DescribeTransactionsRequest(transactional_ids=["t"], include_events=True), 0),
    (
        DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(
                    transactional_id="t",
                    transaction_state="Ongoing",
                    transaction_timeout_ms=1,
                    transaction_start_time_ms=2,
                    producer_id=3,
                    producer_epoch=4,
                    topics=[TopicData(topic="a", partitions=[0, 7])],
                    events=[TransactionEvent(at_ms=5, text="begins")],
                    time_left_ms=6,
                    client_host="h",
                )
            ]
        ),
        0,
    ),
]


def test_our_tagged_fields_reach_us_and_are_skipped_by_others() -> None:
    with Failures() as failures:
        for message, version in WITH_OUR_TAGS:
            with failures.of(f"{type(message).__name__}-v{version}"):
                assert_skipped_by_others(message, version)


def assert_skipped_by_others(message: Any, version: int) -> None:
    tagged = encode(message, version)
    assert decode(type(message), version, tagged) == message
    remove_ours(message)
    plain = encode(message, version)
    assert len(plain) < len(tagged)
    name = type(message).__name__
    foreign = (getattr(producer, name, None) or getattr(admin, name))[version]
    assert foreign.decode(tagged, header=False) == foreign.decode(plain, header=False)
