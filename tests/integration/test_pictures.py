"""The pictures of the documents: screens of commands, made and held up to date here.

    BARNABAS_PICTURES=1 .venv/bin/python -m pytest tests/integration/test_pictures.py

writes them again.
"""

import io
import os
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.text import Text

from barnabas.testing import Broker
from tests.support.command_line import ROOT, Cli, on_a_terminal
from tests.support.newer_producer import NewerProducer

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80
SCREENS = {
    "groups": ("groups", "describe", "billing"),
    "why": ("transactions", "why", "orders"),
}
VARIES = re.compile(r"[\d.,:+-]+\s*(ms|s|min|h)?\b|\s+")
"""Numbers, times, addresses, and the spaces that depend on their width."""


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker({"transaction.state.log.num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def scene(cli: Cli) -> Iterator[None]:
    """A group that has read a part of a topic, and an open transaction that holds it back."""
    cli("topics", "create", "orders", "-p", "2", "--if-not-exists")
    cli("produce", "orders", "-p", "0", stdin=b"order\n" * 40)
    cli("groups", "reset-offsets", "billing", "-t", "orders:0", "--to-offset", "25")
    producer = NewerProducer(cli.servers, "payments-1").init()
    producer.send("orders", 0, b"payment")
    yield
    producer.end(committed=False)


def picture_of(command: tuple[str, ...], screen: str) -> str:
    """Return a screen as SVG, in the reader's own fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ barnabas {' '.join(command)}\n{screen}"), soft_wrap=True)
    drawn = console.export_svg(title="", unique_id=f"barnabas-{command[0]}")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def words_of(picture: str) -> str:
    """Return the text of a picture without what differs from run to run."""
    texts = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return VARIES.sub("", "".join(each.text or "" for each in texts).replace("\xa0", " "))


@pytest.mark.parametrize("name", SCREENS)
def test_picture_shows_what_the_command_prints(name: str, cli: Cli, scene: None) -> None:  # noqa: ARG001
    command, path = SCREENS[name], PICTURES / f"{name}.svg"
    screen = on_a_terminal(cli.servers, *command, columns=COLUMNS).replace("\r\n", "\n")
    now = picture_of(command, screen)
    if os.environ.get("BARNABAS_PICTURES"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    assert words_of(path.read_text()) == words_of(now)
    assert len(words_of(now)) > 100
