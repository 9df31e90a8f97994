"""`--secure`: an authority, certificates and an administrator, made at the first start.

The directory has these files. Those with a secret are readable by their owner alone.

    ca.pem             certificate of the authority, for clients
    ca.key             its key; without it, the other files are used as they are
    broker-<id>.pem    key and certificate of a broker; or broker.pem, for all brokers
    admin.password     password of the user `admin`
    admin.properties   the same as settings of Kafka's tools, and of --command-config, with the
                       address of the broker that was started last
    zookeeper.digest   account of the brokers at ZooKeeper, if they use it
"""

import asyncio
import fcntl
import os
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from barnabas.cli.files import PUBLIC, replace_file
from barnabas.cli.processes.broker_properties import INTER_BROKER_LISTENER
from barnabas.cli.tables import COLUMNS
from barnabas.config.broker import AUTHORIZERS, BrokerConfig, resolve_aliases
from barnabas.config.key import ConfigError
from barnabas.config.listeners import parse_address
from barnabas.config.properties import parse_properties
from barnabas.security.certificates import certificates_of, parse_certificate

if TYPE_CHECKING:
    from barnabas.security.authority import Authority

ADMIN: Final = "admin"
BROKER: Final = "barnabas-broker"
"""The common name of the certificates of brokers."""
MECHANISM: Final = "SCRAM-SHA-512"
_CA, _CA_KEY, _BROKER = "ca.pem", "ca.key", "broker.pem"
_PASSWORD, _PROPERTIES = "admin.password", "admin.properties"
_DIGEST = "zookeeper.digest"
_RENEWED_DAYS: Final = 60
"""A certificate with fewer days is replaced at the start: brokers warn of 30 days."""
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")


class Secured(NamedTuple):
    """Brokers that serve by TLS and SASL alone: their properties, and the files of `directory`."""

    properties: dict[str, str]
    directory: Path
    is_new: bool
    """Whether the password has just been made."""

    def add_admin(self) -> None:
        """Store the administrator, if the store has no such user or the password is new.

        No broker may run on the data directory. Raises ClickException.
        """
        from barnabas.broker.loop.offload import InlineOffload
        from barnabas.broker.security.first_users import add_users
        from barnabas.broker.store.journal_format import JournalError
        from barnabas.broker.store.metadata_store import StoreError
        from barnabas.broker.store.opening import open_metadata
        from barnabas.security.sasl.credentials import ScramMechanism
        from barnabas.storage.files.files import OsFiles, make_dirs

        files, password = OsFiles(), (self.directory / _PASSWORD).read_text()

        async def add(config: BrokerConfig, first: str) -> None:
            make_dirs(files, first)
            opened = await open_metadata(config, first, files, InlineOffload())
            try:
                await add_users(
                    opened.session,
                    {ADMIN: password},
                    [ScramMechanism.SHA_512],
                    replace=self.is_new,
                )
            finally:
                await opened.close()

        known = {key: text for key, text in self.properties.items() if key in BrokerConfig.KEYS}
        try:
            config = BrokerConfig(**BrokerConfig.parse(known))
            asyncio.run(add(config, os.path.abspath(config.data_directories[0])))
        except (ConfigError, JournalError, StoreError) as error:
            raise click.ClickException(str(error)) from error

    def name_servers(self, servers: str) -> None:
        """Write the addresses of brokers that serve into the administrator's properties.

        Files that were made elsewhere stay as they are.
        """
        if (self.directory / _CA_KEY).exists() and os.access(self.directory, os.W_OK):
            with _locked(self.directory):
                _write_properties(self.directory, servers)

    @property
    def admin_properties(self) -> Path:
        """The file with the settings of a client that logs in as the administrator."""
        return self.directory / _PROPERTIES

    @property
    def client_properties(self) -> dict[str, str]:
        """The settings of a client that does not say who it is."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / _CA),
        }

    def greeting(self, servers: str) -> str:
        """Return the settings of clients, which name the file of the password, and a profile.

        A line has at most 80 columns, unless a path in it is long.
        """
        from barnabas.client.settings import ClientSettings

        ca = _Code(f"f'{{secure}}/{_CA}'")
        password = _Code(f"open(f'{{secure}}/{_PASSWORD}').read()")
        settings = ClientSettings(servers, ca, MECHANISM, ADMIN, password)
        aiokafka: dict[str, Any] = dict(settings.kafka_python())
        del aiokafka["ssl_cafile"]
        aiokafka["ssl_context"] = _Code(f"ssl.create_default_context(cafile={ca})")
        return "\n".join(
            (
                f"Clients use {settings.protocol} and log in as {ADMIN}.",
                "  Java and barnabas:",
                f"    --command-config {_for_shell(self.admin_properties)}",
                f"  secure = {str(self.directory)!r}",
                "  confluent-kafka:",
                *_folded(settings.librdkafka()),
                "  kafka-python:",
                *_folded(settings.kafka_python()),
                "  aiokafka:",
                *_folded(aiokafka),
                *self._profile(servers),
            )
        )

    def _profile(self, servers: str) -> Iterator[str]:
        """Yield the commands of a profile with which the other commands need no options."""
        from barnabas.cli import profiles
        from barnabas.cli.client_file import SERVERS

        file = self.admin_properties
        if not file.exists():
            # Files that were made elsewhere may lack it.
            return
        keys = parse_properties(file.read_text("iso-8859-1"))
        has_servers = keys.get(SERVERS) == servers
        wanted = {**keys, SERVERS: servers}
        taken = profiles.names()
        made = next((each for each in taken if profiles.read(each) == wanted), None)
        if made is not None and made == profiles.in_use():
            yield f"The commands of barnabas log in by the profile {made}, which is in use."
            return
        yield "A profile lets the commands of barnabas log in without options:"
        name = made or next(each for each in _profile_names() if each not in taken)
        if made is None:
            yield f"  barnabas profile create {name} \\"
            if not has_servers:
                yield f"    -b {servers} \\"
            yield f"    --command-config {_for_shell(file)}"
        yield f"  barnabas profile use {name}"


class _Code(str):
    """An expression, which a printed mapping shows as it is."""

    __repr__ = str.__str__


def _folded(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a mapping in Python's syntax, folded between its items."""
    line = "    {"
    for number, (key, value) in enumerate(settings.items(), 1):
        item = f"{key!r}: {value!r}{',' if number < len(settings) else '}'}"
        if len(line) + len(item) > COLUMNS and number > 1:
            yield line.rstrip()
            line = "     "
        line += f"{item} "
    yield line.rstrip()


def _profile_names() -> Iterator[str]:
    yield "secure"
    yield from (f"secure-{number}" for number in count(2))


def _for_shell(path: Path) -> str:
    """Return a path as a word of a shell, short if it is below the user's home."""
    text, home = str(path), os.path.expanduser("~")
    if text.startswith(f"{home}/") and shlex.quote(text) == text:
        return f"~{text.removeprefix(home)}"
    return shlex.quote(text)


def make_secure(properties: Mapping[str, str], directory: Path | None, *, several: bool) -> Secured:
    """Return properties of brokers with TLS, users and rules; make the files that they need.

    Explicit keys win. `several` brokers get an inter-broker listener with TLS. Raises ConfigError
    and ClickException.
    """
    own = resolve_aliases(properties)
    if directory is None:
        first = (own.get("log.dirs") or own["log.dir"]).split(",")[0].strip()
        directory = Path(first, "secure")
    directory = directory.absolute()
    hosts = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    names = []
    for key in ("listeners", "advertised.listeners"):
        if key in own:
            given = [parse_address(key, text.strip()) for text in own[key].split(",")]
            given = [("SASL_SSL" if name == "PLAINTEXT" else name, at) for name, at in given]
            own[key] = ",".join(f"{name}://{at}" for name, at in given)
            hosts += [at.host for _, at in given if at.host not in _ANY_ADDRESS]
            names += [name for name, _ in given if name not in names]
    _set_protocols(own, names, several=several)
    on_zookeeper = bool(own.get("zookeeper.connect"))
    broker = f"broker-{own.get('broker.id', '0')}.pem"
    made = _make_files(directory, hosts, broker, on_zookeeper=on_zookeeper)
    if on_zookeeper:
        _protect_nodes(own, directory / _DIGEST)
    if not any(key.startswith("ssl.keystore.") for key in own):
        own["ssl.keystore.type"], own["ssl.keystore.location"] = "PEM", str(made.broker)
    if not any(key.startswith("ssl.truststore.") for key in own):
        own["ssl.truststore.type"] = "PEM"
        own["ssl.truststore.location"] = str(directory / _CA)
    own.setdefault("sasl.enabled.mechanisms", f"SCRAM-SHA-256,{MECHANISM}")
    own.setdefault("authorizer.class.name", AUTHORIZERS[0])
    own["super.users"] = ";".join(
        filter(None, (own.get("super.users"), f"User:{ADMIN}", f"User:CN={BROKER}"))
    )
    return Secured(own, directory, made.new_password)


def make_files(directory: Path, hosts: Iterable[str]) -> None:
    """Make the files of a directory, with one certificate for brokers on all these hosts.

    Raises ClickException.
    """
    if (directory / _CA).exists() and not (directory / _CA_KEY).exists():
        raise click.ClickException(f"{directory} has no {_CA_KEY}: bring it back for a certificate")
    _make_files(directory.absolute(), list(hosts), _BROKER, on_zookeeper=True)


def _set_protocols(own: dict[str, str], names: list[str], *, several: bool) -> None:
    """Map listeners to SASL_SSL, and one between brokers to TLS with certificates on both sides."""
    between = own.get("inter.broker.listener.name")
    if own.pop("security.inter.broker.protocol", None) is not None:
        raise ConfigError(
            "--secure takes inter.broker.listener.name instead of security.inter.broker.protocol"
        )
    protocols = dict.fromkeys(names, "SASL_SSL")
    if between is None and several:
        between = INTER_BROKER_LISTENER
    elif between is None:
        own["inter.broker.listener.name"] = names[0]
    if between is not None and names != [between]:
        protocols[between] = "SSL"
        own.setdefault(f"listener.name.{between.lower()}.ssl.client.auth", "required")
    own["listener.security.protocol.map"] = ",".join(f"{a}:{b}" for a, b in protocols.items())


def _protect_nodes(own: dict[str, str], digest: Path) -> None:
    """Let brokers alone change nodes in ZooKeeper and read secrets there; explicit keys win."""
    keys = ("zookeeper.digest.file", "zookeeper.ssl.keystore.location", "zookeeper.set.acl")
    # Files that were made elsewhere may lack it: the brokers warn of open nodes then.
    if digest.exists() and not any(key in own for key in keys):
        own["zookeeper.digest.file"], own["zookeeper.set.acl"] = str(digest), "true"


class _Made(NamedTuple):
    broker: Path
    new_password: bool


def _make_files(directory: Path, hosts: list[str], broker: str, *, on_zookeeper: bool) -> _Made:
    """Make the files that are missing; brokers of several hosts may do so at the same time."""
    if (directory / _CA).exists() and not (directory / _CA_KEY).exists():
        missing = [name for name in (_BROKER, _PASSWORD) if not (directory / name).exists()]
        if missing:
            raise click.ClickException(
                f"{directory} has {_CA} without {_CA_KEY} and {' and '.join(missing)}: give a "
                "directory that has all of them, or an empty one"
            )
        return _Made(directory / _BROKER, False)
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        file, password = directory / broker, directory / _PASSWORD
        if not (directory / _CA).exists() or not file.exists() or not _serves(file, hosts):
            replace_file(file, _authority(directory).issue(BROKER, hosts))
        is_new = not password.exists()
        if is_new:
            replace_file(password, _new_password().encode())
        if on_zookeeper and not (directory / _DIGEST).exists():
            replace_file(directory / _DIGEST, f"{BROKER}:{_new_password()}\n".encode())
        _write_properties(directory)
    return _Made(file, is_new)


def _new_password() -> str:
    import secrets

    return secrets.token_urlsafe(24)


def _serves(file: Path, hosts: list[str]) -> bool:
    """Return whether a certificate is ours, names all these hosts, and has time left.

    The next start finds all in place: it does not pay for the import of `cryptography`.
    """
    try:
        (ca, *_), (own, *_) = (
            map(parse_certificate, certificates_of(each.read_text()))
            for each in (file.with_name(_CA), file)
        )
    except ValueError:
        text = f"{file} or {_CA} has no certificate: remove {file.name} to make it again"
        raise click.ClickException(text) from None
    left = own.not_after - datetime.now(UTC)
    return (
        own.issuer == ca.subject
        and left > timedelta(days=_RENEWED_DAYS)
        and own.alternative_names >= set(map(_encoded_name, hosts))
    )


def _encoded_name(host: str) -> bytes:
    """Return a name as a certificate has it: an address, or the name of a host."""
    try:
        tag, content = 0x87, ip_address(host).packed
    except ValueError:
        tag, content = 0x82, host.encode()
    return bytes((tag, len(content))) + content


def _authority(directory: Path) -> "Authority":
    try:
        from barnabas.security.authority import Authority
    except ImportError:
        raise click.ClickException(
            "--secure needs the package cryptography: pip install 'barnabas[security]'"
        ) from None
    ca, key = directory / _CA, directory / _CA_KEY
    if not key.exists():
        import secrets

        new = Authority.new(f"Barnabas CA {secrets.token_hex(4)}")
        replace_file(key, new.key_pem)
        replace_file(ca, new.pem, PUBLIC)
    elif not ca.exists():
        raise click.ClickException(
            f"{directory} has {_CA_KEY} without {_CA}: bring it back, or remove the directory, and "
            "give the new one to all clients"
        )
    try:
        return Authority.load(ca.read_bytes(), key.read_bytes())
    except ValueError as error:
        raise click.ClickException(f"{ca} and {key} cannot be used: {error}") from None


def _write_properties(directory: Path, servers: str = "") -> None:
    """Write the administrator's properties; without `servers` with those that the file has."""
    from barnabas.client.settings import ClientSettings

    file = directory / _PROPERTIES
    if not servers and file.exists():
        servers = parse_properties(file.read_text("iso-8859-1")).get("bootstrap.servers", "")
    password = (directory / _PASSWORD).read_text()
    if not password or not password.isprintable():
        raise click.ClickException(f"{directory / _PASSWORD} has no password in one line")
    keys = ClientSettings(servers, "inline", MECHANISM, ADMIN, password).java()
    del keys["ssl.truststore.location"]
    if not servers:
        del keys["bootstrap.servers"]
    keys["ssl.truststore.certificates"] = (directory / _CA).read_text().strip()
    lines = [f"{key}={_escaped(text)}\n" for key, text in keys.items()]
    content = "".join(lines).encode("iso-8859-1", "backslashreplace")
    if not file.exists() or file.read_bytes() != content:
        replace_file(file, content)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; its release is the close of the file."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
