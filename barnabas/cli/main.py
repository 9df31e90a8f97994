"""The `barnabas` command: it loads a subcommand on first use and prints an error as one line."""

import importlib
import os
import sys
from typing import Any

import click

from barnabas import __version__
from barnabas.cli.help import Group
from barnabas.cli.shared_options import CLUSTER_OPTIONS

GROUPS = {
    "Run brokers": {
        "serve": ("Run a broker.", "barnabas.cli.commands.serve:serve"),
        "cluster": (
            "Run several brokers here; show the state of any cluster.",
            "barnabas.cli.commands.cluster:cluster",
        ),
        "secure": (
            "Make certificates and a password for brokers on several hosts.",
            "barnabas.cli.commands.secure:secure",
        ),
        "metadata": (
            "Move a broker's metadata to ZooKeeper, and protect it there.",
            "barnabas.cli.commands.metadata:metadata",
        ),
    },
    "Topics and records": {
        "topics": (
            "List, describe, analyze, create, alter and delete topics.",
            "barnabas.cli.commands.topics:topics",
        ),
        "produce": (
            "Produce the lines of standard input or a file.",
            "barnabas.cli.commands.produce:produce",
        ),
        "consume": (
            "Print the records of topics as lines.",
            "barnabas.cli.commands.consume:consume",
        ),
        "groups": (
            "Describe and delete consumer groups; reset offsets.",
            "barnabas.cli.commands.groups:groups",
        ),
        "transactions": (
            "List, explain, abort, fence and repair transactions.",
            "barnabas.cli.commands.transactions:transactions",
        ),
    },
    "Operate a cluster": {
        "console": (
            "Serve pages about a cluster for browsers.",
            "barnabas.cli.commands.console:console",
        ),
        "brokers": (
            "List, describe and drain the brokers of a cluster.",
            "barnabas.cli.commands.brokers:brokers",
        ),
        "configs": ("Describe and change configurations.", "barnabas.cli.commands.configs:configs"),
        "partitions": (
            "Reassign replicas and elect leaders.",
            "barnabas.cli.commands.partitions:partitions",
        ),
        "log-dirs": (
            "Describe log directories; move replicas between them.",
            "barnabas.cli.commands.log_dirs:log_dirs",
        ),
    },
    "Users and their rights": {
        "users": (
            "List, create, change and delete SCRAM users.",
            "barnabas.cli.commands.users:users",
        ),
        "acls": (
            "List, add and remove access control rules; explain a decision.",
            "barnabas.cli.commands.acls:acls",
        ),
        "tokens": (
            "Create, renew, expire and describe delegation tokens.",
            "barnabas.cli.commands.tokens:tokens",
        ),
        "quotas": (
            "List, set and remove quotas of users, clients and addresses.",
            "barnabas.cli.commands.quotas:quotas",
        ),
    },
    "Check and measure": {
        "verify": (
            "Test whether a cluster keeps its guarantees.",
            "barnabas.cli.commands.verify:verify",
        ),
        "benchmark": (
            "Measure produce and consume.",
            "barnabas.cli.commands.benchmark.group:benchmark",
        ),
        "dump-log": ("Show the contents of log files.", "barnabas.cli.commands.dump_log:dump_log"),
        "debug": ("Collect what a bug report needs.", "barnabas.cli.commands.debug:debug"),
    },
    "Jobs on Spark": {
        "pipeline": (
            "Run, check and verify jobs on Spark.",
            "barnabas.cli.commands.pipeline:pipeline",
        ),
    },
    "This command line": {
        "profile": (
            "Keep clusters under names, and choose one.",
            "barnabas.cli.commands.profile:profile",
        ),
        "schema": (
            "Print the JSON Schema of a command's --json.",
            "barnabas.cli.commands.schema:schema",
        ),
        "completion": (
            "Print the completion script of a shell.",
            "barnabas.cli.commands.completion:completion",
        ),
    },
}
"""The commands by the headings of the help: the text and the place of each."""
_COMMANDS = {name: each for group in GROUPS.values() for name, each in group.items()}

_SIGPIPE = 128 + 13
"""The exit code that a shell reports for a program whose reader closed the pipe (SIGPIPE is 13)."""


class _LazyGroup(Group):
    """A group that imports the module of a command on its first use.

    So `serve` does not pay for the imports of `consume`.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader closed the pipe. Flushing the buffer at exit must not fail a second time.
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a command for one that does not exist: Click knows the loaded ones only."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from barnabas.config.spelling import closest

            if close := closest(args[0], _COMMANDS, 0.6):
                text = f"{error.message} Did you mean {close!r}?"
                raise click.UsageError(text, error.ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [(f"{name:{widest}}", text) for name, (text, _) in commands.items()]
                formatter.write_dl(rows)
        with formatter.section("Options of the commands that ask a cluster"):
            records = (each.get_help_record(ctx) for each in CLUSTER_OPTIONS)
            formatter.write_dl([each for each in records if each is not None])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """A message broker that speaks the Kafka protocol, and tools for any Kafka cluster."""


def main() -> None:
    """Run the command line and exit: 0, 1 for a failure (one line says which), 2 for wrong usage.

    The exit code is 130 after Ctrl-C, and 141 if the reader of the output has closed the pipe.
    """
    if sys.platform == "win32":
        click.echo("barnabas: Windows is not supported: use WSL or the container", err=True)
        sys.exit(1)
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
        from barnabas.cli.tables import tell

        tell(f"barnabas: {explain(error)}", err=True)
        sys.exit(1)
