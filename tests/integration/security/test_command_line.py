"""The commands that print rights, and the commands that have to log in."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.jetstream import JetStreamServer, jetstream_url
from tests.support.nats_logins import logins
from tests.support.secured import printed
from towpath_engine.settings import Settings
from towpath_protocol import subjects

__all__ = ["jetstream_url"]

PAGE = Path(__file__).parents[3] / "docs" / "security.md"


def towpath(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "towpath_engine", *arguments],
        env={"PATH": "", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_rights_of_a_pool_are_those_of_the_protocol() -> None:
    (user,) = json.loads(printed("mail", "--json"))["users"]
    rights = subjects.permissions("towpath", "mail")
    assert user == {
        "user": "towpath-pool-mail",
        "inbox_prefix": "_INBOX_mail",
        "publish": list(rights.publish),
        "subscribe": list(rights.subscribe),
    }


def test_prefix_and_inbox_may_be_others() -> None:
    (user,) = json.loads(printed("mail", "--prefix", "shop", "--inbox", "_INBOX_x", "--json"))[
        "users"
    ]
    assert user["subscribe"] == ["shop.control.mail", "_INBOX_x.>"]
    assert "shop.heartbeat.mail" in user["publish"]
    (engine, _) = json.loads(printed("mail", "--inbox", "_INBOX_x", "--engine", "--json"))["users"]
    assert "_INBOX_x.>" in engine["publish"], "the engine may answer there"


def test_no_party_may_do_anything_at_all() -> None:
    everybody = printed("mail", "--engine", "--client", "--operator", "--json")
    for user in json.loads(everybody)["users"]:
        for subject in (*user["publish"], *user["subscribe"]):
            assert subject not in {">", "*", "$JS.>", "$JS.API.>", "$JS.ACK.>", "$SYS.>"}
        assert f"{user['inbox_prefix']}.>" in user["subscribe"]
        # Only the engine sends to inboxes, and nobody listens to those of all.
        assert "_INBOX.>" not in user["subscribe"]
        if user["user"] != "towpath-engine":
            assert not [subject for subject in user["publish"] if subject.startswith("_")]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "whose rights? name queues"),
        (("not a queue",), "queue"),
        (("a", "b", "--inbox", "_INBOX_x"), "name exactly one"),
        (("a", "--inbox", "$JS"), "TOWPATH_NATS_INBOX_PREFIX"),
        (("a", "--prefix", "Upper"), "TOWPATH_PREFIX"),
        (("a-b", "a_b"), "would share the password variable"),
        (("a", "--users", "--account"), "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], part: str) -> None:
    done = towpath("nats-permissions", *arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("form", ["users", "account"])
def test_a_server_does_not_start_without_the_passwords(tmp_path: Path, form: str) -> None:
    """There is no default to forget."""
    config = printed("mail", f"--{form}", "--engine", "--client", "--operator")
    with pytest.raises(RuntimeError, match=r"variable reference for .*password"):
        JetStreamServer(tmp_path / "nats", config=config).start()


def told(folder: Path, config: str, scheme: str, variables: dict[str, str]) -> str:
    """What `towpath list` says to a server of this configuration, where nobody serves."""
    greets = "handshake_first" not in config
    server = JetStreamServer(folder, jetstream=False, config=config, greets=greets).start()
    try:
        url = server.url.replace("nats:", f"{scheme}:")
        done = towpath("list", TOWPATH_NATS_URL=url, **variables)
    finally:
        server.kill()
    return f"{done.returncode} {done.stderr}"


def test_every_verb_logs_in_as_the_settings_say(tmp_path: Path) -> None:
    """What gets in is told that no engine answers, what does not that there is no server."""
    ways = [
        *logins(tmp_path),
        ('authorization { user: me, password: "another" }', "nats", {"TOWPATH_NATS_TOKEN": "x"}),
    ]
    # Each waits for its answer, so they wait together.
    with ThreadPoolExecutor(len(ways)) as pool:
        said = [
            pool.submit(told, tmp_path / f"nats-{number}", *way) for number, way in enumerate(ways)
        ]
    *let_in, refused = [one.result() for one in said]
    for one in let_in:
        assert re.match(r"3 towpath: no .*engine of prefix", one), one
    assert refused.startswith("9 towpath: no NATS server takes us"), refused
    assert "TOWPATH_NATS_PASSWORD" in refused


def test_a_verb_that_may_not_be_asked_names_the_right_that_is_missing(tmp_path: Path) -> None:
    config = (
        'authorization { users: [ { user: me, password: "p", permissions: { '
        'publish: { allow: ["towpath.api.run.get"] }, subscribe: { allow: ["_INBOX.>"] } } } ] }'
    )
    who = {"TOWPATH_NATS_USER": "me", "TOWPATH_NATS_PASSWORD": "p"}
    said = told(tmp_path / "nats", config, "nats", who)
    assert said.startswith("9 towpath: a right is missing in NATS: this user may not publish")
    assert "towpath.api.run.list" in said
    assert "towpath nats-permissions" in said


def test_files_that_can_not_be_used_are_named(tmp_path: Path, jetstream_url: str) -> None:
    missing = str(tmp_path / "missing")
    fields: dict[str, Any] = {
        "TOWPATH_NATS_CREDENTIALS_FILE": missing,
        "TOWPATH_NATS_NKEY_SEED_FILE": missing,
        "TOWPATH_NATS_TLS_CA_FILE": missing,
    }
    for name, value in fields.items():
        refused = towpath("list", TOWPATH_NATS_URL=jetstream_url, **{name: value})
        assert refused.returncode == 2
        assert missing in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_page_names_users_and_inboxes_as_they_are_printed() -> None:
    everybody = json.loads(printed("mail", "--engine", "--client", "--operator", "--json"))["users"]
    shown = re.findall(r"^\| .* \| `(\S+)` \| `(\S+)` \|$", PAGE.read_text(), re.MULTILINE)
    assert set(shown) == {(user["user"], user["inbox_prefix"]) for user in everybody}


def test_the_page_names_only_settings_that_exist() -> None:
    named = set(re.findall(r"TOWPATH_([A-Z_]+)", PAGE.read_text()))
    assert named
    assert {name.lower() for name in named} <= set(Settings.__struct_fields__)
