"""The checker on Apache Kafka: it finds only the one flaw that Kafka leaves open."""

import json
from pathlib import Path

from tests.referee.brokers import Address
from tests.support.checker import Events, committed, run_until

LATE = 40
"""Commits that arrive late, of which some meet the next transaction."""


def enough(events: Events) -> bool:
    return committed(events) > 20


def enough_late(events: Events) -> bool:
    late = sum(each["f"] == "end" and "late" in each["value"] for each in events)
    return enough(events) and late >= LATE


def judged(kafka: Address, history: Path, *words: str) -> tuple[int, set[str]]:
    until = enough_late if words else enough
    done = run_until(until, f"{kafka.host}:{kafka.port}", history, *words)
    verdict = json.loads(done.stdout)
    names = {each["name"] for check in verdict["checks"] for each in check["anomalies"]}
    assert verdict["figures"]["committed"] > 20
    return done.returncode, names


def test_checker_finds_nothing_on_kafka(kafka: Address, tmp_path: Path) -> None:
    assert judged(kafka, tmp_path / "history") == (0, set())


def test_late_commit_of_the_older_protocol_ends_the_next_transaction(
    kafka: Address, tmp_path: Path
) -> None:
    """KAFKA-17754; Barnabas refuses it, see tests/integration/mutation."""
    code, names = judged(kafka, tmp_path / "history", "--protocol", "older", "--delayed-ends")
    assert code == 3
    assert names & {"precommitted-read", "G1a"}
