"""The console of `--console`: a child process that ends with its parent.

`python -m barnabas.cli.processes.console` gets its settings in the first line of standard input,
and stops when standard input ends. Brokers never import it.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from barnabas.storage.priority import yield_to_brokers

if TYPE_CHECKING:
    from barnabas.cli.processes.secure import Secured

NEEDS: Final = "the console needs: pip install 'barnabas[console]'"
_STOP_S: Final = 5.0


class Beside(NamedTuple):
    """A console for brokers, and their properties."""

    start: Callable[[str], None] | None
    """The function that starts a console for the brokers at an address; None without one."""
    properties: Mapping[str, str]


@contextmanager
def console_child(
    option: str | None, secured: "Secured | None", properties: Mapping[str, str], brokers: int
) -> Iterator[Beside]:
    """Yield a console for some brokers, and their properties: each serves its events to it.

    `option` is the HOST:PORT of --console. Raises ClickException.
    """
    if option is None:
        yield Beside(None, properties)
        return
    if (
        find_spec("starlette") is None
        or find_spec("uvicorn") is None
        or find_spec("jinja2") is None
    ):
        raise click.ClickException(NEEDS)
    # Imported here: without the option nothing of it is.
    from barnabas.client.cluster import parse_address
    from barnabas.faults.ports import ReservedPorts

    try:
        host, port = parse_address(option)
    except ValueError as error:
        raise click.ClickException(f"--console: {error}") from None
    # Without a user: each person logs in.
    client = {} if secured is None else secured.client_properties
    child, ports = _ConsoleChild(host, port, client), ReservedPorts()
    try:
        # Everyone on the machine may ask such an endpoint, and a broker that restarts finds its
        # port free.
        if secured is None and "metrics.listener" not in properties:
            first = ports.take_in_a_row(brokers)
            properties = {**properties, "metrics.listener": f"127.0.0.1:{first}"}
        yield Beside(child.start, properties)
    finally:
        child.stop()
        ports.release()


class _ConsoleChild:
    """The process of a console."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str]) -> None:
        self._host = host
        self._port = port
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, servers: str) -> None:
        """Start the process, without waiting until it serves: it prints its address itself."""
        import json

        settings = {
            "bootstrap": servers,
            "host": self._host,
            "port": self._port,
            "properties": self._properties,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            # Ctrl-C must reach the parent only, which ends the console after the brokers.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        # The pipe holds far more than a line.
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End the standard input of the process; kill it if it does not end soon."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# -- in the child ----------------------------------------------------------------------------------


async def _serve(line: bytes) -> None:
    from barnabas.console.app import serve
    from barnabas.console.settings import ConsoleSettings

    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop_with_parent() -> None:
        while os.read(0, 1024):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=stop_with_parent, name="parent", daemon=True).start()
    await serve(
        ConsoleSettings.model_validate_json(line),
        lambda address: click.echo(f"  console:  {address}"),
        stop,
    )


def main() -> int:
    """Serve the console until standard input ends; return the exit code."""
    from barnabas.cli.failures import explain

    yield_to_brokers()
    # Unbuffered: a buffer would swallow the end.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    try:
        asyncio.run(_serve(line))
    except (OSError, ValueError) as error:
        click.echo(f"console: {explain(error)}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
