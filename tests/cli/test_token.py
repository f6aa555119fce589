"""`headrace token`: the secret is shown once; the list and the errors never have it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import headrace


def test_a_token_is_made_listed_and_revoked(place: Path) -> None:
    store = ("--store", place / "data")
    made = headrace("token", "create", "till-7", "--allow", "publish:orders.*", "--allow", "read:*", *store)
    assert made.code == 0
    (secret,) = made.lines
    assert secret.startswith("hr_")
    shown = headrace("token", "create", "b", "--allow", "admin:*", "--expires", "30d", "--json", *store).json
    assert shown["secret"].startswith("hr_")
    assert shown["expires"] > shown["created"]
    assert not shown["expired"]
    listed = headrace("token", "ls", *store)
    assert "publish:orders.* read:*" in listed.text
    assert "never" in listed.text
    facts = headrace("token", "ls", "--json", *store)
    assert [(each["name"], each["expires"] is None) for each in facts.json["tokens"]] == [
        ("till-7", True),
        ("b", False),
    ]
    assert secret not in listed.text + facts.text
    assert headrace("token", "revoke", "till-7", *store).text == "revoked till-7\n"
    assert headrace("token", "revoke", "b", "--json", *store).json["name"] == "b"
    assert "revoked" in headrace("token", "ls", *store).err
    assert headrace("token", "ls", "--json", *store).json == {"needed": True, "tokens": []}


def test_what_cannot_be_done_is_one_line(place: Path) -> None:
    store = ("--store", place / "data")
    assert headrace("token", "ls", *store).err.startswith("error (not_found): ")
    assert headrace("token", "create", "a", *store).code == 2
    for words, code in (
        (("create", "a", "--allow", "write:*"), "bad_settings"),
        (("create", "../a", "--allow", "read:*"), "bad_name"),
        (("create", "a", "--allow", "read:*", "--expires", "soon"), "bad_duration"),
        (("revoke", "a"), "not_found"),
    ):
        outcome = headrace("token", *words, *store)
        assert outcome.err.startswith(f"error ({code}): "), outcome
        assert (outcome.out, outcome.err.count("\n")) == (b"", 1)
    assert "needs none" in headrace("token", "ls", *store).err
