"""The operations that a client may perform, as bit fields (KIP-430).

Handlers answer all operations of a resource. With an authorizer, the gate takes out those
that the client may not perform (`barnabas/broker/security/gate.py`).
"""

NOT_ASKED = -(1 << 31)
"""Value of the fields if the client did not ask for them."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << code for code in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << code for code in range(9, 13)
)

TOPIC_OPERATIONS = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)
CLUSTER_OPERATIONS = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)
GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
