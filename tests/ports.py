"""Ports for servers that must be told one before they start."""

from contextlib import suppress

from barnabas.testing.ports import ReservedPorts

free_port = ReservedPorts().take
"""A port that is this process's until it ends."""


def three_in_a_row() -> int:
    """The first of three such ports."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError):
            free_port(first + 1)
            free_port(first + 2)
            return first
