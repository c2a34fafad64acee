"""The file of users and tokens: what it may have, who may read it, and how its entries are changed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.web.security.auth_edit import remove_entry, set_entry
from holdfast.web.security.auth_file import AuthFile, Entries, parse_entries, read_entries
from tests.web.accounts import quick_password

PATH = Path("auth.toml")
HASH = "0" * 64
COMMENTED = """\
# our people
session = "8h"  # a day of work

[users.ada]  # since 2024
role = "operator"
queues = ["mail", "video-*"]

# programs
[tokens."ci@example.org"]
role = "viewer"
hash = "0000000000000000000000000000000000000000000000000000000000000000"
expires = 2030-01-01T00:00:00Z
"""


def parse(text: str) -> Entries:
    return parse_entries(text.encode(), PATH)


def write(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


def test_a_file_has_users_tokens_and_a_proxy() -> None:
    found = parse(COMMENTED)
    user = found.users["ada"].user("ada", "session")
    assert user.has_queue("video-1")
    assert not user.has_queue("other")
    assert found.session_seconds == 8 * 3600
    assert found.tokens["ci@example.org"].expires == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("users = 1", "Expected `object`, got `int` - at `$.users`"),
        ("wrong", "is not valid TOML"),
        ("nothing = 1", "unknown field `nothing`"),
        ("[users.ada]", "missing required field `role`"),
        ('[users.ada]\nrole = "king"', "Invalid enum value 'king'"),
        ('[users.ada]\nrole = "public"', "Invalid enum value 'public'"),
        ('[users.ada]\nrole = "viewer"\nquues = []', "unknown field `quues`"),
        ('[users.ada]\nrole = "viewer"\nqueues = ["a b"]', "queue is 'a b'"),
        ('[users.ada]\nrole = "viewer"\nqueues = ["!mail"]', "it excludes nothing"),
        ('[users.ada]\nrole = "viewer"\npassword = "secret"', "not one that `holdfast web users` has stored"),
        ('[users.ada]\nrole = "viewer"\npassword = "scrypt:40:8:3:YWFhYWFhYWE=:YQ=="', "not one that"),
        ('[users."a b"]\nrole = "viewer"', "the name is 'a b'"),
        ('[tokens.ci]\nrole = "viewer"\nhash = "hft_x"', "hash must be the SHA-256 of a token"),
        (f'[tokens.ci]\nrole = "viewer"\nhash = "{HASH}"\nscope = "all"', "scope is 'all'; expected one of metrics"),
        (f'[tokens.ci]\nrole = "viewer"\nhash = "{HASH}"\nexpires = 2030-01-01T00:00:00', "timezone"),
        (f'[users.a]\nrole = "viewer"\n[tokens.a]\nrole = "viewer"\nhash = "{HASH}"', "a is a user and a token"),
        ('[proxy]\nuser_header = "X-User"', "user_header needs hosts"),
        ('hosts = ["a"]\n[proxy]\nuser_header = "X User"', "expected the name of a header"),
        ('hosts = ["a"]\n[proxy]\nuser_header = "X-User"\nqueues = ["a"]', "who need a role, too"),
        ('hosts = ["Jobs.example.org"]', "expected a name in lower case, without a port"),
        ('hosts = ["jobs.example.org:443"]', "expected a name in lower case, without a port"),
        ('session = "1s"', "session is '1s'; it must be from 1m to 90d"),
        ('key = "short"', "key is too short"),
    ],
)
def test_a_mistake_is_explained(text: str, message: str) -> None:
    with pytest.raises(Invalid) as error:
        parse(text)
    assert str(error.value).startswith("auth.toml")
    assert message in str(error.value)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o644, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "auth.toml", COMMENTED)
    path.chmod(mode)
    if os.geteuid() == 0 and mode == 0o640:  # a group may read what root gives it
        assert read_entries(path)
        return
    with pytest.raises(Invalid, match="others may read"):
        read_entries(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.toml", COMMENTED)
    os.chown(path, 12345, -1)
    with pytest.raises(Invalid, match="belongs to another user"):
        read_entries(path)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file = AuthFile(write(tmp_path / "auth.toml", COMMENTED))
    first = file.entries()
    assert file.entries() is first
    set_entry(file.path, "users", "eve", {"role": "viewer"})
    assert set(file.entries().users) == {"ada", "eve"}


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(Invalid):
        read_entries(Path("/dev/zero"))


def test_a_new_file_has_a_key_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    set_entry(path, "users", "ada", {"role": "viewer", "queues": None, "password": quick_password()})
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_entries(path).key or "") > 32
    assert [each.name for each in tmp_path.iterdir()] == ["auth.toml"]


def test_changing_an_entry_leaves_all_else_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "auth.toml", COMMENTED)
    set_entry(path, "users", "eve@example.org", {"role": "viewer", "sees_data": True})
    assert path.read_text() == COMMENTED + '\n[users."eve@example.org"]\nrole = "viewer"\nsees_data = true\n'
    remove_entry(path, "users", "eve@example.org")
    assert path.read_text().rstrip() == COMMENTED.rstrip()
    remove_entry(path, "tokens", "ci@example.org")
    assert "# our people" in path.read_text()
    assert read_entries(path).tokens == {}
    set_entry(path, "users", "ada", {"role": "admin"})
    assert read_entries(path).users["ada"].role == "admin"


@pytest.mark.parametrize("text", ['users = { ada = { role = "viewer" } }\n', '[users]\nada.role = "viewer"\n'])
def test_an_entry_that_is_written_in_another_way_is_left_to_its_author(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "auth.toml", text)
    with pytest.raises(Invalid):
        remove_entry(path, "users", "ada")
    with pytest.raises(Invalid):
        set_entry(path, "users", "ada", {"role": "admin"})
    assert path.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = write(tmp_path / "real.toml", COMMENTED)
    link = tmp_path / "auth.toml"
    link.symlink_to(path)
    set_entry(link, "users", "eve", {"role": "viewer"})
    assert link.is_symlink()
    assert "eve" in read_entries(path).users
