"""Mutants of the sink's protocol: each has one step left out, moved or weakened."""

from collections.abc import Sequence

from barnabas.operations.sinks.decisions import SinkDecision, decode
from barnabas.pipeline.sink.port import OpenTransaction
from barnabas.pipeline.sink.protocol import Abort, Attempt, Commit
from barnabas.protocol.errors import KafkaError
from tests.support.sink.story import Gate, Protocols


class _NoList(Attempt):
    async def list_open(self) -> None:
        """Do nothing."""


class WithoutList(Protocols):
    """Step 1 left out."""

    class commit(_NoList, Commit): ...

    class abort(_NoList, Abort): ...


class _LateList(Attempt):
    async def list_open(self) -> None:
        """Do nothing."""

    async def clean(self, *decisions: SinkDecision | None) -> None:
        await Attempt.list_open(self)
        await super().clean(*decisions)


class ListBeforeCleaning(Protocols):
    """Step 1 moved behind step 6."""

    class commit(_LateList, Commit): ...

    class abort(_LateList, Abort): ...


class WithoutFence(Protocols):
    """Step 2 left out: every driver has an id of its own."""

    fences = False


class _LateFence(Commit):
    async def fence(self) -> None:
        """Do nothing."""

    async def hold(self) -> None:
        await super().hold()
        await Attempt.fence(self)


class FenceAfterPins(Protocols):
    """Step 2 moved behind step 3."""

    commit = _LateFence


class _NoPins(Commit):
    async def hold(self) -> None:
        """Do nothing."""


class WithoutPins(Protocols):
    """Step 3 left out."""

    commit = _NoPins


class _LatePins(Commit):
    async def hold(self) -> None:
        """Do nothing."""

    async def decide(self) -> None:
        await super().decide()
        await super().hold()


class PinsAfterDecision(Protocols):
    """Step 3 moved behind step 6."""

    commit = _LatePins


class _NoLook(Attempt):
    async def look_back(self) -> None:
        """Do nothing."""


class WithoutLookBack(Protocols):
    """Step 5 left out of commits."""

    class commit(_NoLook, Commit): ...


class AbortWithoutLookBack(Protocols):
    """Step 5 left out of aborts."""

    class abort(_NoLook, Abort): ...


class _EarlyLook(Commit):
    async def write(self, decision: SinkDecision) -> None:
        self.offset = -1
        stored = await self.port.last_decision(None)
        await super().write(decision)
        if stored is not None:
            self.last = decode(stored.value)

    async def look_back(self) -> None:
        """Do nothing."""


class LookBackBeforeWriting(Protocols):
    """Step 5 moved before step 4: the read may be a deposed leader's."""

    commit = _EarlyLook


class _CleanById(Attempt):
    async def clean(self, *decisions: SinkDecision | None) -> None:
        """Abort with the identity of this time."""
        rows = await self.port.describe([each.transactional_id for each in self.listed])
        self.listed = [each for each in rows if each is not None]
        await super().clean(*decisions)


class CleanById(Protocols):
    """Step 8 aborts an id, with any identity."""

    class commit(_CleanById, Commit): ...

    class abort(_CleanById, Abort): ...


class _KeepById(Attempt):
    async def clean(self, *decisions: SinkDecision | None) -> None:
        ids = {each.transactional_id for last in decisions if last for each in last.winners}
        self.listed = [each for each in self.listed if each.transactional_id not in ids]
        await super().clean(*decisions)


class LeaveOutById(Protocols):
    """Step 8 leaves out every transaction whose id a decision names."""

    class commit(_KeepById, Commit): ...

    class abort(_KeepById, Abort): ...


class ReuseUnchecked(Protocols):
    """Tasks use an id again without asking its coordinator."""

    checks_reuse = False


class _Trusting(Commit):
    async def decide(self) -> None:
        try:
            await self.port.end_decision(committed=True)
        except KafkaError as error:
            await self.refuse("fenced", error)


class FencedMeansAborted(Protocols):
    """Step 6 takes a refusal for an abort, without asking the log."""

    commit = _Trusting


class _Blind(Gate):
    async def describe(self, transactional_ids: Sequence[str]) -> list[OpenTransaction | None]:
        return [None for _ in transactional_ids]


class TrustsFirstPin(Protocols):
    """Step 7 does not ask who may end a transaction that is open still."""

    gate = _Blind


ALL = tuple(each for each in Protocols.__subclasses__() if each.__module__ == __name__)
