"""`barnabas verify replicas` on the directories of a stopped cluster, intact and damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.testing import Cluster
from tests.support.checker import Events, committed, run_until

pytestmark = pytest.mark.xdist_group("verify-replicas")

KEYS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
COMMITTED = 40
"""Transactions, each with a batch, a marker, and two records in the transaction log at least."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three brokers that moved leaders under load and were stopped in order."""
    directory = tmp_path_factory.mktemp("stopped")
    checkpoint = directory / "broker-2" / "cleaner-offset-checkpoint"

    def moved(events: Events) -> bool:
        churn = (each for each in events if each["f"] == "admin")
        return committed(events) >= COMMITTED and any(not each["value"]["error"] for each in churn)

    def cleaned(events: Events) -> bool:
        return (
            committed(events) > 0
            and checkpoint.exists()
            and "compacted 0 " in checkpoint.read_text()
        )

    with Cluster(KEYS, data_dir=directory) as cluster:
        for enough, *words in ((moved, "-w", "queue", "--churn"), (cleaned, "-w", "compacted")):
            history = directory / f"history-{words[1]}"
            servers = cluster.bootstrap_servers
            done = run_until(enough, servers, history, "--keep", "-p", "2", *words)
            assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture
def brokers(stopped: Path, tmp_path: Path) -> list[Path]:
    names = [f"broker-{number}" for number in (1, 2, 3)]
    return [Path(shutil.copytree(stopped / name, tmp_path / name)) for name in names]


def replicas(*directories: Path) -> Result:
    return CliRunner().invoke(cli, ["verify", "replicas", *map(str, directories), "--json"])


def names(directories: list[Path]) -> set[str]:
    done = replicas(*directories)
    found = {each["name"] for each in json.loads(done.stdout)["anomalies"]}
    assert done.exit_code == (3 if found else 0)
    return found


def of_queue(broker: Path) -> Path:
    """Return the partition of the queue with the longest log."""
    logs = broker.glob("verify-*-queue-[01]/*.log")
    return max(logs, key=lambda path: path.stat().st_size).parent


def test_replicas_of_a_cluster_that_was_stopped_are_equal(brokers: list[Path]) -> None:
    done = replicas(*brokers)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["anomalies"]) == (0, [])
    written = sum(1 for _ in brokers[0].glob("verify-*-queue-[0-9]"))
    assert found["partitions"] >= written + 4
    assert found["batches"] >= 4 * COMMITTED
    assert list(of_queue(brokers[0]).glob("*.snapshot"))


def test_verify_replicas_refuses_a_single_replica(brokers: list[Path]) -> None:
    assert replicas(brokers[0]).exit_code == 4


def test_verify_replicas_refuses_a_directory_that_is_not_a_log_directory(tmp_path: Path) -> None:
    done = replicas(tmp_path)
    assert done.exit_code == 1
    assert "is not a log directory" in done.stderr


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage(partition: Path) -> None:
    flip(min(partition.glob("*.log")), 70)


def change_the_epoch_of_a_batch(partition: Path) -> None:
    # The CRC does not cover this byte.
    flip(min(partition.glob("*.log")), 15)


def lose_the_first_batch(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data[12 + int.from_bytes(data[8:12]) :])


def cut_the_end(partition: Path) -> None:
    last = max(path for path in partition.glob("*.log") if path.stat().st_size)
    last.write_bytes(last.read_bytes()[:-1])


def forget_an_epoch(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")


def spoil_the_epochs(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")


def take_the_snapshot_of_another_log(partition: Path) -> None:
    other = next(path for path in partition.parent.glob("__transaction_state-*/*.snapshot"))
    max(partition.glob("*.snapshot")).write_bytes(other.read_bytes())


def spoil_a_snapshot(partition: Path) -> None:
    flip(max(partition.glob("*.snapshot")), 20)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (damage, {"damaged-batch", "replica-divergence"}),
        (change_the_epoch_of_a_batch, {"replica-divergence", "wrong-epochs"}),
        (lose_the_first_batch, {"missing-batch", "replica-divergence"}),
        (cut_the_end, {"replica-short", "replica-divergence"}),
        (forget_an_epoch, {"wrong-epochs"}),
        (spoil_the_epochs, {"unreadable-file"}),
        (take_the_snapshot_of_another_log, {"wrong-snapshot", "snapshots-differ"}),
        (spoil_a_snapshot, {"unreadable-file"}),
    ],
)
def test_verify_replicas_reports_a_difference_of_one_broker(
    brokers: list[Path], spoil: Callable[[Path], None], found: set[str]
) -> None:
    spoil(of_queue(brokers[1]))
    assert names(brokers) >= found


def test_verify_replicas_compares_the_uncleaned_part_of_compacted_logs(brokers: list[Path]) -> None:
    (partition, *_) = (path for path in brokers[1].glob("verify-*-compacted-0"))
    cleaned = (brokers[1] / "cleaner-offset-checkpoint").read_text()
    assert "compacted 0 " in cleaned
    damage(partition)
    assert names(brokers) == {"damaged-batch"}
