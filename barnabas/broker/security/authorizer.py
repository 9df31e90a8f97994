"""The decision whether a principal may do something, and the audit log of these decisions.

While the rules are not loaded, or cannot be read, only super users are allowed anything.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.coordinator.ports import TimerHandle, Timers
from barnabas.security.acl.matcher import AclDecision, Matcher, Policy, Reason, RuleSet
from barnabas.security.acl.rules import WILDCARD, AclOperation, ResourceType
from barnabas.security.principal import Principal

LINES_OF_CLIENT: Final = 10
"""Denials that are logged in full within a minute, of one principal at one address; others are
counted."""
LINES_OF_PRINCIPAL: Final = 100
"""The same of one principal at all addresses."""
MAX_LINES: Final = 1000
"""The same of all principals together."""
MAX_REMEMBERED: Final = 10_000
"""Denials that are not logged in full again."""
MAX_COUNTED: Final = 1000
"""Principals whose denials are counted separately within a second."""
MAX_NAMED: Final = 5
"""Principals that the line with the counts names, those with the most denials."""
_WINDOW_S: Final = 60.0
_LONGEST_NAME: Final = 256
"""Characters of a resource name that the log shows: a client may ask for very long ones."""
_NONE: Final[Mapping[int, Mapping[str, bool]]] = MappingProxyType({})
_log = get_logger(__name__)
_is_logged: Final = logging.getLogger(__name__).isEnabledFor


class Action(NamedTuple):
    """An operation on a resource."""

    operation: AclOperation
    type: ResourceType
    name: str


class Authorizer:
    """Decides by the cluster's rules as this broker knows them."""

    def __init__(self, acls: ClusterAcls, policy: Policy, timers: Timers) -> None:
        self._policy = policy
        self._audit = _AuditLog(timers)
        self._loaded = False
        self._matcher = Matcher(RuleSet(), policy)
        self._standing = object()
        acls.follow(self._changed)
        self._changed(acls.rules)

    def decided(self, principal: Principal, host: str) -> Mapping[int, Mapping[str, bool]]:
        """Return the earlier decisions about a client, as `Client.decided`; none while allowed
        actions are logged."""
        if _is_logged(logging.DEBUG):
            return _NONE
        return self._matcher.client(principal, host).decided

    def standing(self) -> object:
        """Return a value that stays the same object while earlier decisions hold; None while
        allowed actions are logged. Connections keep it: it must not hold the rules of its time."""
        return None if _is_logged(logging.DEBUG) else self._standing

    def is_super_user(self, principal: Principal) -> bool:
        return principal in self._policy.super_users

    def allows(
        self,
        principal: Principal,
        host: str,
        api: str,
        action: Action,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Return whether an action is allowed. `host` is an address, however it is written.

        `log_denied` is false for actions that the client did not ask for: those that only decide
        what it is shown.
        """
        allowed = self._matcher.allows(principal, host, *action)
        if not allowed:
            if log_denied:
                self._deny(principal, host, api, action)
        elif _is_logged(logging.DEBUG):
            _log.debug("allowed", **_values(principal, host, api, action))
        return allowed

    def allows_any(
        self,
        principal: Principal,
        host: str,
        api: str,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""
        allowed = self._matcher.allows_any(principal, host, operation, resource_type)
        if not allowed:
            every = Action(operation, resource_type, WILDCARD)
            self._deny(principal, host, api, every, Reason.NO_RULE_MATCHES)
        return allowed

    def why(self, principal: Principal, host: str, action: Action) -> AclDecision:
        """Return the decision about an action with its reason."""
        decision = self._matcher.decide(principal, host, *action)
        if not self._loaded and not decision.allowed:
            return AclDecision(False, Reason.NOT_LOADED)
        return decision

    def _deny(
        self,
        principal: Principal,
        host: str,
        api: str,
        action: Action,
        reason: Reason | None = None,
    ) -> None:
        if self._audit.shows(principal, host, api, action):
            decision = self.why(principal, host, action)
            values = _values(principal, host, api, action)
            if decision.rule is not None and reason is None:
                values["rule"] = str(decision.rule)
            _log.info("denied", **values, reason=str(reason or decision.reason))

    def _changed(self, rules: RuleSet | None) -> None:
        self._loaded = rules is not None
        self._standing = object()
        if rules is None:
            self._matcher = Matcher(RuleSet(), self._policy._replace(allow_everyone=False))
        else:
            self._matcher = Matcher(rules, self._policy)


class _AuditLog:
    """The choice of denials that are logged in full; the numbers of others, once a second.

    A client that asks again and again can neither fill the disk nor hide the denials of others.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._known: set[tuple[Principal, str, str, Action]] = set()
        self._lines: Counter[object] = Counter()
        """The lines within a minute: of clients, of principals, and of all."""
        self._window: TimerHandle | None = None
        self._counted: Counter[Principal] = Counter()
        self._uncounted = 0
        """The denials within a second of principals that are not counted apart."""
        self._second: TimerHandle | None = None

    def shows(self, principal: Principal, host: str, api: str, action: Action) -> bool:
        """Return whether to log a denial; otherwise count it."""
        denial = (principal, host, api, action._replace(name=action.name[:_LONGEST_NAME]))
        limits = {
            (principal, host): LINES_OF_CLIENT,
            principal: LINES_OF_PRINCIPAL,
            "all": MAX_LINES,
        }
        if denial in self._known or any(self._lines[each] >= limits[each] for each in limits):
            self._count(principal)
            return False
        if self._window is None:
            self._window = self._timers.call_later(_WINDOW_S, self._window_ended)
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known.add(denial)
        self._lines.update(limits.keys())
        return True

    def _count(self, principal: Principal) -> None:
        if self._second is None:
            self._second = self._timers.call_later(1.0, self._second_ended)
        if principal in self._counted or len(self._counted) < MAX_COUNTED:
            self._counted[principal] += 1
        else:
            self._uncounted += 1

    def _window_ended(self) -> None:
        self._window = None
        self._lines.clear()

    def _second_ended(self) -> None:
        named = self._counted.most_common(MAX_NAMED)
        denials = self._counted.total() + self._uncounted
        others = denials - sum(count for _, count in named)
        _log.info(
            "more denied within a second",
            denials=denials,
            principals=", ".join(f"{str(who)[:_LONGEST_NAME]} {count}" for who, count in named),
            **{"others": others} if others else {},
        )
        self._second = None
        self._counted.clear()
        self._uncounted = 0


def _values(principal: Principal, host: str, api: str, action: Action) -> dict[str, str]:
    """Return the values of a line about an action."""
    return {
        "principal": str(principal),
        "host": host,
        "api": api,
        "operation": action.operation.label,
        "resource": f"{action.type.label}:{action.name[:_LONGEST_NAME]}",
    }
