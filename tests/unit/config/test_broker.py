"""The broker's configuration: parsing, precedence, warnings and refusals."""

import pytest

from barnabas.config.broker import AUTHORIZERS, BrokerConfig
from barnabas.config.describe import describe_broker
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import LONG_MAX, ConfigError
from barnabas.config.listeners import Address
from barnabas.config.topic import TopicConfig

SHIPPED_WITH_KAFKA = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
"""The keys of config/server.properties in Kafka 4."""


@pytest.mark.parametrize("strict", [False, True])
def test_the_file_that_kafka_ships_starts_a_broker_with_one_warning(strict):
    config = BrokerConfig.from_properties(SHIPPED_WITH_KAFKA, strict=strict)

    assert config.broker_id == 1
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    assert [listener.address for listener in config.resolved_listeners()] == [Address("", 9092)]
    assert config.warnings == (
        "These configuration keys have no effect here: controller.listener.names, "
        "controller.quorum.bootstrap.servers, num.io.threads, num.network.threads, "
        "num.recovery.threads.per.data.dir, process.roles, share.coordinator.state.topic.min.isr, "
        "share.coordinator.state.topic.replication.factor",
    )


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.controller.max.connections",
        "listener.name.controller.plain.sasl.jaas.config",
        "listener.name.controller.ssl.client.auth",
        "listener.name.plaintext.num.network.threads",
        "log.cleaner.io.buffer.load.factor",
        "log.remote.copy.lag.ms",
    ],
)
def test_strict_takes_keys_of_kafka_and_of_the_listeners_of_controllers(key):
    given = {"controller.listener.names": "CONTROLLER", key: "1"}
    (warning,) = BrokerConfig.from_properties(given, strict=True).warnings
    assert warning.endswith(f"no effect here: controller.listener.names, {key}")


def test_strict_refuses_unknown_keys_only():
    with pytest.raises(ConfigError, match=r"^Unknown configuration keys: a\.typo, b\.typo$"):
        BrokerConfig.from_properties(
            {"process.roles": "broker", "b.typo": "1", "a.typo": "1"}, strict=True
        )


def test_without_properties_every_key_has_its_default():
    config = BrokerConfig.from_properties({})

    assert config.num_partitions == 1
    assert config.log_dirs is None
    assert config.data_directories == ("barnabas-data",)
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "num.partitions",
            "0",
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (
            "num.partitions",
            "two",
            "Invalid value two for configuration num.partitions: Not a number of type INT",
        ),
        (
            "num.partitions",
            "2147483648",
            "Invalid value 2147483648 for configuration num.partitions: Not a number of type INT",
        ),
        (
            "log.retention.bytes",
            "1_0",
            "Invalid value 1_0 for configuration log.retention.bytes: Not a number of type LONG",
        ),
        (
            "log.cleaner.min.cleanable.ratio",
            "1.5",
            "Invalid value 1.5 for configuration log.cleaner.min.cleanable.ratio: "
            "Value must be no more than 1",
        ),
        (
            "auto.create.topics.enable",
            "yes",
            "Invalid value yes for configuration auto.create.topics.enable: "
            "Expected value to be either true or false",
        ),
        (
            "log.cleanup.policy",
            "delete,shred",
            "Invalid value shred for configuration log.cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            "log.cleanup.policy",
            "delete,",
            "Configuration 'log.cleanup.policy' values must not be empty.",
        ),
        (
            "log.dirs",
            "",
            "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: "
            "Value must be between 1 and 9 or equal to -1",
        ),
    ],
)
def test_invalid_value_is_refused_with_kafkas_text(key, value, message):
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({key: value})
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "key", ["transaction.state.log.segment.bytes", "offsets.topic.segment.bytes"]
)
def test_segment_size_outside_the_topic_limits_is_refused_at_the_start(key):
    """If it were accepted, the internal topics could not be created, and no coordinator would
    start."""
    with pytest.raises(ConfigError, match="at least 1048576"):
        BrokerConfig.from_properties({key: "2000"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.engine.factory.class", "a.Factory"),
        ("sasl.kerberos.service.name", "kafka"),
        ("listener.name.external.ssl.truststore.location", "/etc/truststore.jks"),
        ("listener.name.external.plain.sasl.jaas.config", "x"),
        ("listener.name.plaintext.gssapi.sasl.jaas.config", "x"),
        ("listener.name.plaintext.plain.sasl.enabled.mechanisms", "PLAIN"),
        ("authorizer.class.name", "a.Authorizer"),
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "true"),
        ("principal.builder.class", "a.Builder"),
        ("client.quota.callback.class", "a.Callback"),
    ],
)
def test_key_of_a_security_feature_is_refused_and_named(key, value):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        BrokerConfig.from_properties({key: value})


def test_listener_of_an_unknown_protocol_is_refused():
    with pytest.raises(ConfigError, match="OUTSIDE has the security protocol SASL, which does not"):
        BrokerConfig.from_properties(
            {
                "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL",
            }
        )


WITH_SASL = {
    "listeners": "PLAINTEXT://:9092,SASL_SSL://:9093,INSIDE://:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,INSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "SCRAM-SHA-1"])
def test_listener_with_a_mechanism_that_is_not_served_is_refused(mechanism):
    with pytest.raises(ConfigError, match=f"SASL_SSL offers {mechanism}, which is not supported"):
        BrokerConfig.from_properties(WITH_SASL | {"sasl.enabled.mechanisms": mechanism})


def test_keys_of_sasl_of_a_mechanism_come_before_those_of_its_listener():
    config = BrokerConfig.from_properties(
        WITH_SASL
        | {
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
            "connections.max.reauth.ms": "1",
            "listener.name.sasl_ssl.connections.max.reauth.ms": "2",
            "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "3",
        }
    )
    assert config.sasl_of("SASL_SSL", "PLAIN").connections_max_reauth_ms == 3
    assert config.sasl_of("SASL_SSL").connections_max_reauth_ms == 2
    assert config.sasl_of("INSIDE", "PLAIN").connections_max_reauth_ms == 1


def test_passwords_of_users_are_shown_nowhere():
    key = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    config = BrokerConfig.from_properties(WITH_SASL | {key: "a-secret"})
    assert "a-secret" not in repr(config)
    entries = {entry.name: entry for entry in describe_broker(DynamicConfig(config))}
    assert entries[key].value is None
    assert "a-secret" not in repr(entries)


def test_certificates_are_asked_for_beside_sasl_by_the_listeners_own_key_only():
    """KIP-684."""
    general = WITH_SASL | {"ssl.client.auth": "required"}
    assert BrokerConfig.from_properties(general).tls_of("SASL_SSL").ssl_client_auth == "none"
    own = general | {"listener.name.sasl_ssl.ssl.client.auth": "requested"}
    assert BrokerConfig.from_properties(own).tls_of("SASL_SSL").ssl_client_auth == "requested"


def test_brokers_use_a_mechanism_that_their_listener_offers():
    cluster = {"metadata.socket": "/m", "inter.broker.listener.name": "INSIDE"}
    with pytest.raises(ConfigError, match=r"must be included in sasl\.enabled\.mechanisms"):
        BrokerConfig.from_properties(WITH_SASL | cluster)
    plain = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    config = BrokerConfig.from_properties(WITH_SASL | cluster | plain)
    assert config.inter_broker_listener().has_sasl


SSL_CLUSTER = {
    "listeners": "CLIENTS://:9092,SSL://:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,SSL:SSL",
    "metadata.socket": "/m",
}


def test_inter_broker_protocol_names_the_listener():
    config = BrokerConfig.from_properties(SSL_CLUSTER | {"security.inter.broker.protocol": "SSL"})
    assert config.inter_broker_listener().name == "SSL"
    with pytest.raises(ConfigError, match="Only one of"):
        BrokerConfig.from_properties(
            SSL_CLUSTER
            | {
                "security.inter.broker.protocol": "SSL",
                "inter.broker.listener.name": "SSL",
            }
        )


def test_missing_listener_of_brokers_names_the_key_that_asks_for_it():
    only_tls = {"listeners": "SSL://:9093"}
    with pytest.raises(ConfigError, match=r"are SSL: .*\(security\.\S+\.protocol names PLAIN"):
        BrokerConfig.from_properties(only_tls)
    with pytest.raises(ConfigError, match=r"are SSL: .*\(inter\.\S+\.name names INSIDE"):
        BrokerConfig.from_properties(only_tls | {"inter.broker.listener.name": "INSIDE"})
    named = BrokerConfig.from_properties(only_tls | {"inter.broker.listener.name": "SSL"})
    assert named.inter_broker_listener().name == "SSL"


def test_keys_of_tls_of_a_listener_come_before_the_general_ones():
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:9092,SSL://:9093",
            "ssl.keystore.location": "general",
            "ssl.key.password": "secret",
            "listener.name.ssl.ssl.keystore.location": "own",
        }
    )
    assert config.tls_of("SSL").ssl_keystore_location == "own"
    assert config.tls_of("SSL").ssl_key_password == "secret"
    assert config.tls_of("PLAINTEXT").ssl_keystore_location == "general"
    assert "secret" not in repr(config) + repr(config.tls_of("SSL"))


def test_security_keys_that_enable_no_feature_cause_a_warning_only():
    config = BrokerConfig.from_properties(
        {"security.inter.broker.protocol": "PLAINTEXT", "ssl.provider": ""}
    )
    assert "ssl.provider" in config.warnings[0]


def test_broker_id_and_node_id_are_one_key():
    assert BrokerConfig.from_properties({"node.id": "7"}).broker_id == 7
    assert BrokerConfig.from_properties({"node.id": "7", "broker.id": "7"}).broker_id == 7
    with pytest.raises(ConfigError, match="must be the same"):
        BrokerConfig.from_properties({"node.id": "7", "broker.id": "8"})


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_most_precise_key_of_an_age_wins(given, retention_ms):
    broker = BrokerConfig.from_properties(given)
    assert TopicConfig.resolve({}, broker).retention_ms == retention_ms


def test_the_flush_interval_falls_back_to_the_schedulers():
    broker = BrokerConfig.from_properties({"log.flush.scheduler.interval.ms": "500"})
    assert TopicConfig.resolve({}, broker).flush_ms == 500
    assert TopicConfig.resolve({}, BrokerConfig()).flush_ms == LONG_MAX


@pytest.mark.parametrize(
    "given",
    [
        {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"},
        {"inter.broker.listener.name": "INSIDE"},
        {"max.connections.per.ip.overrides": "localhost"},
        {"metrics.listener": "9464"},
        {"metrics.listener.certificate.file": "a.pem"},
        {"metrics.listener.key.file": "a.key"},
    ],
)
def test_contradictions_between_keys_are_refused(given):
    with pytest.raises(ConfigError):
        BrokerConfig.from_properties(given)


def test_a_configuration_cannot_be_changed_in_place():
    config = BrokerConfig()
    with pytest.raises(AttributeError):
        config.num_partitions = 3
    with pytest.raises(TypeError, match="no_such_key"):
        BrokerConfig(no_such_key=1)


def test_key_of_one_listener_applies_to_it_only():
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "max.connections": "100",
            "listener.name.outside.max.connections": "7",
        }
    )
    assert config.max_connections_of("OUTSIDE") == 7
    assert config.max_connections_of("PLAINTEXT") == config.max_connections == 100
    assert config.warnings == ()


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.elsewhere.max.connections",
        "listener.name.PLAINTEXT.max.connections",
        "listener.name.plaintext.max.connections.per.ip",
    ],
)
def test_a_key_of_a_listener_without_effect_is_named(key):
    assert key in BrokerConfig.from_properties({key: "1"}).warnings[0]


TRUST = {"ssl.truststore.location": "/ca.pem"}


@pytest.mark.parametrize(
    ("protocol", "host", "keys", "kinds"),
    [
        ("PLAINTEXT", "", {}, ["anonymous"]),
        ("PLAINTEXT", "0.0.0.0", {}, ["anonymous"]),
        ("PLAINTEXT", "broker-1", {}, ["anonymous"]),
        ("PLAINTEXT", "localhost", {}, []),
        ("PLAINTEXT", "127.0.0.7", {}, []),
        ("PLAINTEXT", "[::1]", {}, []),
        ("SSL", "", {}, ["anonymous"]),
        ("SSL", "", {"ssl.client.auth": "requested"}, ["anonymous"]),
        ("SSL", "", {"ssl.client.auth": "required", **TRUST}, []),
        ("SSL", "", {"listener.name.own.ssl.client.auth": "required", **TRUST}, []),
        ("SASL_PLAINTEXT", "", {"sasl.enabled.mechanisms": "PLAIN"}, ["clear_passwords"]),
        ("SASL_PLAINTEXT", "", {"sasl.enabled.mechanisms": "OAUTHBEARER"}, ["clear_passwords"]),
        ("SASL_PLAINTEXT", "", {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, []),
        ("SASL_PLAINTEXT", "127.0.0.1", {"sasl.enabled.mechanisms": "PLAIN"}, []),
        ("SASL_SSL", "", {"sasl.enabled.mechanisms": "PLAIN"}, []),
    ],
)
def test_listener_that_strangers_reach_is_an_exposure(
    protocol: str, host: str, keys: dict[str, str], kinds: list[str]
) -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": f"OWN://{host}:0",
            "advertised.listeners": "OWN://broker-1:9092",
            "listener.security.protocol.map": f"OWN:{protocol}",
            "inter.broker.listener.name": "OWN",
            **keys,
        }
    )
    assert [(each.kind, each.listener) for each in config.exposures()] == [
        (kind, "OWN") for kind in kinds
    ]
    for each in config.exposures():
        assert "SASL_SSL" in each.text


def test_trust_in_all_authorities_of_the_system_is_an_exposure() -> None:
    keys = {
        "listeners": "CLIENTS://:9093,BROKERS://:9094",
        "advertised.listeners": "CLIENTS://b:9093,BROKERS://b:9094",
        "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.client.auth": "required",
    }
    authorizer = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:CN=b"}

    def told(more: dict[str, str]) -> dict[str, str]:
        found = BrokerConfig.from_properties(keys | more).exposures()
        assert {each.kind for each in found} <= {"any_authority"}
        return {each.listener: each.text for each in found}

    texts = told({})
    assert "takes it for a broker" in texts["BROKERS"]
    assert "Set listener.name.brokers.ssl.truststore.location" in texts["BROKERS"]
    assert "takes it for a broker" not in texts["CLIENTS"]
    assert "takes it for a broker" not in told(authorizer)["BROKERS"]
    own = {f"listener.name.brokers.{key}": value for key, value in TRUST.items()}
    assert told(own).keys() == {"CLIENTS"}
    assert told({"ssl.truststore.certificates": "PEM"}) == {}


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_authorizer_of_kafka_4_or_3_9_names_ours(name: str) -> None:
    keys = {"authorizer.class.name": name, "listeners": "PLAINTEXT://127.0.0.1:0"}
    config = BrokerConfig.from_properties(keys)
    (exposure,) = config.exposures()
    assert (exposure.kind, exposure.listener) == ("no_super_users", "")
    users = "User:a; User:CN=b,O=c"
    config = BrokerConfig.from_properties({**keys, "super.users": users})
    assert (config.super_users, config.exposures()) == (users, [])


def test_other_authorizer_is_refused_with_the_accepted_ones() -> None:
    with pytest.raises(ConfigError, match=r"StandardAuthorizer or kafka.*AclAuthorizer"):
        BrokerConfig.from_properties({"authorizer.class.name": "a.Authorizer"})


def test_super_user_without_a_type_is_refused() -> None:
    properties = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:a;alice"}
    with pytest.raises(ConfigError, match=r"super\.users: expected a string .* but got alice"):
        BrokerConfig.from_properties(properties)


def test_users_in_an_open_zookeeper_are_warned_of():
    keys = {
        "zookeeper.connect": "zk",
        "zookeeper.digest.file": "digest",
        "listeners": "A://localhost:9092,B://localhost:9192",
        "listener.security.protocol.map": "A:SASL_SSL,B:SSL",
        "inter.broker.listener.name": "B",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    scram = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}

    def kinds(more):
        return [each.kind for each in BrokerConfig.from_properties(keys | more).exposures()]

    assert kinds({}) == []
    assert kinds(scram) == kinds({"delegation.token.secret.key": "s"}) == ["open_metadata"]
    assert kinds(scram | {"zookeeper.set.acl": "true"}) == []


def test_secret_key_of_tokens_has_an_alias_and_is_not_shown():
    alias, key = "delegation.token.master.key", "delegation.token.secret.key"
    assert BrokerConfig.from_properties({alias: "s"}).delegation_token_secret_key == "s"
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({alias: "secret-a", key: "secret-b"})
    assert str(refused.value) == f"{key} and {alias} must be the same"
