"""Faults over HTTP, as a test calls them; every answer is held against the OpenAPI document."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import jsonschema

from tests.support.supervised import Parent, running

DEADLINE = 40.0


class FaultRefused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Faults:
    """A client of the faults."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        _, self.document = self.request("GET", "/openapi.json")

    def get(self, path: str, **query: Any) -> Any:
        return self._checked("GET", path, f"?{urlencode(query)}" if query else "")

    def post(self, path: str, **body: Any) -> Any:
        return self._checked("POST", path, "", body)

    def wait(self, lever: int) -> Any:
        return self.post(f"/v1/levers/{lever}/wait")

    def release(self, lever: int) -> Any:
        return self.post(f"/v1/levers/{lever}/release")

    def request(
        self, method: str, target: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Return status and body of an answer."""
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + target, data, {**sent, **headers}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def _checked(self, method: str, path: str, query: str, body: Any = None) -> Any:
        status, answer = self.request(method, path + query, body)
        described = self.document["paths"][re.sub(r"/\d+", self._parameter, path)][method.lower()]
        which = described["responses"]["200" if status == 200 else "default"]
        schema = {
            **which["content"]["application/json"]["schema"],
            "components": self.document["components"],
        }
        jsonschema.validate(answer, schema)
        if status != 200:
            raise FaultRefused(status, answer["error"])
        return answer

    @staticmethod
    def _parameter(found: re.Match[str]) -> str:
        return "/{broker}" if "brokers" in found.string else "/{lever}"


@contextmanager
def served(
    *arguments: str, at: str = "127.0.0.1:0", **variables: str
) -> Iterator[tuple[Parent, str, Faults]]:
    """Run a command with `--faults`; yield it, the address of its brokers, and the faults."""
    with running(*arguments, "--faults", at, **variables) as parent:
        servers = parent.serves()
        _, url, token = parent.says(r"faults: +(http://\S+)/openapi.json, token (\S+)").group(
            0, 1, 2
        )
        yield parent, servers, Faults(url, token)
        parent.process.terminate()
        assert parent.ends() == 0
