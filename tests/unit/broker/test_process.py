"""The metrics of the process."""

import os
import resource

from barnabas.broker.gauges import observe_process
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry


def test_process_is_measured_at_the_scrape():
    registry = Registry()
    observe_process(BrokerMetrics(registry).process)
    with open(os.devnull):
        read = {
            family.name: family.samples[0][1]
            for family in registry.snapshot()
            if family.name.startswith("process_")
        }

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 1 << 20 < read["process_resident_memory_bytes"] < 2 * peak
    assert read["process_cpu_seconds_total"] > 0
    assert 3 < read["process_open_fds"] <= read["process_max_fds"]
    assert read["process_start_time_seconds"] > 1.7e9
