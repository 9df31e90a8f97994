"""Broker keys of the passwords that AlterConfigs stores, under the names of Kafka 3.9."""

from typing import Final

from barnabas.config.declare import integer, password, string
from barnabas.config.key import ConfigError
from barnabas.config.table import Table

CIPHERS: Final = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
KEY_FACTORIES: Final = ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA1")
KEY_BITS: Final = (128, 192, 256)


def _check_key_bits(key: str, value: int) -> None:
    if value not in KEY_BITS:
        raise ConfigError.invalid(key, value, "A key of AES has 128, 192 or 256 bits")


class PasswordEncoderKeys(Table):
    """Keys of the encryption of passwords in the metadata store (KIP-226)."""

    password_encoder_cipher_algorithm = string(
        CIPHERS[0], "Cipher of newly encrypted passwords.", one_of=CIPHERS
    )
    password_encoder_iterations = integer(
        4096,
        "Iterations of `password.encoder.keyfactory.algorithm` for newly encrypted passwords.",
        at_least=1024,
    )
    password_encoder_key_length = integer(
        KEY_BITS[0], "Bits of the key of newly encrypted passwords.", check=_check_key_bits
    )
    password_encoder_keyfactory_algorithm = string(
        KEY_FACTORIES[0],
        "Function that makes the key of newly encrypted passwords from the secret.",
        one_of=KEY_FACTORIES,
    )
    password_encoder_old_secret = password(
        "The secret before `password.encoder.secret` was changed. At its start, the broker "
        "encrypts its stored passwords again."
    )
    password_encoder_secret = password(
        "Secret under which passwords that AlterConfigs sets are encrypted in the metadata store. "
        "A broker on ZooKeeper takes no passwords without it; one that keeps its own metadata "
        "stores them in the clear then, as Kafka 4 does. Needs the extra `security`."
    )
