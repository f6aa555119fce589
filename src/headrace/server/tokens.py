"""Tokens: who may use a node, and what for. `tokens.json` in the store.

    {"format": 1, "tokens": [{"name": "till-7", "hash": "…", "allow": ["publish:orders.*"],
                              "created_us": …, "expires_us": null}]}

A secret is `hr_` and 256 random bits; it is shown once, and only its SHA-256 is stored. A slow hash (scrypt,
argon2) is for passwords, which people choose and machines can guess. 256 random bits cannot be guessed,
however quick the hash is, and a quick one can be checked at every request. Looking a hash up in a table tells
an attacker nothing by its timing: to learn the next byte he would have to choose a secret by its hash.

Once the file is there, every request needs a token, even when the last one has been revoked: taking away a
token never opens a node. The file has mode 0600 and is replaced whole, under the store's lock.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.durations import Duration, microseconds
from headrace.kernel.errors import BadSettings, Damaged, NewerFormat, NotFound, Unauthorized
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk
from headrace.log.lock import LOCK_FILE
from headrace.server.permissions import Grant, Holder

TOKENS_FILE = "tokens.json"
PREFIX = "hr_"
FORMAT = 1
TOKENS_MAX = 10_000


class Token(msgspec.Struct, frozen=True):
    """What is stored of a token."""

    name: str
    hash: str
    allow: list[str]
    created_us: int
    expires_us: int | None = None

    def expired(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us


class _Stored(msgspec.Struct):
    format: int
    tokens: list[Token]


@dataclass(frozen=True, slots=True)
class Created:
    token: Token
    secret: str
    """Shown now, and never again."""


class TokenFile:
    """The tokens of one store. Each verb reads the file anew: other processes change it, too."""

    def __init__(self, store: Path, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._path = store / TOKENS_FILE
        self._disk = disk or Disk()
        self._clock = clock or SystemClock()

    def create(self, name: str, allow: Sequence[str], expires: Duration | None = None) -> Created:
        """A new token; BadSettings if one of that name is there, expired or not."""
        checked_name(name, "token name")
        if not allow:
            raise BadSettings(
                f"the token {name!r} would be allowed nothing: give it permissions, as in read:*"
            )
        grants = [str(Grant.parse(text)) for text in allow]
        now_us = self._clock.now_us()
        secret = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        expires_us = None if expires is None else now_us + microseconds(expires)
        if expires_us is not None and expires_us <= now_us:
            raise BadSettings(f"the token {name!r} would be of no use: let it expire later than now")
        token = Token(name, _hash(secret), grants, now_us, expires_us)

        def add(tokens: list[Token]) -> list[Token]:
            if any(each.name == name for each in tokens):
                raise BadSettings(
                    f"there is a token {name!r} already: revoke it first, or choose another name"
                )
            if len(tokens) >= TOKENS_MAX:
                raise BadSettings(f"there are {TOKENS_MAX} tokens, which is as many as may be: revoke some")
            return [*tokens, token]

        self._change(add)
        return Created(token, secret)

    def revoke(self, name: str) -> Token:
        """Take a token away: a node that runs refuses it within a second, and ends what it follows."""
        gone: list[Token] = []

        def remove(tokens: list[Token]) -> list[Token]:
            gone.extend(token for token in tokens if token.name == name)
            if not gone:
                raise NotFound(f"there is no token {name[:80]!r}: see `headrace token ls`")
            return [token for token in tokens if token.name != name]

        self._change(remove)
        return gone[0]

    def tokens(self) -> list[Token] | None:
        """All of them; None if there never was one, so that nobody needs any."""
        if self._disk.kind(self._path) == "nothing":
            return None
        try:
            stored = msgspec.json.decode(self._disk.read_whole(self._path), type=_Stored)
            for token in stored.tokens:
                bytes.fromhex(token.hash)
                for text in token.allow:
                    Grant.parse(text)
        except (msgspec.MsgspecError, BadSettings, ValueError) as error:
            raise Damaged(f"{self._path} cannot be read ({error}): restore it, or remove it") from error
        if stored.format > FORMAT:
            raise NewerFormat(f"{self._path} has format {stored.format}; this headrace reads up to {FORMAT}")
        return stored.tokens

    def state(self) -> object:
        """Changes when the file does, or who may read it."""
        return self._disk.state(self._path)

    def _change(self, change: Callable[[list[Token]], list[Token]]) -> None:
        with self._alone():
            tokens = change(self.tokens() or [])
            content = msgspec.json.format(msgspec.json.encode(_Stored(FORMAT, tokens)))
            self._disk.replace_whole(self._path, content + b"\n", private=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._disk.opened(self._store / LOCK_FILE, write=True, create=True) as file:
            file.lock()
            yield


class Keyring:
    """The tokens as a node asks for them: in memory, by their hashes."""

    def __init__(self, tokens: Sequence[Token], clock: Clock) -> None:
        self._clock = clock
        self._holders = {
            token.hash: (token, Holder(token.name, tuple(map(Grant.parse, token.allow)), token.hash))
            for token in tokens
        }

    def holder(self, secret: str) -> Holder:
        """Whose secret it is; Unauthorized without a word on which part of it was right."""
        hashed = _hash(secret)
        token, holder = self._holders.get(hashed, (None, None))
        if token is None or holder is None or not hmac.compare_digest(token.hash, hashed):
            raise Unauthorized("this token is not known here: it is wrong, or it has been revoked")
        if token.expired(self._clock.now_us()):
            raise Unauthorized(f"the token {token.name!r} has expired: ask for a new one")
        return holder

    def knows(self, holder: Holder) -> bool:
        """Whether somebody who came with a token may stay: it is there, unchanged, and has not expired."""
        token, known = self._holders.get(holder.hash, (None, None))
        return token is not None and known == holder and not token.expired(self._clock.now_us())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
