"""The settings of a client, in the words of each library."""

from dataclasses import dataclass, field
from typing import Any

from barnabas.security.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The way of a client into a cluster: TLS if there is a `ca_file`, SASL if there is a user."""

    bootstrap_servers: str
    ca_file: str = ""
    """PEM file of the authority that signs the certificates of brokers."""
    mechanism: str = "SCRAM-SHA-512"
    user: str = ""
    password: str = field(default="", repr=False)
    certificate_file: str = ""
    """PEM file with the private key and the certificate of the client."""

    @property
    def protocol(self) -> str:
        """The value of security.protocol."""
        transport = "SSL" if self.ca_file else "PLAINTEXT"
        return f"SASL_{transport}" if self.user else transport

    def librdkafka(self) -> dict[str, str]:
        """Return the keys of librdkafka: confluent-kafka, and the clients in C, Go and Rust."""
        keys = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.ca_file:
            keys["ssl.ca.location"] = self.ca_file
        if self.certificate_file:
            keys["ssl.certificate.location"] = self.certificate_file
            keys["ssl.key.location"] = self.certificate_file
        if self.user:
            keys["sasl.mechanism"] = self.mechanism
            keys["sasl.username"] = self.user
            keys["sasl.password"] = self.password
        return keys

    def kafka_python(self) -> dict[str, str]:
        """Return the keyword arguments of kafka-python."""
        keys = self._python()
        if self.ca_file:
            keys["ssl_cafile"] = self.ca_file
        if self.certificate_file:
            keys["ssl_certfile"] = keys["ssl_keyfile"] = self.certificate_file
        return keys

    def aiokafka(self) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka."""
        keys: dict[str, Any] = {**self._python()}
        if self.ca_file:
            import ssl

            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file)
            keys["ssl_context"] = context
        return keys

    def java(self) -> dict[str, str]:
        """Return the properties of Kafka's own clients and tools, and of `--command-config`."""
        keys = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.ca_file:
            keys["ssl.truststore.type"] = "PEM"
            keys["ssl.truststore.location"] = self.ca_file
        if self.certificate_file:
            keys["ssl.keystore.type"] = "PEM"
            keys["ssl.keystore.location"] = self.certificate_file
        if self.user:
            module = PLAIN_LOGIN_MODULE if self.mechanism == "PLAIN" else SCRAM_LOGIN_MODULE
            keys["sasl.mechanism"] = self.mechanism
            keys["sasl.jaas.config"] = (
                f"{module} required username={_quoted(self.user)} "
                f"password={_quoted(self.password)};"
            )
        return keys

    def _python(self) -> dict[str, str]:
        keys = {"bootstrap_servers": self.bootstrap_servers, "security_protocol": self.protocol}
        if self.user:
            keys["sasl_mechanism"] = self.mechanism
            keys["sasl_plain_username"] = self.user
            keys["sasl_plain_password"] = self.password
        return keys


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
