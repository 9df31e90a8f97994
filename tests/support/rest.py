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
    # Mutants of the checker and of the simulated cluster, and most of its histories.
    "tests/integration/mutation/",
    "tests/simulation/test_cluster_mutants.py",
    "tests/simulation/test_cluster.py::test_history_of_three_brokers_violates_no_invariant[1",
    "tests/simulation/test_cluster.py::test_history_of_three_brokers_violates_no_invariant[2",
    "tests/simulation/test_cluster.py::test_history_of_three_brokers_violates_no_invariant[3",
    # The console in a browser.
    "tests/console/",
    # Every client with every codec, assignor and mechanism.
    "tests/integration/interop/",
    "tests/integration/test_admin_clients.py",
    "tests/integration/test_sasl_clients.py",
    # What is measured, or has to be waited for.
    "tests/integration/test_alerts_fire.py",
    "tests/integration/test_attacked_process.py",
    "tests/integration/test_benchmark_loads.py",
    "tests/integration/test_cli_groups.py::test_group_of_the_consumer_protocol_has",
    "tests/integration/test_consumer_groups.py::test_expression_finds",
    "tests/integration/test_faults_languages.py",
    "tests/integration/test_faults_http.py::test_cut_links_are_silent",
    "tests/integration/test_group_lag_records.py",
    "tests/integration/test_limits.py",
    "tests/integration/test_loop_hold.py",
    "tests/integration/test_quotas.py",
    "tests/integration/test_strangers.py",
    "tests/integration/test_sink_driver.py::test_batch_is_committed_among_10_000_ids",
    "tests/integration/test_sink_driver.py::test_last_decision_survives_compaction",
    "tests/integration/test_testing_helpers.py::test_helpers_work_beside_a_broker_that_is_paused",
    "tests/integration/test_verify_eos.py::test_cluster_that_cannot_commit_is_told_soon",
    "tests/integration/test_verify_eos.py::test_members_in_the_consumer_protocol",
    "tests/test_path_costs.py",
    "tests/unit/broker/handlers/test_large_requests.py::test_admin_handler_takes_a_step",
    "tests/unit/broker/handlers/test_large_requests.py::test_partitions_are_created_and_elected",
    "tests/unit/storage/test_compaction.py::test_batch_of_very_many_records_is_compacted",
    # Pages, examples and answers of the command line, word by word.
    "tests/integration/test_cli_answers_data.py",
    "tests/integration/test_docs_pages.py",
    "tests/integration/test_examples.py",
    "tests/integration/test_testing_page.py",
    # Many processes, another release, another store.
    "tests/integration/test_migration.py",
    "tests/integration/test_previous_release.py",
    "tests/integration/test_secrets.py",
    "tests/integration/test_secure_start.py",
    "tests/integration/test_several_processes.py",
    "tests/integration/test_testing_fixtures.py",
    "tests/integration/test_verify_replicas.py",
    "tests/integration/zookeeper/",
)

KEPT: Final = (
    "tests/integration/interop/test_groups.py::test_all_four_libraries_share_a_group",
    "tests/integration/interop/test_idempotence.py",
    "tests/integration/zookeeper/test_moves.py",
    "tests/integration/zookeeper/test_store_machine.py",
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
