"""Ports for servers that must know their port before they start."""

from contextlib import suppress

from barnabas.faults.ports import ReservedPorts

free_port = ReservedPorts().take
"""Reserve a port for this process until it ends."""


def ports_in_a_row(count: int) -> int:
    """Reserve consecutive ports, and return the first."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError):
            for other in range(first + 1, first + count):
                free_port(other)
            return first
