"""Favourite topics, in a cookie of the browser."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from barnabas.console.pages import favourites
from barnabas.testing import Broker
from tests.support.running_console import RunningConsole

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    with Broker() as broker:
        for name in ("alpha", "beta", "gamma"):
            broker.create_topic(name)
        with RunningConsole(broker.bootstrap_servers) as console:
            yield console


def toggled(console: RunningConsole, name: str, cookie: str = "") -> str:
    """Press the button of a topic; return the new cookie."""
    answered = console.post(f"/favourite?name={quote(name)}", {"Cookie": cookie})
    assert answered.status == 303, answered.words
    assert answered.headers["Location"] == f"/topic?name={name}"
    made = answered.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= set(made.split("; "))
    return made.partition(";")[0]


def listed(console: RunningConsole, cookie: str) -> list[str]:
    text = console.request("/topics", headers={"Cookie": cookie}).text
    return re.findall(r'name=\w+">(\w+)</a>', text)


def test_favourites_come_first_and_go_again(console: RunningConsole) -> None:
    cookie = toggled(console, "beta", toggled(console, "gamma"))
    assert listed(console, cookie) == ["beta", "gamma", "alpha"]
    page = console.request("/topic?name=beta", headers={"Cookie": cookie})
    assert "No favourite any more" in page.words
    cookie = toggled(console, "beta", cookie)
    assert listed(console, cookie) == ["gamma", "alpha", "beta"]
    assert listed(console, "") == ["alpha", "beta", "gamma"]
    assert "Make it a favourite" in console.get("/topic", name="beta").words


def test_other_site_makes_no_favourite(console: RunningConsole) -> None:
    for headers in ({"Origin": "http://other.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answered = console.post("/favourite?name=alpha", headers)
        assert answered.status == 403
        assert "Set-Cookie" not in answered.headers
    assert console.request("/favourite?name=alpha").status == 405
    assert console.post("/topic?name=alpha").status == 405


def test_cookie_of_others_is_harmless(console: RunningConsole) -> None:
    name = toggled(console, "alpha").partition("=")[0]
    for text in (HOSTILE, "|||", "beta|" + HOSTILE, "x|" * 5000 + "beta", '"'):
        page = console.request("/topics", headers={"Cookie": f"{name}={text}"})
        assert page.status == 200
        assert page.code == []
        assert "alert" not in page.text


def test_favourites_are_bounded(console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(favourites, "MOST", 1)
    cookie = toggled(console, "alpha")
    refused = console.post("/favourite?name=beta", {"Cookie": cookie})
    assert refused.status == 400
    assert "too many favourites" in refused.words
    assert console.post("/favourite?name=none", {"Cookie": ""}).status == 404
    assert console.post(f"/favourite?name={quote(HOSTILE)}").status in (400, 404)
