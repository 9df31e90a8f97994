"""A broker with users of PLAIN whose passwords are their names, and with delegation tokens."""

COMMON = "org.apache.kafka.common.security"
USERS = ("alice", "bob", "admin")
KEYS = {
    "listeners": "SASL_PLAINTEXT://localhost:0,OPEN://localhost:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:PLAINTEXT",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{COMMON}.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{name}"' for name in USERS)
        + ";"
    ),
    "connection.failed.authentication.delay.ms": "1",
    "delegation.token.master.key": "the secret of the cluster",
}
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def login(user: str) -> dict[str, str]:
    account = f'username="{user}" password="{user}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"{COMMON}.plain.PlainLoginModule required {account};",
    }
