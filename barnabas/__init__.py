"""Barnabas: a broker cluster that speaks the Kafka wire protocol and delivers exactly once.

PYTEST_DONT_REWRITE: `barnabas/testing/plugin.py` says why.
"""

__version__ = "0.3.0"
