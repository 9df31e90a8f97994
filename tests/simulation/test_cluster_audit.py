"""The audit of the simulated cluster, on fake replicas."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.cluster.audit import Audit


class _Replica:
    """A replica of one partition, equal on every broker."""

    topic, index, leader_epoch, partition_epoch, is_leader = "t", 0, 0, 0, False
    high_watermark = 0
    isr = (1, 2)
    isr_state = SimpleNamespace(isr=isr)
    log = SimpleNamespace(
        high_watermark=0,
        log_end_offset=0,
        log_start_offset=0,
        truncating=False,
        log_dir=SimpleNamespace(failure=None),
    )

    def lead(self, epoch: int) -> None:
        self.is_leader, self.leader_epoch = True, epoch


def _node(broker_id: int, replica: _Replica) -> Any:
    return SimpleNamespace(
        id=broker_id,
        name=f"n{broker_id}",
        running=True,
        ready=False,
        hosts=[None],
        broker=SimpleNamespace(_replication=SimpleNamespace(replicas=[replica])),
    )


def test_audit_finds_two_leaders_of_one_epoch_with_the_same_isr() -> None:
    first, second = _Replica(), _Replica()
    nodes = [_node(1, first), _node(2, second)]
    audit = Audit()
    first.lead(1)
    audit.glance(nodes)
    first.is_leader = False
    second.lead(2)
    audit.glance(nodes)
    first.lead(3)
    second.lead(3)
    with pytest.raises(AssertionError, match="1 and 2 lead epoch 3"):
        audit.glance(nodes)
