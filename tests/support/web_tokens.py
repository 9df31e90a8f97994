"""An issuer of JSON Web Tokens for tests."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm


class Issuer:
    """An issuer with one key."""

    def __init__(self, key_id: str = "k") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.key_id = key_id

    @property
    def key_set(self) -> str:
        public = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return json.dumps({"keys": [public | {"kid": self.key_id}]})

    def write(self, path: Path) -> str:
        """Write the key set into a file, and return its URL."""
        path.write_text(self.key_set)
        return path.as_uri()

    def token(self, subject: str, *, lasts_s: float = 600, **claims: Any) -> str:
        now = time.time()
        own = {"sub": subject, "iat": now, "exp": now + lasts_s, "scope": "produce"}
        return jwt.encode(own | claims, self.key, "ES256", headers={"kid": self.key_id})
