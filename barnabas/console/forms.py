"""The forms that browsers send, and their tokens: for one change, once, for some minutes, and only
from this process."""

import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Set
from typing import Final
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request

VALID_S: Final = 600.0
_MOST_USED: Final = 10_000


async def form_fields(request: Request, names: Set[str], most_bytes: int) -> dict[str, str] | None:
    """Return the fields of a form; None unless it has each of these names once, and no other."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Only forms are taken.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise HTTPException(413, "The form is too large.")
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return None
    if found.keys() != names or any(len(values) != 1 for values in found.values()):
        return None
    return {name: values[0] for name, values in found.items()}


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
