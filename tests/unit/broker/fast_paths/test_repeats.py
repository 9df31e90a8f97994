"""The fast path of requests that repeat: what it remembers, and when it does not serve."""

from dataclasses import replace
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.fast_paths.repeats import COST, LARGEST, MOST, RepeatFastPath
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_response_header
from barnabas.protocol.messages.end_txn import API, EndTxnResponse
from barnabas.security.principal import ANONYMOUS

VERSION = 3
CONTEXT = RequestContext(API.key, VERSION, 1, "client", ANONYMOUS, "PLAINTEXT", "host", 1, 0)
ANSWER = EndTxnResponse()


class Rules:
    """An authorizer whose rules change."""

    def __init__(self) -> None:
        self.rules: object = object()

    def standing(self) -> object:
        return self.rules


class Rig:
    """A fast path, and the handler behind it."""

    def __init__(self) -> None:
        self.path = RepeatFastPath(API, self._remember, VERSION)
        self.repeats = True
        self.certain = True
        self.served = 0
        self.context = CONTEXT

    def _remember(self, _request: Any, _context: RequestContext, _response: Any) -> Any:
        return self._again if self.repeats else None

    def _again(self) -> bool:
        self.served += self.certain
        return self.certain

    def learn(self, content: bytes = b"same") -> None:
        self.path.learn(frame(content), SimpleNamespace(), self.context, ANSWER)

    def serve(self, content: bytes = b"same", correlation_id: int = 7) -> Any:
        return self.path.serve(frame(content, correlation_id), 0)


def frame(content: bytes, correlation_id: int = 1) -> memoryview:
    return memoryview(Struct(">hhi").pack(API.key, VERSION, correlation_id) + content)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_same_request_gets_the_same_answer_with_its_own_correlation_id(rig: Rig) -> None:
    assert rig.serve() is None
    rig.learn()
    expected = encode_response_header(API.key, VERSION, 7) + encode(ANSWER, VERSION)
    assert rig.serve() == [Struct(">i").pack(len(expected)) + expected]
    assert rig.served == 1


def test_other_request_is_not_served(rig: Rig) -> None:
    rig.learn()
    assert rig.serve(b"sama") is None
    assert rig.serve(b"same ") is None


def test_uncertain_request_is_not_served(rig: Rig) -> None:
    rig.learn()
    rig.certain = False
    assert rig.serve() is None


def test_request_that_may_not_repeat_is_not_remembered(rig: Rig) -> None:
    rig.repeats = False
    rig.learn()
    assert rig.serve() is None


def test_large_request_is_not_remembered(rig: Rig) -> None:
    rig.learn(bytes(LARGEST))
    assert rig.serve(bytes(LARGEST)) is None


def test_changed_rules_void_what_is_remembered(rig: Rig) -> None:
    rules = Rules()
    rig.context = replace(CONTEXT, asker=rules)  # type: ignore[arg-type]
    rig.learn()
    assert rig.serve() is not None
    rules.rules = object()
    assert rig.serve() is None
    rig.learn()
    assert rig.serve() is not None
    rules.rules = None
    assert rig.serve() is None


def test_connection_remembers_a_bounded_number_of_requests(rig: Rig) -> None:
    for number in range(MOST + 1):
        rig.learn(b"%d" % number)
    assert rig.serve(b"0") is not None
    assert rig.serve(b"%d" % MOST) is None
    for _ in range(MOST * COST):
        rig.learn(b"0")
    rig.learn(b"new")
    assert rig.serve(b"new") is not None
    assert rig.serve(b"0") is None
