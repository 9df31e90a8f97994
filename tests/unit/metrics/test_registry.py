"""Cells and families of metrics, and their text in a scrape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.exposition import render
from barnabas.metrics.registry import FamilySnapshot, HistogramSample, Registry


def scrape(registry: Registry) -> list[str]:
    text = b"".join(block for family in registry.snapshot() for block in render(family))
    return text.decode().splitlines()


def test_a_cell_is_the_same_for_the_same_labels():
    bytes_in = Registry().counter("bytes_total", "Bytes.", ("topic",))
    bytes_in.cell("a").value += 1
    assert bytes_in.cell("a").value == 1
    assert bytes_in.cell("b").value == 0


def test_counters_and_gauges_are_scraped_with_their_labels_escaped():
    registry = Registry()
    registry.counter("bytes_total", "Bytes.", ("topic",)).cell('a"\n').value += 7
    registry.gauge("open", "Open.").cell().value = 2

    lines = scrape(registry)

    assert 'bytes_total{topic="a\\"\\n"} 7.0' in lines
    assert "open 2.0" in lines


def test_a_gauge_is_read_when_it_is_scraped():
    registry, sizes = Registry(), {}
    registry.gauge("logs", "Logs.", read=lambda: len(sizes))
    registry.gauge("size", "Size.", ("topic",)).read_each_with(
        lambda: [((topic,), size) for topic, size in sizes.items()]
    )
    sizes["a"] = 5

    lines = scrape(registry)

    assert "logs 1.0" in lines
    assert 'size{topic="a"} 5.0' in lines


def test_a_bound_belongs_to_the_bucket_below_it_and_buckets_add_up():
    registry = Registry()
    cell = registry.histogram("time_ms", "Time.", buckets=(1, 10)).cell()
    for value in (0.5, 1, 5, 11):
        cell.observe(value)

    lines = scrape(registry)

    assert 'time_ms_bucket{le="1.0"} 2.0' in lines
    assert 'time_ms_bucket{le="10.0"} 3.0' in lines
    assert 'time_ms_bucket{le="+Inf"} 4.0' in lines
    assert "time_ms_count 4.0" in lines
    assert "time_ms_sum 17.5" in lines


def test_removed_cell_is_no_longer_reported():
    registry = Registry()
    family = registry.gauge("lag", "Lag.", ("topic",))
    family.cell("gone").value = 3
    family.remove("gone")
    assert not any(line.startswith("lag{") for line in scrape(registry))


def test_families_left_out_are_not_read_and_their_owners_do_not_notice():
    registry, reads = Registry(), []
    sizes = registry.gauge("size", "Size.", ("topic", "partition"))
    registry.gauge("lag", "Lag.", ("group", "topic", "partition")).cell("g", "t", "0").value = 3
    registry.leave_out(("topic", "partition"))
    sizes.read_each_with(lambda: reads.append(1) or ())
    sizes.cell("t", "0").value = 5
    assert [family.name for family in registry.snapshot()] == ["lag"]
    assert reads == []


def test_mistakes_in_names_and_labels_are_errors():
    registry = Registry()
    family = registry.counter("a_total", "A.", ("topic",))
    with pytest.raises(ValueError, match="twice"):
        registry.counter("a_total", "A.")
    with pytest.raises(ValueError, match="_total"):
        registry.counter("a", "A.")
    with pytest.raises(ValueError, match="labels"):
        family.cell("a", "b")


def test_the_whole_catalogue_can_be_scraped():
    registry = Registry()
    metrics = BrokerMetrics(registry)
    metrics.topics.messages_in.cell("orders").value += 1

    lines = scrape(registry)

    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 1.0' in lines
    assert "# TYPE kafka_consumergroup_lag gauge" in lines


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.one_of(st.integers(0, 2**60), st.floats(allow_nan=False))
plain = st.builds(
    FamilySnapshot,
    name=st.just("a_metric"),
    help=texts,
    kind=st.just("gauge"),
    labels=st.just(("topic", "group")),
    samples=st.lists(st.tuples(st.tuples(texts, texts), numbers), max_size=3),
)


@given(plain)
def test_prometheus_client_reads_back_what_is_written(family):
    (read,) = text_string_to_metric_families(b"".join(render(family)).decode())

    assert read.type == "gauge"
    assert [
        ((sample.labels["topic"], sample.labels["group"]), sample.value) for sample in read.samples
    ] == [(labels, float(value)) for labels, value in family.samples]


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3), st.floats(0, 1e9))
def test_prometheus_client_reads_back_a_histogram(counts, total):
    family = FamilySnapshot(
        "time_ms",
        "Time.",
        "histogram",
        ("api",),
        [(("A",), HistogramSample((0.5, 1), tuple(counts), total))],
    )
    (read,) = text_string_to_metric_families(b"".join(render(family)).decode())

    values = {(each.name, each.labels.get("le")): each.value for each in read.samples}
    assert values == {
        ("time_ms_bucket", "0.5"): counts[0],
        ("time_ms_bucket", "1.0"): counts[0] + counts[1],
        ("time_ms_bucket", "+Inf"): sum(counts),
        ("time_ms_sum", None): total,
        ("time_ms_count", None): sum(counts),
    }
