"""The brokers of `--faults`: each keeps its ports, also while it is down."""

import gc
import socket

import pytest

from barnabas.cli.processes.faults import FaultsOption


def test_the_ports_of_brokers_stay_reserved_before_they_start_and_while_they_are_down() -> None:
    """The reservation ended with the call: a client took the port, and a broker did not start."""
    option = FaultsOption.parse("127.0.0.1:0")
    brokers = [
        {"broker.id": f"{number}", "listeners": "BROKERS://127.0.0.1:0"} for number in (1, 2)
    ]
    made = option.properties(brokers, "/tmp/barnabas/metadata.sock")
    gc.collect()
    for each in made:
        port = int(each["listeners"].rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            # The broker itself may listen.
            pass
    option.reserved.release()
