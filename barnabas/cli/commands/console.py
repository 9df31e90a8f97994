"""`barnabas console`: pages about a cluster in a browser."""

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common import Target, cluster_options, http_options
from barnabas.cli.help import Command
from barnabas.cli.processes.console import NEEDS
from barnabas.operations.answers.console import ConsoleAddress
from barnabas.storage.priority import yield_to_brokers

if TYPE_CHECKING:
    from barnabas.operations.broker_http import HttpAccess


@click.command(cls=Command)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen here."
)
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0: a free one.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name of this console for browsers, besides localhost and addresses.",
)
@click.option("--allow-changes", is_flag=True, help="Offer changes of the cluster too.")
@click.option(
    "--faults",
    metavar="HOST:PORT",
    help="Offer the levers of brokers with --faults; BARNABAS_FAULTS_TOKEN has their token.",
)
@click.option("--no-records", is_flag=True, help="Show no records.")
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="FIELD",
    help="Hide this field of JSON values and this header, and values that are no JSON.",
)
@click.option(
    "--certificate-file",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM file with a certificate, to serve https.",
)
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM file with its key, if that file has none.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Browsers reach this address only through a proxy that speaks TLS.",
)
@http_options
@cluster_options
def console(target: Target, access: "HttpAccess", no_records: bool, **options: Any) -> None:
    """Serve pages about a cluster for browsers, until Ctrl-C.

    They only read, unless --allow-changes is given. Everyone who reaches the address has the rights
    of the client that --command-config describes. If that file has security.protocol=SASL_SSL or
    SASL_PLAINTEXT and no user, each person logs in, and has the rights of their own user.
    """
    try:
        from barnabas.console.app import serve
        from barnabas.console.settings import ConsoleSettings
    except ImportError as error:
        raise click.ClickException(f"{error}; {NEEDS}") from None

    settings = ConsoleSettings(
        bootstrap=target.bootstrap,
        properties=target.properties,
        timeout=target.timeout,
        token=access.token,
        ca_file=access.ca_file,
        faults_token=os.environ.get("BARNABAS_FAULTS_TOKEN"),
        show_records=not no_records,
        **options,
    )

    def started(address: str) -> None:
        text = f"The console is at {address} - stop it with Ctrl-C."
        target.done(text, ConsoleAddress(url=address))

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(settings, started, stop)

    yield_to_brokers()
    asyncio.run(run())
