"""The answer to every request, by the state of a transactional id and the producer that asks.

Producer 1000:0 writes a transaction, which is kept twice (KIP-939), for 1000:1 and then for 1000:2.
The end goes on with 1000:3.
"""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.protocol.errors import KafkaError
from tests.unit.coordinator.transactions import FIRST_ID, A, B, Transactions

PRODUCERS = (
    Producer(FIRST_ID, 0),
    Producer(FIRST_ID, 1),
    Producer(FIRST_ID, 2),
    Producer(FIRST_ID, 3),
    Producer(FIRST_ID + 7, 0),
)
"""The ongoing producer, the former client, the client, the producer after the end, a stranger."""

CODES = {
    ".": "NONE",
    "C": "CONCURRENT_TRANSACTIONS",
    "F": "PRODUCER_FENCED",
    "M": "INVALID_PRODUCER_ID_MAPPING",
    "S": "INVALID_TXN_STATE",
    "A": "TRANSACTION_ABORTABLE",
}

Setting = Callable[[Transactions], None]
Request = Callable[[Transactions, Producer], Any]


def empty(here: Transactions) -> None:
    here.init()


def ongoing(here: Transactions) -> None:
    here.ongoing(A)


def being_kept(here: Transactions) -> None:
    here.ongoing(A)
    here.log.held = True
    here.keep()


def kept(here: Transactions) -> None:
    here.ongoing(A)
    here.keep()
    here.keep()


def pinned(here: Transactions) -> None:
    kept_once = here.ongoing(A)
    assert here.keep(two_phase=True).ongoing == kept_once
    here.keep()


def committing(here: Transactions) -> None:
    kept(here)
    here.end(PRODUCERS[2])


def aborting(here: Transactions) -> None:
    kept(here)
    here.end(PRODUCERS[2], commits=False)


def committed(here: Transactions) -> None:
    committing(here)
    here.mark()


def aborted(here: Transactions) -> None:
    aborting(here)
    here.mark()


REQUESTS: dict[str, Request] = {
    "add, older": lambda here, producer: here.add(producer, B),
    "add, leader": lambda here, producer: here.lead(producer, B),
    "same, leader": lambda here, producer: here.lead(producer, A),
    "verify": lambda here, producer: here.verify(producer, A)[A],
    "commit, older": lambda here, producer: here.end(producer, version=TV0),
    "abort, older": lambda here, producer: here.end(producer, version=TV0, commits=False),
    "commit": lambda here, producer: here.end(producer, version=TV2),
    "abort": lambda here, producer: here.end(producer, version=TV2, commits=False),
    "init": lambda here, producer: here.init(producer),
    "keep": lambda here, producer: here.keep(producer),
    "pin": lambda here, producer: here.keep(producer, two_phase=True),
    "init, new process": lambda here, _: here.init(),
    "keep, new process": lambda here, _: here.keep(),
    "pin, new process": lambda here, _: here.keep(two_phase=True),
}

_KEPT = {
    "add, older": "FFSFM",
    "add, leader": "FFSFM",
    "same, leader": "FFSFM",
    "verify": "FFSFM",
    "commit, older": "FF.FM",
    "abort, older": "FF.FM",
    "commit": "FF.FM",
    "abort": "FF.FM",
    "init": "FFCFF",
    "keep": "FF.FF",
    "pin": "FF.FF",
    "init, new process": "CCCCC",
    "keep, new process": ".....",
    "pin, new process": ".....",
}
_BUSY = {
    "add, older": "CCCCC",
    "add, leader": "CCCCC",
    "same, leader": "CCCCC",
    "commit": "CCCCC",
    "abort": "CCCCC",
    "init": "CCCCC",
    "keep": "CCCCC",
    "pin": "CCCCC",
    "init, new process": "CCCCC",
    "keep, new process": "CCCCC",
    "pin, new process": "CCCCC",
}
_PREPARED = _BUSY | {"verify": "FFFCM", "commit, older": "FFFCM", "abort, older": "FFFCM"}
_COMPLETED = {
    "add, older": "FFF.M",
    "add, leader": "FFF.M",
    "same, leader": "FFF.M",
    "verify": "FFFAM",
    "init": "FF..F",
    "keep": "FF..F",
    "pin": "FF..F",
    "init, new process": ".....",
    "keep, new process": ".....",
    "pin, new process": ".....",
}

ANSWERS: dict[Setting, dict[str, str]] = {
    empty: {
        "add, older": ".FFFM",
        "add, leader": ".FFFM",
        "same, leader": ".FFFM",
        "verify": "AFFFM",
        "commit, older": "SFFFM",
        "abort, older": "SFFFM",
        "commit": "SFFFM",
        "abort": ".FFFM",
        "init": ".FFFF",
        "keep": ".FFFF",
        "pin": ".FFFF",
        "init, new process": ".....",
        "keep, new process": ".....",
        "pin, new process": ".....",
    },
    ongoing: {
        "add, older": ".FFFM",
        "add, leader": ".FFFM",
        "same, leader": ".FFFM",
        "verify": ".FFFM",
        "commit, older": ".FFFM",
        "abort, older": ".FFFM",
        "commit": ".FFFM",
        "abort": ".FFFM",
        # As in Apache Kafka, which looks at the epoch only once the transaction is aborted.
        "init": "CCCCF",
        "keep": ".FFFF",
        "pin": ".FFFF",
        "init, new process": "CCCCC",
        "keep, new process": ".....",
        "pin, new process": ".....",
    },
    being_kept: _BUSY | {"verify": ".FFFM", "commit, older": "CFFFM", "abort, older": "CFFFM"},
    kept: _KEPT,
    pinned: _KEPT,
    committing: _PREPARED,
    aborting: _PREPARED,
    committed: _COMPLETED
    | {
        "commit, older": "FFF.M",
        "abort, older": "FFFSM",
        "commit": "FF.SM",
        "abort": "FFS.M",
    },
    aborted: _COMPLETED
    | {
        "commit, older": "FFFSM",
        "abort, older": "FFF.M",
        "commit": "FFSSM",
        "abort": "FF..M",
    },
}


def test_table_has_every_request_in_every_state() -> None:
    for answers in ANSWERS.values():
        assert answers.keys() == REQUESTS.keys()
        assert {len(codes) for codes in answers.values()} == {len(PRODUCERS)}


@pytest.mark.parametrize(
    ("setting", "fails_over"),
    [
        pytest.param(setting, fails_over, id=f"{setting.__name__}{'-fails-over' * fails_over}")
        for setting in ANSWERS
        for fails_over in (False, True)
        # The next coordinator need not see a step that is not committed.
        if setting is not being_kept or not fails_over
    ],
)
async def test_answer_by_state_and_producer(setting: Setting, fails_over: bool) -> None:
    answered = {}
    for name, request in REQUESTS.items():
        codes = [await _answer(setting, request, each, fails_over) for each in PRODUCERS]
        answered[name] = codes
    assert answered == {
        name: [CODES[code] for code in codes] for name, codes in ANSWERS[setting].items()
    }


async def _answer(setting: Setting, request: Request, producer: Producer, fails_over: bool) -> str:
    here = await Transactions().load()
    setting(here)
    if fails_over:
        here.runtime.resigned(0)
        await here.load()
    before = here.txn
    try:
        answer = request(here, producer)
    except KafkaError as error:
        told = error.code.name
    else:
        told = answer if isinstance(answer, str) else "NONE"
    if told in (CODES["F"], CODES["M"], CODES["S"]):
        assert here.txn == before, f"{told}, but the id has changed"
    return told
