"""Tokens in a store: made, listed, revoked; what is stored of them is no secret."""

from __future__ import annotations

import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import BadName, BadSettings, Damaged, NewerFormat, NotFound, Unauthorized
from headrace.server.permissions import KINDS, Grant, Holder, Permission
from headrace.server.tokens import PREFIX, TOKENS_FILE, Keyring, TokenFile


@pytest.fixture
def store(place: Path) -> Path:
    with hr.open(place / "store") as opened:
        return opened.path


def test_a_secret_opens_what_its_token_allows_and_is_stored_nowhere(store: Path) -> None:
    file = TokenFile(store)
    made = file.create("till-7", ["publish:orders.*", "read:*"])
    assert made.secret.startswith(PREFIX)
    assert len(made.secret) == len(PREFIX) + 43  # 256 bits
    content = (store / TOKENS_FILE).read_text()
    assert made.secret not in content
    assert made.secret[len(PREFIX) :] not in content
    assert stat.S_IMODE((store / TOKENS_FILE).stat().st_mode) == 0o600
    holder = Keyring(file.tokens() or [], ManualClock()).holder(made.secret)
    assert holder.name == "till-7"
    assert holder.may(Permission.PUBLISH, "streams", "orders.eu")
    assert not holder.may(Permission.PUBLISH, "streams", "payments")
    assert holder.may(Permission.READ, "journals", "payments")


def test_two_tokens_have_two_secrets_and_a_name_is_used_once(store: Path) -> None:
    file = TokenFile(store)
    assert file.create("a", ["read:*"]).secret != file.create("b", ["read:*"]).secret
    with pytest.raises(BadSettings, match="already"):
        file.create("a", ["read:*"])


def test_a_wrong_secret_is_unknown_however_near_it_is(store: Path) -> None:
    file = TokenFile(store)
    secret = file.create("a", ["read:*"]).secret
    keyring = Keyring(file.tokens() or [], ManualClock())
    for wrong in ("", PREFIX, secret[:-1], secret + "A", secret.swapcase(), "\udcff" + secret, secret + "\0"):
        with pytest.raises(Unauthorized) as raised:
            keyring.holder(wrong)
        assert secret not in str(raised.value)


def test_a_token_expires_at_its_moment(store: Path) -> None:
    clock = ManualClock(5_000_000)
    file = TokenFile(store, clock=clock)
    made = file.create("a", ["read:*"], "30d")
    keyring = Keyring(file.tokens() or [], clock)
    clock.advance(30 * 86400 - 1)
    holder = keyring.holder(made.secret)
    assert keyring.knows(holder)
    clock.advance(1)
    assert not keyring.knows(holder)
    with pytest.raises(Unauthorized, match="expired"):
        keyring.holder(made.secret)


def test_revoking_the_last_token_does_not_open_the_store(store: Path) -> None:
    file = TokenFile(store)
    assert file.tokens() is None
    old = file.create("a", ["read:*"])
    holder = Keyring([old.token], ManualClock()).holder(old.secret)
    assert file.revoke("a").name == "a"
    assert file.tokens() == []
    with pytest.raises(NotFound):
        file.revoke("a")
    again = file.create("a", ["read:*"])
    assert not Keyring([again.token], ManualClock()).knows(holder), (
        "a name that is used again is another token"
    )


def test_names_and_permissions_that_make_no_sense_are_refused(store: Path) -> None:
    file = TokenFile(store)
    for allow in (
        "",
        "read",
        "read:",
        "write:*",
        "read:a b",
        "read:topics/x",
        "read:../x",
        "READ:*",
        "read:a/*",
    ):
        with pytest.raises(BadSettings):
            file.create("a", [allow])
    with pytest.raises(BadSettings):
        file.create("a", [])
    with pytest.raises(BadName):
        file.create("../a", ["read:*"])
    assert file.tokens() is None


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", Damaged),
        ("{}", Damaged),
        ('{"format": 9, "tokens": []}', NewerFormat),
        ('{"format": 1, "tokens": [{"name": "a", "hash": "zz", "allow": [], "created_us": 1}]}', Damaged),
        ('{"format": 1, "tokens": [{"name": "a", "hash": "00", "allow": ["x"], "created_us": 1}]}', Damaged),
    ],
)
def test_a_file_that_is_not_understood_lets_nobody_in(
    store: Path, content: str, error: type[Exception]
) -> None:
    (store / TOKENS_FILE).write_text(content)
    with pytest.raises(error):
        TokenFile(store).tokens()


NAME = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=12)


@given(NAME, NAME, st.sampled_from(list(Permission)), st.sampled_from(KINDS))
def test_a_pattern_allows_its_names_and_no_others(
    name: str, other: str, permission: Permission, kind: str
) -> None:
    exact = Holder("t", (Grant.parse(f"{permission}:{name}"),))
    assert exact.may(permission, kind, name)
    assert exact.may(permission, kind, other) == (name == other)
    prefix = Holder("t", (Grant.parse(f"{permission}:{name}*"),))
    assert prefix.may(permission, kind, other) == other.startswith(name)
    one_kind = Holder("t", (Grant.parse(f"{permission}:{kind}/*"),))
    assert [one_kind.sees(each, other) for each in KINDS] == [each == kind for each in KINDS]
    assert not one_kind.may_everywhere(permission)
    for wanted in Permission:
        assert exact.may(wanted, kind, name) == (permission in (wanted, Permission.ADMIN))
    assert Grant.parse(str(exact.grants[0])) == exact.grants[0]


@pytest.mark.parametrize("expires", ["0s", 0])
def test_a_token_that_never_was_good_is_not_made(store: Path, expires: str | int) -> None:
    """It would close the store to everybody."""
    with pytest.raises(BadSettings, match="later than now"):
        TokenFile(store).create("a", ["read:*"], expires)
    assert TokenFile(store).tokens() is None
