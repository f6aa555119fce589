"""Permissions: what a token may do to which names.

    publish:orders.*          publish to the streams and journals whose names begin with `orders.`
    read:*                    read every stream and journal
    create:streams/tmp-*      make streams, but no journals, whose names begin with `tmp-`
    admin:*                   everything

A grant is a permission and a pattern of names, in which `*` stands for any characters. Streams and journals
share one namespace; `streams/` or `journals/` before the pattern names only one kind. There are four
permissions, and `admin` includes the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from headrace.kernel.errors import BadSettings, NoPermission

KINDS = ("streams", "journals")
_PATTERN = re.compile(r"(?:(streams|journals)/)?([-_A-Za-z0-9.*]{1,200})")


class Permission(StrEnum):
    PUBLISH = "publish"
    READ = "read"
    CREATE = "create"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    permission: Permission
    pattern: str
    kind: str | None = None
    """`streams` or `journals`; None: both."""

    @classmethod
    def parse(cls, text: str) -> Grant:
        """`publish:orders.*` as a grant; BadSettings if it is none."""
        word, colon, pattern = text.partition(":")
        match = _PATTERN.fullmatch(pattern)
        if word not in list(Permission) or not colon or match is None:
            raise BadSettings(
                f"{text[:80]!r} is no permission: give publish, read, create or admin, a colon and a pattern "
                "of names, as in read:orders.* or read:streams/orders"
            )
        return cls(Permission(word), match[2], match[1])

    def allows(self, permission: Permission, kind: str, name: str) -> bool:
        return self.permission in (permission, Permission.ADMIN) and self.names(kind, name)

    def names(self, kind: str, name: str) -> bool:
        return self.kind in (kind, None) and fnmatchcase(name, self.pattern)

    def __str__(self) -> str:
        return f"{self.permission}:{self.kind + '/' if self.kind else ''}{self.pattern}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks: the name of a token and what it may do. Without a name, anyone of a node without tokens."""

    name: str | None
    grants: tuple[Grant, ...]
    hash: str = field(default="", repr=False)
    """Which token it is: names can be used again."""

    def may(self, permission: Permission, kind: str, name: str) -> bool:
        return any(grant.allows(permission, kind, name) for grant in self.grants)

    def may_everywhere(self, permission: Permission) -> bool:
        """Whether it has the permission for every name there is and will be."""
        return all(
            any(
                grant.permission in (permission, Permission.ADMIN)
                and grant.kind in (kind, None)
                and not grant.pattern.strip("*")
                for grant in self.grants
            )
            for kind in KINDS
        )

    def sees(self, kind: str, name: str) -> bool:
        """Whether it may know that this is there: it has some permission for it."""
        return any(grant.names(kind, name) for grant in self.grants)

    def seen(self, kind: str, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.sees(kind, name)]

    def check(self, permission: Permission, kind: str, name: str) -> None:
        """NoPermission, unless it may."""
        if not self.may(permission, kind, name):
            raise NoPermission(
                f"the token {self.name!r} may not {permission} {kind}/{name[:80]}: it needs the permission "
                f"{permission}:{name[:80]}"
            )


ANYONE = Holder(None, (Grant(Permission.ADMIN, "*"),))
"""Whoever asks a node that has no tokens."""
