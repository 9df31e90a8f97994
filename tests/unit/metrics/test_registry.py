"""Cells, families, and what a scrape makes of them."""

import pytest

from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.exposition import render
from barnabas.metrics.registry import Registry


def scrape(registry: Registry) -> list[str]:
    _, body = render(registry.snapshot(), accept="text/plain")
    return body.decode().splitlines()


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

    assert 'time_ms_bucket{le="1"} 2.0' in lines
    assert 'time_ms_bucket{le="10"} 3.0' in lines
    assert 'time_ms_bucket{le="+Inf"} 4.0' in lines
    assert "time_ms_count 4.0" in lines
    assert "time_ms_sum 17.5" in lines


def test_a_removed_cell_is_reported_no_more():
    registry = Registry()
    family = registry.gauge("lag", "Lag.", ("topic",))
    family.cell("gone").value = 3
    family.remove("gone")
    assert not any(line.startswith("lag{") for line in scrape(registry))


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
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
