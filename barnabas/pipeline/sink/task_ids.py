"""The transactional ids of one process that runs tasks, `<sinkId>.<process>.<n>`.

No other process uses them, so no task can fence another by accident. An id is used again only when
its coordinator shows that the transaction which was written with it is completed, under no earlier
epoch. An id whose completion cannot be seen stays unused: its transaction may be a winner whose
driver has yet to carry out the decision, and InitProducerId would abort it.
"""

from collections import OrderedDict
from typing import Final

from barnabas.client.producing.partition_queue import ProducerIdAndEpoch

_COMPLETED: Final = {"CompleteCommit", "CompleteAbort"}
"""States of DescribeTransactions in which all markers of a transaction are written.

In Empty the coordinator has never known the transaction of this id; another cannot have ended it.
"""


class TaskIds:
    """The ids of one process for one sink; makes decisions only, it does no I/O."""

    def __init__(self, sink_id: str, process: str) -> None:
        """`process` must be unique among all processes that ever write for this sink."""
        self._prefix = f"{sink_id}.{process}."
        self._made = 0
        self._written: OrderedDict[str, ProducerIdAndEpoch] = OrderedDict()
        """The ids that were written with, the oldest first, each with its identity."""

    def oldest(self) -> tuple[str, ProducerIdAndEpoch] | None:
        """Return the id that was written with longest ago and its identity; None without one."""
        return next(iter(self._written.items()), None)

    def take(self) -> str:
        """Return an id that was never used."""
        self._made += 1
        return f"{self._prefix}{self._made - 1}"

    def take_again(self, transactional_id: str, state: str, shown: ProducerIdAndEpoch) -> bool:
        """Take an id whose coordinator shows this state and identity; False if it may not be used.

        Then the next call of `oldest` returns another id, if there is one.
        """
        written = self._written[transactional_id]
        if not is_completed(written, state, shown):
            self._written.move_to_end(transactional_id)
            return False
        del self._written[transactional_id]
        return True

    def put_back(self, transactional_id: str, written: ProducerIdAndEpoch) -> None:
        """Keep an id for a later task; `written` is the identity of its last transaction.

        An id with an unknown identity, after a failed InitProducerId, is never put back.
        """
        self._written[transactional_id] = written
        self._written.move_to_end(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """Never use an id again that its coordinator does not know any more."""
        del self._written[transactional_id]


def is_completed(written: ProducerIdAndEpoch, state: str, shown: ProducerIdAndEpoch) -> bool:
    """Return whether a coordinator shows that the transaction of an identity is completed.

    With the newer protocol a transaction uses up its epoch, so the epoch is later. With the older
    one it is the same: InitProducerId gave this epoch to this transaction alone, and the one before
    was completed under an earlier epoch, if a deposed coordinator shows that one. Another producer
    id, which follows exhausted epochs, may be the one before or after.
    """
    return (
        state in _COMPLETED
        and shown.producer_id == written.producer_id
        and shown.epoch >= written.epoch
    )
