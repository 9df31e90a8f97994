"""Producer state against its rules in their plainest form."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.storage.producer_bench import Partition, header, load

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclass(frozen=True)
class Sent:
    epoch: int
    first: int
    last: int
    offset: int = -1


class Model:
    """All batches ever appended of one producer, and the rules in their plainest form."""

    def __init__(self) -> None:
        self.batches: list[Sent] = []

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def expect(self, sent: Sent) -> ErrorCode | int | None:
        """Return an error, the offset of a duplicate, or None if the batch is the next one."""
        if not self.batches:
            return None
        newest = self.batches[-1]
        if sent.epoch < newest.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if sent.epoch > newest.epoch:
            return None if sent.first == 0 else OUT_OF_ORDER
        if sent.first == newest.last + 1:
            return None
        for known in [batch for batch in self.batches if batch.epoch == sent.epoch][-5:]:
            if (known.first, known.last) == (sent.first, sent.last):
                return known.offset
        return OUT_OF_ORDER


def answer(log: Partition, producer_id: int, sent: Sent) -> ErrorCode | int | None:
    """Return the answer of the state under test to a batch, in the model's terms."""
    count = sent.last - sent.first + 1
    try:
        duplicate = log.append(header(sent.first, count, producer_id=producer_id, epoch=sent.epoch))
    except KafkaError as error:
        return error.code
    return None if duplicate is None else duplicate.first_offset


@settings(max_examples=200)
@given(st.data())
def test_every_answer_equals_the_models(data: st.DataObject) -> None:
    log = Partition()
    models = {1: Model(), 2: Model()}
    kinds = st.sampled_from(["next", "next", "next", "repeat", "any", "bump", "restart"])
    for kind in data.draw(st.lists(kinds, max_size=40)):
        if kind == "restart":
            log = load(log.state, windows_known=True)
            continue
        producer_id = data.draw(st.sampled_from([1, 2]))
        model = models[producer_id]
        epoch = model.batches[-1].epoch if model.batches else 0
        count = data.draw(st.integers(1, 3))
        sent = Sent(epoch, model.next_sequence, model.next_sequence + count - 1)
        if kind == "repeat" and model.batches:
            sent = data.draw(st.sampled_from(model.batches[-7:]))
        elif kind == "any":
            first = data.draw(st.integers(0, model.next_sequence + 1))
            sent = Sent(data.draw(st.integers(max(epoch - 1, 0), epoch + 1)), first, first + count)
        elif kind == "bump":
            sent = Sent(epoch + 1, 0, count - 1)
        expected = model.expect(sent)
        offset = log.end
        assert answer(log, producer_id, sent) == expected
        if expected is None:
            model.batches.append(Sent(sent.epoch, sent.first, sent.last, offset))
