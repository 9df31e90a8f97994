"""Whole SASL exchanges, between a server and a client of ours."""

from collections.abc import Callable
from typing import Any

from barnabas.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    Await,
    Challenge,
    ClientExchange,
    OffLoop,
    ServerExchange,
)

Tamper = Callable[[int, bytes], bytes]


def step(exchange, value=None):
    """Send a value to either side and do its work; return what it yields then."""
    yielded = exchange.send(value)
    while isinstance(yielded, OffLoop | Await):
        yielded = answer(exchange, yielded)
    return yielded


def answer(exchange, work: Any):
    """Send the result of work or of an awaitable that is done, or throw its error."""
    try:
        result = work.function() if isinstance(work, OffLoop) else work.awaitable.result()
    except Exception as error:
        return exchange.throw(error)
    return exchange.send(result)


def converse(
    serve: Callable[[bytes], ServerExchange],
    client: ClientExchange,
    tamper: Tamper = lambda _, message: message,
) -> Authenticated:
    """Run an exchange to its end; `tamper` may replace each message, numbered from 0."""
    message, number, server = step(client), 0, None
    while True:
        message = tamper(number, message)
        try:
            if server is None:
                server = serve(message)
                challenge = step(server)
            else:
                challenge = step(server, message)
        except StopIteration as returned:
            outcome = returned.value
            break
        assert isinstance(challenge, Challenge)
        message = step(client, tamper(number + 1, challenge.data))
        number += 2
    try:
        step(client, tamper(number + 1, outcome.answer))
    except StopIteration:
        return outcome
    raise AuthenticationFailed("the client goes on after the end")


def outcome_of(exchange: ServerExchange, *messages: bytes) -> Authenticated:
    """Serve an exchange whose further messages are given; return its outcome."""
    try:
        step(exchange)
        for message in messages:
            step(exchange, message)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("the server waits for a further message")
