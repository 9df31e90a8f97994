"""Tokens of forms: for one change, once, for some minutes, and only from this process."""

import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException

VALID_S: Final = 600.0
_MOST_USED: Final = 10_000


class Tokens:
    """The tokens of a process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._secret = secrets.token_bytes(32)
        self._now = now
        self._used: OrderedDict[str, float] = OrderedDict()

    def issue(self, action: str, facts: str) -> tuple[str, str]:
        """Return the time of a confirmation and its token."""
        issued = f"{self._now():.6f}-{secrets.token_hex(8)}"
        return issued, self._token(action, facts, issued)

    def take(self, action: str, facts: str, issued: str, token: str) -> None:
        """Use a token. Raises HTTPException unless it is for this change, unused and not old."""
        if not hmac.compare_digest(token.encode(), self._token(action, facts, issued).encode()):
            raise HTTPException(403, "The form has no valid token of this console: begin again.")
        now = self._now()
        while self._used and next(iter(self._used.values())) <= now - VALID_S:
            self._used.popitem(last=False)
        if token in self._used:
            raise HTTPException(409, "This was confirmed already: nothing was done again.")
        if float(issued.partition("-")[0]) < now - VALID_S:
            raise HTTPException(409, "The confirmation is too old: begin again.")
        if len(self._used) >= _MOST_USED:
            # A used token that is forgotten would be valid again.
            raise HTTPException(429, "There were too many changes lately: wait some minutes.")
        self._used[token] = now

    def _token(self, action: str, facts: str, issued: str) -> str:
        text = json.dumps([action, facts, issued])
        return hmac.new(self._secret, text.encode(), "sha256").hexdigest()
