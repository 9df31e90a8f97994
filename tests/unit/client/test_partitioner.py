"""The partitioner chooses the partition that the Java client and librdkafka choose."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as foreign_murmur2

from barnabas.client.producer import murmur2, partition_for


@given(st.binary(max_size=40))
def test_murmur2_equals_kafka_pythons(data: bytes) -> None:
    assert murmur2(data) == foreign_murmur2(data) & 0xFFFFFFFF


def test_partitions_equal_those_of_the_java_client() -> None:
    # Expected values: org.apache.kafka.common.utils.Utils.toPositive(murmur2(key)) % 10.
    assert [partition_for(key, 10) for key in (b"", b"a", b"key", b"barnabas")] == [
        (foreign_murmur2(key) & 0x7FFFFFFF) % 10 for key in (b"", b"a", b"key", b"barnabas")
    ]
