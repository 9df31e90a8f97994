"""The checker on Apache Kafka: it finds only the one flaw that Kafka leaves open."""

import json

from click.testing import CliRunner

from barnabas.cli.main import cli
from tests.referee.brokers import Address


def judged(kafka: Address, *words: str) -> tuple[int, set[str]]:
    servers = f"{kafka.host}:{kafka.port}"
    done = CliRunner().invoke(cli, ["verify", "eos", "-b", servers, "-d", "2", "--json", *words])
    verdict = json.loads(done.stdout)
    names = {each["name"] for check in verdict["checks"] for each in check["anomalies"]}
    assert verdict["figures"]["committed"] > 20
    return done.exit_code, names


def test_checker_finds_nothing_on_kafka(kafka: Address) -> None:
    assert judged(kafka) == (0, set())


def test_late_commit_of_the_older_protocol_ends_the_next_transaction(
    kafka: Address,
) -> None:
    """KAFKA-17754; Barnabas refuses it, see tests/integration/mutation."""
    code, names = judged(kafka, "--protocol", "older", "--delayed-ends")
    assert code == 3
    assert names & {"precommitted-read", "G1a"}
