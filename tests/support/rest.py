"""The tests that `tests/run` leaves out and `tests/run --rest` runs. This list alone decides.

An entry is a folder, a module or a test: ids that begin with it have the mark `rest`. A new test
runs by default. One that takes seconds belongs here, unless it is the only one that would find a
fault of the core: the log, transactions, groups, replication, and each family of clients once.
"""

from typing import Final

import pytest

REST: Final = (
    # Faults on real processes for minutes, Spark, builds of the wheel and of the site.
    "tests/chaos/test_fault_matrix.py",
    "tests/chaos/test_live_security.py",
    "tests/chaos/test_security_changes.py",
    "tests/installed/",
    "tests/pipeline/",
    # Apache Kafka and its tools, in JVMs that take seconds to start.
    "tests/referee/",
    # Mutants of the checker and of the simulated cluster: they test tests.
    "tests/integration/mutation/",
    "tests/simulation/test_cluster_mutants.py",
    # Every client with every codec, assignor and mechanism.
    "tests/integration/interop/",
    "tests/integration/test_admin_clients.py",
    "tests/integration/test_sasl_clients.py",
    # What is measured, or has to be waited for.
    "tests/integration/test_alerts_fire.py",
    "tests/integration/test_attacked_process.py",
    "tests/integration/test_benchmark_loads.py",
    "tests/integration/test_consumer_groups.py::test_expression_finds",
    "tests/integration/test_faults_languages.py",
    "tests/integration/test_group_lag_records.py",
    "tests/integration/test_limits.py",
    "tests/integration/test_loop_hold.py",
    "tests/integration/test_strangers.py",
    "tests/test_path_costs.py",
    # Pages, examples and answers of the command line, word by word.
    "tests/integration/test_cli_answers_",
    "tests/integration/test_docs_pages.py",
    "tests/integration/test_examples.py",
    # Many processes, another release, another store.
    "tests/integration/test_migration.py",
    "tests/integration/test_previous_release.py",
    "tests/integration/test_secrets.py",
    "tests/integration/test_secure_start.py",
    "tests/integration/test_several_processes.py",
    "tests/integration/test_testing_fixtures.py",
    "tests/integration/test_verify_replicas.py",
    "tests/integration/zookeeper/test_brokers.py",
    "tests/integration/zookeeper/test_sessions.py",
)

KEPT: Final = (
    "tests/integration/interop/test_groups.py::test_all_four_libraries_share_a_group",
    "tests/integration/interop/test_idempotence.py",
    "tests/pipeline/test_source_log.py",
    "tests/pipeline/test_stream_reader.py",
    "tests/referee/rights/test_rows.py",
    "tests/referee/test_codecs.py",
    "tests/referee/test_config_keys.py",
    "tests/referee/test_definitions.py",
)
"""The quick ones among them, which `tests/run` has too."""

COLLECTED: Final = pytest.StashKey[dict[str, set[str]]]()
"""All ids that pytest has collected, those of no part included, and their marks."""


def is_rest(test: str) -> bool:
    """Return whether `tests/run` leaves out the test of this id."""
    return test.startswith(REST) and not test.startswith(KEPT)
