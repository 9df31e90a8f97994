"""Barnabas: a broker cluster that speaks the Kafka wire protocol and delivers exactly once."""

__version__ = "0.3.0"
