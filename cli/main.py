"""The `barnabas` command: commands load when they are called, errors are one line."""

import importlib
import os
import sys
from typing import Any

import click

from barnabas import __version__

_COMMANDS = {
    "serve": ("Run a broker.", "barnabas.cli.serve:serve"),
    "cluster": ("Run several brokers on this machine.", "barnabas.cli.cluster:cluster"),
    "topics": ("List, describe, create, alter and delete topics.", "barnabas.cli.topics:topics"),
    "partitions": ("Move replicas and leaders.", "barnabas.cli.partitions:partitions"),
    "log-dirs": (
        "What lies in which directory of a broker; move it.",
        "barnabas.cli.log_dirs:log_dirs",
    ),
    "groups": ("Consumer groups: members, lag, offsets.", "barnabas.cli.groups:groups"),
    "transactions": (
        "What is open and why readers wait; abort, fence, repair.",
        "barnabas.cli.transactions:transactions",
    ),
    "configs": ("Describe and change configurations.", "barnabas.cli.configs:configs"),
    "produce": ("Produce lines of standard input or a file.", "barnabas.cli.produce:produce"),
    "consume": ("Consume records as lines.", "barnabas.cli.consume:consume"),
    "metadata": ("Move a broker's metadata to ZooKeeper.", "barnabas.cli.metadata:metadata"),
    "dump-log": ("Show what a log's files hold.", "barnabas.cli.dump_log:dump_log"),
    "benchmark": ("Measure produce and consume.", "barnabas.cli.benchmark:benchmark"),
    "verify": ("Check what a cluster promises.", "barnabas.cli.verify:verify"),
    "completion": ("Print the shell's completion script.", "barnabas.cli.completion:completion"),
}

_SIGPIPE = 128 + 13
"""What a shell sees of a program whose reader has gone, as of every other in a pipe."""


class _LazyGroup(click.Group):
    """Imports a command's module only when it is called: `serve` need not pay for `consume`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever reads has enough. What is still buffered must not fail on the way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(_SIGPIPE) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][1].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """A message broker that speaks the Kafka protocol, and tools for any Kafka cluster."""


def main() -> None:
    """Runs the command line: exit code 0, 1 for a failure told in one line, 2 for wrong usage.

    130 after Ctrl-C, and 141 where the reader of the output has gone.
    """
    try:
        sys.exit(cli(prog_name="barnabas", standalone_mode=False) or 0)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        if os.environ.get("BARNABAS_TRACEBACK"):
            raise
        from barnabas.cli.failures import explain

        click.echo(f"barnabas: {explain(error)}", err=True)
        sys.exit(1)
