"""Ports for servers that must know their port before they start."""

from barnabas.faults.ports import ReservedPorts

_PORTS = ReservedPorts()
free_port = _PORTS.take
"""Reserve a port for this process until it ends."""
ports_in_a_row = _PORTS.take_in_a_row
"""Reserve consecutive ports, and return the first."""
