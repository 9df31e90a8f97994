"""Access control rules: names in texts, and the reason why a request is allowed or denied."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.operations.answers.acls import Decision, Rule
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.acl.matcher import (
    AclDecision,
    Matcher,
    Policy,
    Reason,
    RuleSet,
    parse_super_users,
)
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
    host_key,
)
from barnabas.security.principal import Principal

Code = TypeVar("Code", ResourceType, PatternType, AclOperation, AclPermissionType)
OPERATIONS: Final = tuple(each for each in AclOperation if each > AclOperation.ALL)
"""The operations that a request can ask for."""


def code_named(codes: Iterable[Code], text: str) -> Code:
    """Return the code that a text names, in any case and with or without dashes and underscores.

    Raises ValueError.
    """
    codes, wanted = list(codes), text.lower().replace("_", "").replace("-", "")
    for code in codes:
        if code.label.lower() == wanted:
            return code
    raise ValueError(f"{text!r} is not one of {', '.join(code.label for code in codes)}")


def principal_named(text: str) -> Principal:
    """Return the principal that TYPE:NAME names. Raises ValueError."""
    try:
        return Principal.parse(text)
    except ValueError:
        raise ValueError(f"{text!r} is not TYPE:NAME; did you mean User:{text}?") from None


def rule_row(rule: AclBinding) -> Rule:
    """Return a rule as an answer."""
    pattern, entry = rule
    return Rule(
        principal=str(entry.principal),
        host=entry.host,
        operation=entry.operation.label,
        permission=entry.permission.label,
        type=pattern.type.label,
        name=pattern.name,
        pattern=pattern.pattern_type.label,
    )


class Question(NamedTuple):
    """The question whether a principal at a host may do something with a resource."""

    principal: Principal
    operation: AclOperation
    type: ResourceType
    name: str
    host: str

    @classmethod
    def parse(
        cls, principal: str, operation: str, resource: str, host: str = WILDCARD
    ) -> "Question":
        """Return the question that texts ask; a resource is TYPE:NAME, or Cluster.

        Raises ValueError.
        """
        who, what = principal_named(principal), code_named(OPERATIONS, operation)
        kind_text, _, name = resource.partition(":")
        kind = code_named(RESOURCE_TYPES, kind_text)
        if kind is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        if not name:
            raise ValueError(f"{resource!r} is not TYPE:NAME, such as Topic:orders")
        return cls(who, what, kind, name, host)


class Explained(NamedTuple):
    """The answer to a question, with its reason as a sentence."""

    text: str
    decision: Decision


async def explain(cluster: Cluster, question: Question) -> Explained:
    """Decide a question by the rules and the settings of the cluster, as a broker would."""
    who, what, kind, name, host = question
    policy, unknown = await _policy(cluster)
    rules = await Admin(cluster).describe_acls(AclFilter(kind, name, PatternType.MATCH))
    decision = Matcher(RuleSet.of(rules), policy).decide(who, host_key(host), what, kind, name)
    reason = _reason(decision, who, len(rules))
    if unknown and decision.reason is Reason.NO_RULE_MATCHES:
        reason += f"; {unknown}"
    return Explained(
        f"{'Allowed' if decision.allowed else 'Denied'}: {reason}",
        Decision(
            allowed=decision.allowed,
            reason=decision.reason,
            rule=None if decision.rule is None else rule_row(decision.rule),
            unknown=unknown,
        ),
    )


def _reason(decision: AclDecision, who: Principal, rules: int) -> str:
    return {
        Reason.SUPER_USER: f"{who} is a super user (super.users)",
        Reason.NO_RULE_ALLOWED: "no rule names the resource (allow.everyone.if.no.acl.found)",
        Reason.NO_RULE_MATCHES: f"none of the {rules} rules of the resource allows it",
    }.get(decision.reason, str(decision.rule))


async def _policy(cluster: Cluster) -> tuple[Policy, str | None]:
    """Return the settings of a broker's authorizer, and a text if they are hidden from us."""
    await cluster.refresh(())
    node = str(min(cluster.nodes))
    try:
        entries = await Admin(cluster).describe_configs(ConfigResourceType.BROKER, node)
    except KafkaError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return Policy(), "super.users could not be read"
    values: Mapping[str, str | None] = {each.name: each.value for each in entries}
    users = values.get("super.users", "")
    everyone = values.get("allow.everyone.if.no.acl.found", "false")
    hidden = "the broker does not show super.users" if users is None or everyone is None else None
    return Policy(parse_super_users(users or ""), (everyone or "").lower() == "true"), hidden
