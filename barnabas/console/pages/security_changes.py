"""The changes of rules, quotas and users with a SCRAM password."""

from collections.abc import Container, Mapping
from typing import Any, Final

from starlette.requests import Request

from barnabas.client.admin import Admin, Entity
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from barnabas.console.changes import Change, Done, Field, Plan, changed
from barnabas.console.console import Console, parameter
from barnabas.console.render import NONE
from barnabas.operations.access_rules import OPERATIONS, code_named, principal_named, rule_row
from barnabas.operations.answers.acls import Rule
from barnabas.operations.answers.model import names_of
from barnabas.operations.quotas import OF_OTHERS, QUOTAS, quota_value
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    RESOURCE_TYPES,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    new_rule,
    unsupported_operation,
)
from barnabas.security.sasl.credentials import MIN_ITERATIONS, ScramMechanism

# -- rules -----------------------------------------------------------------------------------------

_PERMISSIONS: Final = (AclPermissionType.ALLOW, AclPermissionType.DENY)
_ALL_OPERATIONS: Final = (AclOperation.ALL, *OPERATIONS)
_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PATTERN_TEXTS: Final = (("Literal", "the whole name"), ("Prefixed", "the beginning of names"))


def _rule(given: Mapping[str, str]) -> AclBinding:
    """Return the rule whose parts have the names of a row. Raises ValueError."""
    kind = code_named(RESOURCE_TYPES, given.get("type", ""))
    return new_rule(
        kind,
        CLUSTER_NAME if kind is ResourceType.CLUSTER else given.get("name", ""),
        code_named(_PATTERNS, given.get("pattern", "")),
        str(principal_named(given.get("principal", ""))),
        given.get("host", "") or WILDCARD,
        code_named(_ALL_OPERATIONS, given.get("operation", "")),
        code_named(_PERMISSIONS, given.get("permission", "")),
    )


async def _is_there(cluster: Cluster, rule: AclBinding) -> bool:
    return rule in await Admin(cluster).describe_acls(_only(rule))


def _only(rule: AclBinding) -> AclFilter:
    """Return the filter that matches one rule."""
    return AclFilter(*rule.pattern, str(rule.entry.principal), *rule.entry[1:])


def _rule_plan(rule: AclBinding, sentence: str, button: str) -> Plan:
    row = rule_row(rule)
    cells = [str(getattr(row, name)) for name in names_of(Rule)]
    return Plan(sentence, button, [each.capitalize() for each in names_of(Rule)], [cells], cells)


def _typed_rule(request: Request) -> AclBinding:
    """Return the rule of a form, in which a person may have typed spaces around a name."""
    return _rule({name: text.strip() for name, text in request.query_params.items()})


async def _plan_rule(console: Console, request: Request) -> Plan:
    rule = _typed_rule(request)
    if problem := unsupported_operation(rule):
        raise ValueError(problem)
    if await _is_there(console.cluster, rule):
        raise ValueError(f"there is this rule already: {rule}")
    return _rule_plan(rule, f"A rule will be added: {rule}.", "Add the rule")


async def _add_rule(console: Console, request: Request, _facts: Any) -> Done:
    rule = _typed_rule(request)
    await Admin(console.cluster).create_acls([rule])
    return Done(f"The rule was added: {rule}.", "/security", {"show": "rules"})


async def _plan_removal(console: Console, request: Request) -> Plan:
    rule = _rule(request.query_params)
    if not await _is_there(console.cluster, rule):
        raise ValueError(f"there is no such rule: {rule}")
    effect = (
        "What only this rule allows is denied then"
        if rule.entry.permission is AclPermissionType.ALLOW
        else "What only this rule denies may be allowed then"
    )
    return _rule_plan(rule, f"A rule will be removed: {rule}. {effect}.", "Remove the rule")


async def _remove_rule(console: Console, request: Request, _facts: Any) -> Done:
    rule = _rule(request.query_params)
    if not await Admin(console.cluster).delete_acls([_only(rule)]):
        raise changed()
    return Done(f"The rule was removed: {rule}.", "/security", {"show": "rules"})


def _labels(codes: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((each.label, each.label) for each in codes)


# -- quotas ----------------------------------------------------------------------------------------

_ENTITY: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The types of entities, by the parameters that name them."""
_QUOTA_TEXTS: Final = tuple((key, f"{key}: {unit}") for key, unit in QUOTAS.items())


def _entity(request: Request) -> Entity:
    """Return the entity that a request names; one of others has the name None."""
    given = {kind: request.query_params.get(name, "") for name, kind in _ENTITY.items()}
    entity = {kind: None if text == OF_OTHERS else text for kind, text in given.items() if text}
    if not entity:
        raise ValueError("name a user, a client id or an address")
    return entity


async def _plan_quota(console: Console, request: Request) -> Plan:
    key = parameter(request, "quota")
    value = quota_value(key, request.query_params.get("value", "").strip())
    return await _quota_plan(console, _entity(request), key, value)


async def _plan_quota_removal(console: Console, request: Request) -> Plan:
    return await _quota_plan(console, _entity(request), parameter(request, "quota"), None)


async def _quota_plan(console: Console, entity: Entity, key: str, value: float | None) -> Plan:
    admin = Admin(console.cluster)
    found = await admin.describe_client_quotas(entity, strict=True)
    before = next((values[key] for _, values in found if key in values), None)
    name = ", ".join(
        f"every {kind} without quotas of its own" if of is None else f"{kind} {of}"
        for kind, of in entity.items()
    )
    if value is None and before is None:
        raise ValueError(f"{name} has no quota {key}")
    await admin.alter_client_quotas(entity, {key: value}, validate_only=True)
    verb = "removed" if value is None else "set"
    return Plan(
        f"The quota {key} of {name} will be {verb}. Each broker counts for itself.",
        "Remove the quota" if value is None else "Set the quota",
        ["Quota", "Before", "After", "Unit"],
        [[key, _number(before), _number(value), QUOTAS.get(key, NONE)]],
        [entity, key, before, value],
    )


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.15g}"


async def _alter_quota(console: Console, _request: Request, facts: Any) -> Done:
    entity, key, _, value = facts
    await Admin(console.cluster).alter_client_quotas(entity, {key: value})
    verb = "removed" if value is None else "set"
    return Done(f"The quota {key} was {verb}.", "/security", {"show": "quotas"})


# -- users -----------------------------------------------------------------------------------------

_BOTH: Final = "both"
_MECHANISMS: Final = ((_BOTH, "both"), *((each.value, each.value) for each in ScramMechanism))


def _user(request: Request) -> tuple[str, list[ScramMechanism]]:
    """Return a user and the mechanisms of which a password is changed."""
    name, how = parameter(request, "user"), request.query_params.get("mechanism", _BOTH)
    if how not in dict(_MECHANISMS):
        raise ValueError(f"{how} is no mechanism of SCRAM")
    return name, [each for each in ScramMechanism if how in (_BOTH, each.value)]


async def _passwords(console: Console, name: str) -> dict[str, int]:
    """Return the iterations of the passwords of a user by mechanism."""
    found = (await UserAdmin(console.cluster).describe_users([name])).get(name, {})
    return {how.value: iterations for how, iterations in found.items()}


async def _plan_user(console: Console, request: Request) -> Plan:
    name, chosen = _user(request)
    if not console.settings.is_private:
        raise ValueError(
            "a password is set only where the network cannot read it: serve this console at "
            "127.0.0.1, with --certificate-file, or with --behind-proxy"
        )
    found = await _passwords(console, name)
    if not found and name != name.strip():
        raise ValueError("the name of the new user begins or ends with a space")
    sentence = (
        f"The password of the user {name} will be changed. Connections that are open stay so."
        if found
        else f"The user {name} will be created. Rules say what it may do."
    )
    rows = [
        [each.value, "yes" if each.value in found else "no", _after(each, found, chosen)]
        for each in ScramMechanism
    ]
    columns = ["Mechanism", "Password before", "Password after"]
    return Plan(sentence, "Set the password", columns, rows, [name, found])


def _after(each: ScramMechanism, found: Container[str], chosen: Container[ScramMechanism]) -> str:
    if each in chosen:
        return "the new one"
    return "the same" if each.value in found else "no"


async def _set_password(
    console: Console, request: Request, facts: Any, *, password: str, again: str
) -> Done:
    (name, chosen), (_, found) = _user(request), facts
    if password != again:
        raise ValueError("the two passwords are not the same: nothing was done")
    if not password:
        raise ValueError("the password is empty: nothing was done")
    for how in chosen:
        iterations = max(found.get(how.value, 0), MIN_ITERATIONS)
        await UserAdmin(console.cluster).set_password(name, password, how, iterations)
    names = " and ".join(each.value for each in chosen)
    return Done(f"The password of {name} was set for {names}.", "/security", {"show": "users"})


async def _plan_user_deletion(console: Console, request: Request) -> Plan:
    name, chosen = _user(request)
    found = await _passwords(console, name)
    deleted = [each.value for each in chosen if each.value in found]
    if not deleted:
        raise ValueError(f"{name} has no such password")
    left = [each for each in found if each not in deleted]
    rest = f"The one for {left[0]} stays" if left else "The user cannot log in by SCRAM then"
    return Plan(
        f"The password of {name} for {' and '.join(deleted)} will be deleted. {rest}. Rules and "
        "quotas stay.",
        "Delete the password",
        ["User", "Mechanism", "Iterations"],
        [[name, each, str(found[each])] for each in deleted],
        [name, deleted, left],
    )


async def _delete_user(console: Console, _request: Request, facts: Any) -> Done:
    name, deleted, _ = facts
    for each in ScramMechanism:
        if each.value in deleted:
            await UserAdmin(console.cluster).delete_user(name, each)
    text = f"The password of {name} for {' and '.join(deleted)} was deleted."
    return Done(text, "/security", {"show": "users"})


PAGES = (
    Change(
        "/security/rule",
        "Add a rule",
        _plan_rule,
        _add_rule,
        fields=(
            Field("principal", "Principal, such as User:alice", is_needed=True),
            Field("permission", "Permission", "Allow", _labels(_PERMISSIONS)),
            Field("operation", "Operation", "Read", _labels(_ALL_OPERATIONS)),
            Field("type", "Type of the resource", "Topic", _labels(RESOURCE_TYPES)),
            Field("name", "Its name (*: all; none for Cluster)"),
            Field("pattern", "This is", "Literal", _PATTERN_TEXTS),
            Field("host", "Address of the client (none: all)"),
        ),
    ).page(),
    Change("/security/rule/remove", "Remove a rule", _plan_removal, _remove_rule).page(),
    Change(
        "/security/quota",
        "Set a quota",
        _plan_quota,
        _alter_quota,
        fields=(
            Field("user", f"User ({OF_OTHERS}: all others)"),
            Field("client_id", f"Client id ({OF_OTHERS}: all others)"),
            Field("ip", f"Address, alone ({OF_OTHERS}: all others)"),
            Field("quota", "Quota", "producer_byte_rate", _QUOTA_TEXTS, is_needed=True),
            Field("value", "Value, such as 1MB or 50", is_needed=True),
        ),
    ).page(),
    Change("/security/quota/remove", "Remove a quota", _plan_quota_removal, _alter_quota).page(),
    Change(
        "/security/user",
        "Set the password of a user",
        _plan_user,
        _set_password,
        fields=(
            Field("user", "User", is_needed=True),
            Field("mechanism", "Mechanism of SCRAM", _BOTH, _MECHANISMS),
        ),
        passwords=(("password", "Password"), ("again", "The same again")),
    ).page(),
    Change(
        "/security/user/delete",
        "Delete the password of a user",
        _plan_user_deletion,
        _delete_user,
    ).page(),
)
