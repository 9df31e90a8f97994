"""The memory of a connection: what it remembers, and when it leaves a request to the handler."""

from dataclasses import replace
from struct import Struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from barnabas.broker.server import repeats
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import (
    COST,
    COST_OF_ELEMENT,
    FEW,
    LARGEST,
    MOST,
    MOST_ELEMENTS,
    MOST_SHAPES,
    Repeat,
    RepeatByElement,
    Repeats,
)
from barnabas.broker.transactions.verification_request import VERIFICATIONS, VerificationRequest
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header, encode_response_header
from barnabas.protocol.messages import add_partitions_to_txn
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.protocol.messages.end_txn import API, EndTxnRequest, EndTxnResponse
from barnabas.protocol.template import Templates
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.principal import ANONYMOUS
from tests.support.mutants import cases, finds, hunt

VERSION = 5
CONTEXT = RequestContext(API.key, VERSION, 1, "client", ANONYMOUS, "PLAINTEXT", "host", 1, 0)
NOW_MS = 12_345
PARTITION = TopicPartition("t", 0)


class Rig:
    """A memory, and the handler of EndTxn behind it."""

    def __init__(self) -> None:
        self.repeats = Repeats(API, VERSION, self._remember)
        self.may_repeat = True
        self.certain = True
        self.known = 0
        self.seen: list[Any] = []
        self.context = CONTEXT

    def _remember(self, _request: Any, _context: RequestContext, _response: Any) -> Any:
        fields, answers = ("producer_id",), ("producer_id", "producer_epoch")
        basis = (self.known,)
        return Repeat(self._again, *basis, fields, answers, basis) if self.may_repeat else None

    def _again(self, known: int, now_ms: int, values: tuple[Any, ...]) -> Any:
        self.seen.append((known, now_ms, *values))
        return (*values, 7) if self.certain else None

    def learn(self, name: str = "x", *, behind: bytes = b"") -> None:
        request, response = _request(name, 1), EndTxnResponse(producer_id=1, producer_epoch=0)
        self.repeats.learn(_frame(request, 1, behind), request, self.context, response)

    def serve(self, name: str = "x", producer: int = 5, *, behind: bytes = b"") -> Any:
        return self.repeats.serve(_frame(_request(name, producer), 7, behind), NOW_MS)


def _request(name: str, producer: int) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer, producer_epoch=2, committed=True
    )


def _frame(request: Any, number: int, behind: bytes = b"", client: str = "client") -> memoryview:
    header = encode_request_header(API.key, VERSION, number, client)
    return memoryview(header + encode(request, VERSION) + behind)


def test_request_with_another_value_gets_the_answer_with_its_own() -> None:
    rig = Rig()
    assert rig.serve() is None
    rig.learn()
    answer = EndTxnResponse(producer_id=5, producer_epoch=7)
    expected = encode_response_header(API.key, VERSION, 7) + encode(answer, VERSION)
    assert rig.serve() == [Struct(">i").pack(len(expected)) + expected]
    assert rig.seen == [(0, NOW_MS, 5)]


TOO_LARGE = "if sum(map(len, template.constants)) > LARGEST:"


@cases(
    "name, behind, may_repeat, certain",
    ("x", b"", True, False, (Repeats.serve, "if answer is None:", "if False:")),
    ("x", b"", False, True),
    ("x", b"\0", True, True),
    ("x" * LARGEST, b"", True, True, (Repeats._learn_request, TOO_LARGE, "if False:")),
)
def test_request_that_does_not_certainly_repeat_is_not_served(
    name: str, behind: bytes, may_repeat: bool, certain: bool
) -> None:
    rig = Rig()
    rig.may_repeat, rig.certain = may_repeat, certain
    rig.learn(name, behind=behind)
    assert rig.serve(name, behind=behind) is None


@finds(Templates.find, "if size == fixed:", "if True:")
def test_request_that_says_something_else_is_not_served() -> None:
    rig = Rig()
    rig.learn()
    assert rig.serve("y") is None
    assert rig.serve("xx") is None
    assert rig.serve(behind=b"\0") is None
    other = _frame(_request("x", 5), 7, client="client2")
    assert rig.repeats.serve(other, NOW_MS) is None


def test_client_whose_requests_cannot_be_remembered_rarely_pays_for_the_attempt() -> None:
    for name, behind in (("x", b"\0"), ("x" * LARGEST, b"")):
        rig = Rig()
        with patch.object(repeats, "template_of", wraps=repeats.template_of) as made:
            for _ in range(3 * COST):
                rig.learn(name, behind=behind)
        assert 1 < made.call_count < 9
        rig.learn("y")
        while rig.serve("y") is None:
            rig.learn("y")


@finds(Repeats._learn_request, "found[0][2] == repeat.basis", "True")
def test_changed_basis_takes_the_place_of_the_old() -> None:
    rig = Rig()
    rig.learn()
    rig.known = 3
    rig.learn()
    rig.serve()
    assert rig.seen == [(3, NOW_MS, 5)]
    assert rig.repeats.count == 1


@finds(Repeats.serve, "self._asker.standing() is not self._standing", "False")
@finds(Repeats.learn, "self._templates.clear()", "pass")
@finds(Repeats.learn, "if asker is not None and standing is None:", "if False:")
def test_changed_rules_void_what_is_remembered() -> None:
    rig, rules = Rig(), [object()]
    asker: Any = SimpleNamespace(standing=lambda: rules[0])
    rig.context = replace(CONTEXT, asker=asker)
    rig.learn()
    rig.learn("y")
    assert rig.serve() is not None
    rules[0] = object()
    assert rig.serve() is None
    rig.learn()
    assert rig.serve() is not None
    # It was allowed by the earlier rules.
    assert rig.serve("y") is None
    # Each request has to be asked for.
    rules[0] = None
    for _ in range(2):
        assert rig.serve() is None
        rig.learn()


@finds(Repeats._has_room, "self._templates.count >= most or ")
@finds(Repeats._has_room, "if self._credit < most * cost:", "if False:")
def test_connection_remembers_a_bounded_number_of_requests() -> None:
    rig = Rig()
    for number in range(MOST + 1):
        rig.learn(f"{number:02}")
    assert rig.repeats.count == MOST
    assert rig.serve("00") is not None
    assert rig.serve(f"{MOST:02}") is None
    for _ in range(MOST * COST):
        rig.learn("00")
    rig.learn("new")
    assert rig.serve("new") is not None
    assert rig.serve("00") is None


# --- requests whose elements repeat


class Elements:
    """A memory, and the handler of the questions of leaders behind it."""

    def __init__(self) -> None:
        self.repeats = Repeats(add_partitions_to_txn.API, VERSION, self._remember)
        self.certain = True
        self.seen: Any = None
        self.context = CONTEXT

    def _remember(self, request: AddPartitionsToTxnRequest, *_: Any) -> Any:
        known = [each.transactional_id for each in request.transactions]
        return RepeatByElement(self._again, VERIFICATIONS, known)

    def _again(self, asked: Any) -> Any:
        self.seen = asked
        return [()] * len(asked) if self.certain else None

    def frame(self, *names: str, client: str = "client", behind: bytes = b"") -> memoryview:
        header = encode_request_header(API.key, VERSION, 7, client)
        return memoryview(header + encode(_questions(*names), VERSION) + behind)

    def learn(self, *names: str, client: str = "client", behind: bytes = b"") -> None:
        frame = self.frame(*names, client=client, behind=behind)
        self.repeats.learn(frame, _questions(*names), self.context, _accepted(*names))

    def serve(self, *names: str, **options: Any) -> Any:
        return self.repeats.serve(self.frame(*names, **options), NOW_MS)


def _asked(*names: str) -> list[VerificationRequest]:
    return [VerificationRequest(name, Producer(len(name), 1), [PARTITION], False) for name in names]


def _questions(*names: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[each.question() for each in _asked(*names)])


def _accepted(*names: str) -> AddPartitionsToTxnResponse:
    results = [each.accepted() for each in _asked(*names)]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def test_known_elements_are_served_in_any_combination() -> None:
    rig = Elements()
    rig.learn("a", "bb")
    rig.learn("c")
    for names in (("a",), ("c", "a"), ("bb", "c", "bb")):
        expected = encode_response_header(API.key, VERSION, 7) + encode(_accepted(*names), VERSION)
        assert rig.serve(*names) == [Struct(">i").pack(len(expected)) + expected]
        assert rig.seen == [(name, (len(name), 1)) for name in names]


@finds(Repeats._serve_by_element, "if answers is None:", "if False:")
@finds(Repeats._serve_by_element, "if not 0 < count <= FEW:", "if count > FEW:")
def test_request_with_an_unknown_or_uncertain_element_is_not_served() -> None:
    rig = Elements()
    rig.learn("a")
    assert rig.serve("b") is None
    assert rig.serve("a", "b") is None
    assert rig.serve() is None
    rig.certain = False
    assert rig.serve("a") is None


@finds(Templates.find_at, "if size <= left:", "if True:")
@finds(Repeats._serve_by_element, "not data.startswith(self._head, _CONTENT_AT) or ")
@finds(Repeats._serve_by_element, " or len(data) == at")
@finds(Repeats._serve_by_element, "if data[at:] != form.request.behind:", "if False:")
@finds(Repeats._learn_elements, "if data[body:] != encode(request, self._version):", "if False:")
@finds(Repeats._learn_elements, " or head != self._head")
def test_other_bytes_around_elements_are_not_served() -> None:
    rig = Elements()
    rig.learn("a")
    assert rig.serve("a", behind=b"\0") is None
    assert rig.serve("a", client="clienu") is None
    whole = rig.frame("a")
    for cut in range(8, len(whole)):
        assert rig.repeats.serve(whole[:cut], NOW_MS) is None
    changed = bytearray(whole)
    changed[-1] = 1
    assert rig.repeats.serve(memoryview(changed), NOW_MS) is None
    rig.learn("b", behind=b"\0")
    assert rig.serve("b") is None
    rig.learn("b", client="other")
    assert rig.serve("b") is None
    assert rig.serve("b", client="other") is not None
    # Another client's elements are forgotten.
    assert rig.serve("a", client="other") is None


@finds(Repeats._serve_by_element, " <= FEW")
def test_many_elements_are_not_served() -> None:
    rig = Elements()
    rig.learn("a")
    assert rig.serve(*["a"] * FEW) is not None
    assert rig.serve(*["a"] * (FEW + 1)) is None


def test_connection_remembers_a_bounded_number_of_elements() -> None:
    rig = Elements()
    for number in range(MOST_ELEMENTS + 1):
        rig.learn(f"{number:04}")
    assert rig.repeats.count == MOST_ELEMENTS
    assert rig.serve("0000") is not None
    assert rig.serve(f"{MOST_ELEMENTS:04}") is None
    for _ in range(MOST_ELEMENTS * COST_OF_ELEMENT):
        assert rig.serve("0000") is not None
    rig.learn("new!")
    assert rig.serve("new!") is not None
    assert rig.serve("0000") is None


@finds(Repeats._has_room, " or self._templates.shapes >= MOST_SHAPES")
def test_connection_tries_a_bounded_number_of_shapes() -> None:
    rig = Elements()
    for number in range(MOST_SHAPES + 1):
        rig.learn("x" * (number + 1))
    assert rig.serve("x") is not None
    assert rig.serve("x" * (MOST_SHAPES + 1)) is None


# --- each check


test_missing_check_is_found = hunt(globals())
