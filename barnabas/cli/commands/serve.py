"""`barnabas serve`: one broker in this process, or several brokers in separate processes."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.commands.secure import secure_options, secured
from barnabas.cli.files import AddressFile
from barnabas.cli.help import Command
from barnabas.cli.processes.console import console_child
from barnabas.cli.settings import (
    DEFAULT_LISTENER,
    LOG_FORMS,
    LOG_LEVELS,
    LogOptions,
    address_file_option,
    console_option,
    faults_option,
    merged,
    property_sources,
)
from barnabas.cli.tables import fold

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cli.processes.secure import Secured
    from barnabas.config.broker import BrokerConfig


AUTO = "auto"


class _Processes(click.IntRange):
    """A number of processes, or AUTO."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return AUTO if value == AUTO else super().convert(value, param, ctx)


@click.command(cls=Command)
@click.option(
    "-l",
    "--listen",
    metavar="HOST:PORT",
    help=f"Address of the listener for clients [{DEFAULT_LISTENER}].",
)
@click.option(
    "-d",
    "--data",
    type=click.Path(path_type=Path),
    help="Log directory (log.dirs) [$XDG_STATE_HOME/barnabas, or ~/.local/state/barnabas].",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file.",
)
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option("--strict-config", is_flag=True, help="Refuse keys that Kafka does not have either.")
@click.option(
    "--print-config",
    is_flag=True,
    help="Print the value of each key by its source, passwords hidden, and start nothing.",
)
@click.option(
    "--metrics", metavar="HOST:PORT", help="Serve /metrics, /stacks, /events and the probes here."
)
@click.option(
    "--processes",
    type=_Processes(1),
    metavar="N|auto",
    help="Number of broker processes, with consecutive ids and ports. auto: one per core.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    metavar="N",
    help="With --processes: replication factor of internal topics, and of topics created without "
    "one [1: all brokers are on this host].",
)
@address_file_option
@console_option
@faults_option
@secure_options
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    help="Level of the log [info; on a terminal warn before the broker serves, and for "
    "--processes].",
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMS),
    help="Form of the log's lines [console on a terminal, otherwise json].",
)
def serve(
    listen: str | None,
    data: Path | None,
    file: Path | None,
    sets: tuple[str, ...],
    strict_config: bool,
    print_config: bool,
    metrics: str | None,
    processes: int | str | None,
    replicas: int | None,
    address_file: Path | None,
    console: str | None,
    faults: str | None,
    secure: bool,
    secure_directory: Path | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run a broker until SIGINT or SIGTERM.

    KAFKA_... environment variables override the keys of --config; --set and the other options
    override both. CLUSTER_ID is the id for a new cluster; an existing cluster must have that id.

    With --processes the ports of every listener count up by one from broker to broker, and the
    listener between the brokers gets the ports behind those of the first listener. All brokers have
    the same broker.rack, by default this host's name: on ZooKeeper the replicas of a partition are
    then placed on different hosts. auto starts at least as many brokers as have data here.

    Without ZooKeeper all brokers are on this host, where further replicas protect from the crash of
    a process only: topics get one, unless they or a key have a replication factor.
    With --faults each broker has a separate process, which tests can pause and kill.

    With --secure every listener takes TLS, users and access control rules. The first start makes a
    certificate authority, certificates, and the user admin with a random password.
    """
    # Imported late: `barnabas --help` must not pay for a broker.
    from barnabas.config.key import ConfigError

    if replicas is not None and processes is None:
        raise click.UsageError("--replicas needs --processes")
    if print_config and (processes or secure or secure_directory or faults):
        raise click.UsageError("--print-config shows one broker, without what other options add")
    processes = processes or (1 if faults else None)
    options = parse_pairs(sets) | _options(listen, data, metrics)
    log = _log_options(log_level, log_format, several=processes is not None)
    try:
        sources = property_sources(file, options)
        if print_config:
            _print_config(sources, strict_config)
            return
        made = secured(merged(sources), secure, secure_directory, several=processes is not None)
        properties = merged(sources) if made is None else made.properties
        several = _Several(_count(processes, properties), replicas, faults)
        beside = console_child(console, made, properties, several.number or 1)
        with beside as (on, own), AddressFile(address_file, on) as address:
            _run(own, made, strict_config, log, address, several)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _print_config(sources: Mapping[str, Mapping[str, str]], strict: bool) -> None:
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.describe import effective_config

    config = BrokerConfig.from_properties(merged(sources), strict=strict)
    click.echo("\n".join(effective_config(config, sources)), nl=False)


def _run_alone(
    properties: Mapping[str, str],
    made: "Secured | None",
    strict: bool,
    log: LogOptions,
    address: AddressFile,
) -> None:
    from barnabas.cli.processes.broker import run_broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.properties import cluster_id

    requested_id = cluster_id(os.environ)
    config = BrokerConfig.from_properties(properties, strict=strict)
    if made is not None:
        made.add_admin()
    greet = partial(_greet, made, address)
    run_broker(config, log=log, cluster_id=requested_id, on_started=greet)


class _Several(NamedTuple):
    """The options of brokers in processes of their own."""

    number: int | None
    """None for a broker in this process."""
    replicas: int | None
    faults: str | None


def _run(
    properties: Mapping[str, str],
    made: "Secured | None",
    strict: bool,
    log: LogOptions,
    address: AddressFile,
    several: _Several,
) -> None:
    if several.number is None:
        _run_alone(properties, made, strict, log, address)
        return
    from barnabas.cli.processes.supervisor import run_brokers
    from barnabas.config.properties import cluster_id

    run_brokers(
        properties,
        several.number,
        replicas=several.replicas,
        strict=strict,
        log=log,
        cluster_id=cluster_id(os.environ),
        secured=made,
        address=address,
        faults=several.faults,
    )


def _log_options(level: str | None, form: str | None, *, several: bool) -> LogOptions:
    """Return the options of the log, which leaves a terminal to the banner of the start."""
    if level is not None or not sys.stderr.isatty():
        return LogOptions(level or "info", form)
    return LogOptions("warn", form) if several else LogOptions("info", form, until_served="warn")


def _options(listen: str | None, data: Path | None, metrics: str | None) -> dict[str, str]:
    listener = None if listen is None else f"PLAINTEXT://{listen}"
    given = {"listeners": listener, "log.dirs": data, "metrics.listener": metrics}
    return {key: str(value) for key, value in given.items() if value is not None}


def _count(processes: int | str | None, properties: Mapping[str, str]) -> int | None:
    if not isinstance(processes, str):
        return processes
    from barnabas.cli.processes.supervisor import count_cores, count_stored

    return max(count_cores(), count_stored(properties))


def _greet(
    made: "Secured | None", address: AddressFile, broker: "Broker", config: "BrokerConfig"
) -> None:
    directories = ", ".join(config.data_directories)
    servers = broker.bootstrap_servers
    if made is not None:
        made.name_servers(servers)
    address.write(servers)
    first = f"Barnabas serves {servers}; its data is in {directories}."
    click.echo(fold(first, "; ", ";\n  "))
    option = "" if servers == DEFAULT_LISTENER else f" -b {servers}"
    if made is not None:
        # The profile has the address.
        option = ""
        click.echo(made.greeting(servers))
    click.echo(f"  produce:  echo hello | barnabas produce greetings{option}")
    click.echo(f"  consume:  barnabas consume greetings --from beginning{option}")
    click.echo("  stop:     Ctrl-C")
