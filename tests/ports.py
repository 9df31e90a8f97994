"""Ports for servers that must be told one before they start."""

from contextlib import suppress

from barnabas.testing.ports import ReservedPorts

free_port = ReservedPorts().take
"""A port that is this process's until it ends."""


def ports_in_a_row(count: int) -> int:
    """The first of so many such ports."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError):
            for other in range(first + 1, first + count):
                free_port(other)
            return first
