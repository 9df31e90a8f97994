"""A cluster whose brokers serve metrics and events."""

import json
import urllib.request
from contextlib import suppress
from typing import Any

from barnabas.testing import Cluster
from tests.support.ports import free_port
from tests.support.waiting import until

Event = dict[str, Any]


class Watched(Cluster):
    """Three processes of brokers with an HTTP endpoint each."""

    def __init__(self) -> None:
        self.endpoints = {broker: f"127.0.0.1:{free_port()}" for broker in (1, 2, 3)}
        super().__init__({"metadata.session.timeout.ms": 3_000}, processes=True)

    def _make_node(self, broker: int):
        self._configs["metrics.listener"] = self.endpoints[broker]
        return super()._make_node(broker)

    def answer(self, broker: int, query: str = "") -> dict[str, Any]:
        address = f"http://{self.endpoints[broker]}/events{query}"
        with urllib.request.urlopen(address, timeout=5) as answer:
            assert answer.headers["content-type"] == "application/json"
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def events(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds, of all brokers that run."""
        found: list[Event] = []
        for broker in self.endpoints:
            with suppress(OSError):
                found += [each | {"of": broker} for each in self.answer(broker)["events"]]
        found.sort(key=lambda each: each["time_ms"])
        return [each for each in found if each["kind"] in kinds]

    def wait_for(self, kind: str, text: str = "", **subject: Any) -> Event:
        """Return the last event of a kind with this subject and with a part of its text."""

        def found() -> list[Event]:
            return [
                each
                for each in self.events(kind)
                if text in each["text"] and subject.items() <= each["subject"].items()
            ]

        until(lambda: bool(found()), lambda: f"{kind}: {self.events(kind)}")
        return found()[-1]
