"""`barnabas acls`: list, add and remove access control rules, and explain decisions."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Final, TypeVar

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.tables import tell
from barnabas.client.admin import Admin
from barnabas.operations.access_rules import (
    OPERATIONS,
    Code,
    Question,
    code_named,
    explain,
    principal_named,
    rule_row,
)
from barnabas.operations.answers.acls import Rule
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    unsupported_operation,
)
from barnabas.security.principal import Principal

Command = TypeVar("Command", bound=Callable[..., Any])
_OPERATIONS: Final = (AclOperation.ALL, *OPERATIONS)
_PATTERNS: Final = {each.name.lower(): each for each in PatternType if each}
_Op, _Kind = AclOperation, ResourceType
_PRODUCER: Final = {
    _Kind.TOPIC: (_Op.WRITE, _Op.DESCRIBE, _Op.CREATE),
    _Kind.TRANSACTIONAL_ID: (_Op.WRITE, _Op.DESCRIBE),
}
_CONSUMER: Final = {_Kind.TOPIC: (_Op.READ, _Op.DESCRIBE), _Kind.GROUP: (_Op.READ,)}


@click.group(cls=Group)
def acls() -> None:
    """List, add and remove access control rules; explain a decision.

    The options have the names that they have in kafka-acls.
    """


def _resource_options(command: Command) -> Command:
    """Add the options that name resources, passed to the command as `resources`: types and
    names."""
    kinds = {
        "topic": _Kind.TOPIC,
        "group": _Kind.GROUP,
        "transactional_id": _Kind.TRANSACTIONAL_ID,
        "delegation_token": _Kind.DELEGATION_TOKEN,
        "user_principal": _Kind.USER,
    }

    @functools.wraps(command)
    def wrapped(*args: Any, cluster: bool, **kwargs: Any) -> Any:
        found = [(kind, name) for option, kind in kinds.items() for name in kwargs.pop(option)]
        if cluster:
            found.append((_Kind.CLUSTER, CLUSTER_NAME))
        return command(*args, resources=found, **kwargs)

    decorated: Any = click.option("--cluster", is_flag=True, help="The cluster itself.")(wrapped)
    for option, kind in reversed(kinds.items()):
        flag = f"--{option.replace('_', '-')}"
        decorated = click.option(flag, multiple=True, help=f"Name of a {_words(kind)}.")(decorated)
    return decorated  # type: ignore[no-any-return]


def _words(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")


def _one_of(codes: Iterable[Code], text: str) -> Code:
    with _usage():
        return code_named(codes, text)


def _principal(text: str) -> Principal:
    with _usage():
        return principal_named(text)


@contextmanager
def _usage() -> Iterator[None]:
    """Make a wrong text an error of usage."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _show(target: Target, rules: Iterable[AclBinding]) -> None:
    target.show(Rule, [rule_row(rule) for rule in sorted(rules)])


def _filters(
    resources: Sequence[tuple[ResourceType, str]],
    principals: Iterable[str],
    how: PatternType,
    operations: Iterable[AclOperation] = (_Op.ANY,),
) -> Iterable[AclFilter]:
    """Yield the filters of all these together; without resources or principals, of any."""
    of: Sequence[tuple[ResourceType, str | None]] = resources or [(_Kind.ANY, None)]
    who: Sequence[str | None] = [str(_principal(each)) for each in principals] or [None]
    for (kind, name), principal, operation in product(of, who, operations):
        yield AclFilter(kind, name, how, principal, operation=operation)


_pattern_choice = click.Choice(list(_PATTERNS), case_sensitive=False)


@acls.command("list")
@_resource_options
@click.option("--principal", multiple=True, help="Only rules of this principal.")
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=_pattern_choice,
    default="match",
    show_default=True,
    help="How the names of patterns are compared; match: all that apply to the resource.",
)
@cluster_options
def list_rules(
    target: Target,
    resources: list[tuple[ResourceType, str]],
    principal: tuple[str, ...],
    pattern: str,
) -> None:
    """List rules: all, or those of resources and principals."""
    filters = list(_filters(resources, principal, _PATTERNS[pattern]))

    async def work(admin: Admin) -> set[AclBinding]:
        return {rule for each in filters for rule in await admin.describe_acls(each)}

    _show(target, target.administer(work))


def _rule_options(command: Command) -> Command:
    """Add the options that describe rules."""
    options = (
        click.option(
            "--allow-principal", multiple=True, metavar="TYPE:NAME", help="Allow this principal."
        ),
        click.option(
            "--deny-principal", multiple=True, metavar="TYPE:NAME", help="Deny this principal."
        ),
        click.option("--allow-host", multiple=True, help="Address of allowed clients [all]."),
        click.option("--deny-host", multiple=True, help="Address of denied clients [all]."),
        click.option("--operation", multiple=True, help="Operation, such as Read or Write [All]."),
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=_pattern_choice,
            default="literal",
            show_default=True,
            help="prefixed: names that begin so.",
        ),
        click.option("--producer", is_flag=True, help="The rules of producers; needs --topic."),
        click.option(
            "--consumer", is_flag=True, help="The rules of consumers; needs --topic, --group."
        ),
        click.option(
            "--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return _resource_options(command)


@acls.command()
@_rule_options
@click.option("--force", is_flag=True, help="Add rules that no request can ever ask for.")
@cluster_options
def add(target: Target, force: bool, **given: Any) -> None:
    """Add rules.

    All principals get all operations on all resources that are named:
    `acls add --allow-principal User:alice --producer --topic orders`.
    """
    rules = list(_rules(**given))
    if not rules:
        raise click.UsageError("give --allow-principal or --deny-principal, and a resource")
    for rule in rules:
        if rule.pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise click.UsageError("--resource-pattern-type of a rule is literal or prefixed")
        problem = unsupported_operation(rule)
        if problem and not force:
            raise click.UsageError(f"{problem} (--force adds the rule)")
    target.administer(lambda admin: admin.create_acls(rules))
    _show(target, rules)


@acls.command()
@_rule_options
@click.option("--principal", multiple=True, help="All rules of this principal.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def remove(target: Target, principal: tuple[str, ...], yes: bool, **given: Any) -> None:
    """Remove rules.

    With the options of `add`, exactly the rules that it adds. Without a principal to allow or deny,
    all rules of the resources, or of --principal, or of both.
    """
    filters = [
        AclFilter(*pattern, str(entry.principal), *entry[1:]) for pattern, entry in _rules(**given)
    ] or list(_wide_filters(principal, **given))

    async def find(admin: Admin) -> set[AclBinding]:
        return {rule for each in filters for rule in await admin.describe_acls(each)}

    if not yes:
        found = target.administer(find)
        for rule in sorted(found):
            tell(str(rule), err=True)
        click.confirm(f"Remove {len(found)} rule(s)?", abort=True, err=True)
    _show(target, target.administer(lambda admin: admin.delete_acls(filters)))


def _wide_filters(
    principal: tuple[str, ...],
    *,
    resources: list[tuple[ResourceType, str]],
    operation: tuple[str, ...],
    pattern: str,
    **given: Any,
) -> Iterable[AclFilter]:
    """Return filters of whole resources and principals."""
    unused = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if unused:
        raise click.UsageError(f"{unused[0]} needs --allow-principal or --deny-principal")
    if not (principal or resources):
        raise click.UsageError("name a resource or a principal")
    how = _PATTERNS[pattern] if resources else PatternType.ANY
    operations = [_one_of(_OPERATIONS, each) for each in operation] or [_Op.ANY]
    yield from _filters(resources, principal, how, operations)


def _rules(
    *,
    resources: list[tuple[ResourceType, str]],
    allow_principal: tuple[str, ...],
    deny_principal: tuple[str, ...],
    allow_host: tuple[str, ...],
    deny_host: tuple[str, ...],
    operation: tuple[str, ...],
    pattern: str,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> Iterable[AclBinding]:
    """Yield the rules that options describe. Raises UsageError."""
    kinds = {kind for kind, _ in resources}
    wanted: dict[ResourcePattern, dict[AclOperation, None]] = {}
    if operation and (producer or consumer):
        raise click.UsageError("--producer and --consumer exclude --operation")
    if producer and _Kind.TOPIC not in kinds:
        raise click.UsageError("--producer needs --topic")
    if consumer and not kinds >= {_Kind.TOPIC, _Kind.GROUP}:
        raise click.UsageError("--consumer needs --topic and --group")
    if idempotent and not producer:
        raise click.UsageError("--idempotent needs --producer")
    operations = [_one_of(_OPERATIONS, each) for each in operation] or [_Op.ALL]
    if idempotent:
        wanted[ResourcePattern(_Kind.CLUSTER, CLUSTER_NAME)] = {_Op.IDEMPOTENT_WRITE: None}
    for kind, name in resources:
        how = PatternType.LITERAL if kind is _Kind.CLUSTER else _PATTERNS[pattern]
        of_kind: Iterable[AclOperation] = operations
        if producer or consumer:
            roles = [_PRODUCER] * producer + [_CONSUMER] * consumer
            of_kind = [each for role in roles for each in role.get(kind, ())]
            if not of_kind:
                flag = "--producer" if producer else "--consumer"
                raise click.UsageError(f"{flag} has no rules of a {_words(kind)}")
        wanted.setdefault(ResourcePattern(kind, name, how), {}).update(dict.fromkeys(of_kind))
    for names, hosts, permission in (
        (allow_principal, allow_host, AclPermissionType.ALLOW),
        (deny_principal, deny_host, AclPermissionType.DENY),
    ):
        if hosts and not names:
            kind_of = permission.name.lower()
            raise click.UsageError(f"--{kind_of}-host needs --{kind_of}-principal")
        for resource, of_resource in wanted.items():
            for who, host, what in product(names, hosts or (WILDCARD,), of_resource):
                entry = AccessControlEntry(_principal(who), host, what, permission)
                yield AclBinding(resource, entry)


@acls.command()
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@click.option("--host", default=WILDCARD, help="Address of the client [one that no rule names].")
@cluster_options
def why(target: Target, principal: str, operation: str, resource: str, host: str) -> None:
    """Explain whether a principal may do something, and name the rule that decides.

    `acls why User:alice Read Topic:orders`; RESOURCE is TYPE:NAME, or Cluster.
    """
    with _usage():
        question = Question.parse(principal, operation, resource, host)
    target.done(*target.run(lambda cluster: explain(cluster, question)))
