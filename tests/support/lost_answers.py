"""Answers of brokers that our client does not get, although the request was carried out."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.schema import Api

_SHARE = 0.3


def lose_answers(monkeypatch: pytest.MonkeyPatch, apis: Iterable[Api], seed: int) -> list[str]:
    """Lose some answers to requests of `apis` from now on; return the list of their names."""
    # Each API has its own generator: the number of requests of one API depends on the machine.
    chances = {api: random.Random(seed) for api in apis}
    lost: list[str] = []
    whole = Connection.request

    async def request(self: Connection, api: Api, *arguments: Any, **options: Any) -> Any:
        answer = await whole(self, api, *arguments, **options)
        if api in chances and chances[api].random() < _SHARE:
            lost.append(api.name)
            raise BrokerUnreachable("the answer is lost")
        return answer

    monkeypatch.setattr(Connection, "request", request)
    return lost
