"""Faults that are put in, and the inputs that have to find them."""

from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage
from time import thread_time
from typing import Any

import pytest

from barnabas.broker.server.sasl import Authentication
from barnabas.broker.server.tls import TlsTransport
from barnabas.security.sasl import oauthbearer, plain, scram
from tests.support import fuzz_targets
from tests.support.fuzz_sasl import WEB_KEYS
from tests.support.fuzz_targets import TARGETS, run

CORPUS = Path(__file__).parent / "corpus"


def run_seed(target: str, name: str) -> None:
    run(target, (CORPUS / target / name).read_bytes())


def test_server_that_takes_every_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "_proves", lambda *_: True)
    with pytest.raises(AssertionError, match="forged proof"):
        run_seed("sasl", "scram-wrong")


def test_server_that_takes_expired_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauthbearer.TokenRules, "_check_times", lambda *_: None)
    with pytest.raises(AssertionError, match="forged token"):
        run_seed("sasl", "token-expired")


def test_server_that_takes_every_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {"sub": "alice", "iat": 0, "exp": 1000, "nbf": None, "aud": None}
    monkeypatch.setattr(type(WEB_KEYS.find("k", "EdDSA")), "claims", lambda *_: claims)
    with pytest.raises(AssertionError, match="forged token"):
        run_seed("sasl", "token-other-key")


def test_server_that_takes_every_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain._Digest, "matches", lambda *_: True)
    with pytest.raises(AssertionError, match="wrong password"):
        run_seed("sasl", "plain-wrong")


def test_client_that_takes_every_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram.hmac, "compare_digest", lambda *_: True)  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="forged signature"):
        run_seed("sasl_client", "scram-v")


def test_connection_that_stays_without_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authentication, "_too_late", lambda _: None)
    with pytest.raises(AssertionError, match="has not authenticated"):
        run("authentication", b"\0\0")


def test_connection_that_stays_without_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TlsTransport, "_too_late", lambda _: None)
    with pytest.raises(AssertionError, match="without a handshake"):
        run("tls", b"\0\0")


def test_error_that_only_the_log_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError

    monkeypatch.setattr(Authentication, "handshake", fail)
    with pytest.raises(AssertionError, match="handler failed"):
        run_seed("authentication", "plain")


def test_error_in_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: TlsTransport) -> None:
        raise ValueError

    monkeypatch.setattr(TlsTransport, "_too_late", fail)
    with pytest.raises(AssertionError, match="ValueError"):
        run("tls", b"\0\0")


def test_input_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(_: bytes) -> None:
        end = thread_time() + 1.2 * fuzz_targets.MAX_S
        while thread_time() < end:
            pass

    monkeypatch.setitem(TARGETS, "frame", spin)
    with pytest.raises(AssertionError, match="an input of 1 bytes takes 0"):
        run("frame", b"x")


def test_input_that_takes_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    unused = 1024 * getrusage(RUSAGE_SELF).ru_maxrss - pages * getpagesize()
    monkeypatch.setitem(TARGETS, "frame", lambda _: b"x" * (unused + 100 * 1024 * 1024))
    with pytest.raises(AssertionError, match="MB"):
        run("frame", b"x")
