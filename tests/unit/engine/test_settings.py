import json
import string
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from towpath_engine.secrets import mask_secrets, masker
from towpath_engine.settings import (
    DOCUMENTATION,
    Settings,
    SettingsError,
    describe_settings,
    load_settings,
    secrets_of,
)


def refusal(environ: dict[str, str], config_file: str | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ, config_file)
    return str(refused.value)


def test_without_anything_every_setting_has_its_default() -> None:
    loaded = load_settings({})
    assert loaded.settings == Settings()
    assert loaded.sources == {}


def test_every_setting_is_documented_and_nothing_else_is() -> None:
    assert set(DOCUMENTATION) == set(Settings.__struct_fields__)
    assert all(description for _, description in DOCUMENTATION.values())


def test_every_default_passes_its_own_checks() -> None:
    shown = {entry.variable: entry.default for entry in describe_settings(load_settings({}))}
    assert load_settings(shown).settings == Settings()


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "towpath.toml"
    file.write_text('prefix = "from-file"\nhttp_port = 9000\n')
    loaded = load_settings({"TOWPATH_PREFIX": "from-env"}, str(file))
    assert (loaded.settings.prefix, loaded.settings.http_port) == ("from-env", 9000)
    assert loaded.settings.postgres_schema == Settings().postgres_schema
    assert loaded.sources == {"prefix": "environment", "http_port": "file"}


def test_the_file_may_be_named_by_the_environment_and_the_argument_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f'prefix = "{name}"\n')
    environ = {"TOWPATH_CONFIG": str(tmp_path / "one")}
    assert load_settings(environ).settings.prefix == "one"
    assert load_settings(environ, str(tmp_path / "two")).settings.prefix == "two"


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    assert "did you mean TOWPATH_POSTGRES_POOL_SIZE?" in refusal({"TOWPATH_POSTGRES_POOLSIZE": "3"})


def test_an_unknown_name_in_a_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "towpath.toml"
    file.write_text('prefx = "x"\n')
    assert "did you mean prefix?" in refusal({}, str(file))


def test_a_name_that_resembles_nothing_points_to_the_list() -> None:
    assert "`towpath settings` lists the names" in refusal({"TOWPATH_QQQQ": "3"})


@pytest.mark.parametrize(
    "variable",
    [
        "TOWPATH_SERVICE_HOST",
        "TOWPATH_SERVICE_PORT",
        "TOWPATH_PORT",
        "TOWPATH_PORT_8080_TCP_ADDR",
        "TOWPATH_TEST_POSTGRES_URL",
        "TOWPATH_WORKER_SLOTS",
    ],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load_settings({variable: "tcp://10.0.0.1:8080"}).settings == Settings()


@pytest.mark.parametrize(
    ("variable", "value", "fix"),
    [
        ("TOWPATH_HTTP_PORT", "70000", "a whole number (port), at least 0, at most 65535"),
        ("TOWPATH_HTTP_PORT", "eighty", "a whole number (port)"),
        ("TOWPATH_HTTP_PORT", "8080.5", "a whole number (port)"),
        ("TOWPATH_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("TOWPATH_REQUIRE_SENDER", "perhaps", "true or false"),
        ("TOWPATH_DRAIN_SECONDS", "0", "a number (s), more than 0"),
        ("TOWPATH_DRAIN_SECONDS", "nan", "a number (s)"),
        ("TOWPATH_DRAIN_SECONDS", "inf", "a number (s)"),
        ("TOWPATH_PREFIX", "Upper", "give text: a lower-case letter, then at most 31"),
        ("TOWPATH_PREFIX", "newline\n", "give text: a lower-case letter, then at most 31"),
        ("TOWPATH_PREFIX", "", "give text: a lower-case letter, then at most 31"),
        ("TOWPATH_POSTGRES_SCHEMA", 'x"; DROP', "give text: a lower-case letter or '_'"),
    ],
)
def test_a_bad_value_names_the_setting_and_the_fix(variable: str, value: str, fix: str) -> None:
    message = refusal({variable: value})
    assert message.startswith(variable)
    assert fix in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("prefix = ", "is not TOML"),
        ("prefix = 3", "`prefix` in"),
        ('http_port = "true"', "`http_port` in"),
        ("[nats]\nurl = 'x'", "unknown setting nats"),
        ("require_sender = 1", "give true or false"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "towpath.toml"
    file.write_text(text)
    message = refusal({}, str(file))
    assert part in message
    assert "\n" not in message


def test_a_missing_file_and_one_that_is_not_text_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    assert "does not exist" in refusal({}, str(tmp_path / "missing"))
    assert "not UTF-8" in refusal({}, str(binary))
    assert "can't be read" in refusal({}, str(tmp_path))


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"TOWPATH_NATS_TLS_CERT_FILE": "c.pem"}, "set both or neither"),
        ({"TOWPATH_POSTGRES_POOL_SIZE": "3"}, "must be more than transactions_in_flight_max"),
        ({"TOWPATH_NATS_URL": " "}, "nats_url is empty"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    environ: dict[str, str], part: str
) -> None:
    assert part in refusal(environ)


def test_no_secret_is_ever_shown() -> None:
    loaded = load_settings(
        {
            "TOWPATH_POSTGRES_URL": "postgresql://me:s3cr3t@p@db/x?sslpassword=s3cr3t",
            "TOWPATH_NATS_URL": "nats://me:s3cr3t@a:4222, tls://s3cr3t@b:4222,nats://c",
        }
    )
    shown = msgspec.json.encode(describe_settings(loaded)).decode()
    assert "s3cr3t" not in shown
    assert "postgresql://me:***@db/x?sslpassword=***" in shown
    assert "nats://me:***@a:4222, tls://***@b:4222,nats://c" in shown


@pytest.mark.parametrize("name", ["nats_password", "nats_token"])
def test_a_secret_setting_is_masked_wherever_it_comes_from(tmp_path: Path, name: str) -> None:
    file = tmp_path / "towpath.toml"
    user = 'nats_user = "me"\n' if name == "nats_password" else ""
    file.write_text(f'{user}{name} = "s3cr3t"\n')
    shown = {entry.name: entry.value for entry in describe_settings(load_settings({}, str(file)))}
    assert shown[name] == "***"
    assert {
        entry.value for entry in describe_settings(load_settings({})) if entry.name == name
    } == {""}
    file.write_text(f"{name} = 777777777\n")
    assert "777777777" not in refusal({}, str(file))


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"TOWPATH_NATS_USER": "me"}, "set both or neither"),
        ({"TOWPATH_NATS_PASSWORD": "s3cr3t"}, "set both or neither"),
        (
            {"TOWPATH_NATS_TOKEN": "s3cr3t", "TOWPATH_NATS_CREDENTIALS_FILE": "x.creds"},
            "nats_token and nats_credentials_file say who the engine is: set only one",
        ),
        ({"TOWPATH_NATS_URL": "nats://me:s3/cr3t@a:4222"}, "nats_url is no URL"),
        ({"TOWPATH_NATS_URL": "me:s3cr3t@a:4222"}, "begin with nats://"),
        ({"TOWPATH_POSTGRES_URL": "postgresql://me:s3#cr3t@db/x"}, "special characters of user"),
        ({"TOWPATH_POSTGRES_URL": "postgresql://me:s3cr3t@db:port/x"}, "the port as a number"),
    ],
)
def test_a_way_to_log_in_that_can_not_work_is_refused_without_its_secret(
    environ: dict[str, str], part: str
) -> None:
    message = refusal(environ)
    assert part in message
    assert "cr3t" not in message


def test_urls_with_several_hosts_and_addresses_are_taken() -> None:
    load_settings(
        {
            "TOWPATH_POSTGRES_URL": "postgresql://me:p%2Fw@a:5432,[::1]:5433,c/db?sslmode=require",
            "TOWPATH_NATS_URL": "nats://a, tls://[::1]:4222,wss://c",
        }
    )
    load_settings({"TOWPATH_POSTGRES_URL": "postgresql:///db?host=/run/postgresql"})


def test_the_secrets_of_an_engine_are_known_by_value() -> None:
    settings = load_settings(
        {
            "TOWPATH_NATS_URL": "nats://me:pass%2Fword@a,tls://tok-tok@b",
            "TOWPATH_POSTGRES_URL": "postgresql://me:pgpgpg@db/x?sslpassword=keykey",
            "TOWPATH_NATS_TOKEN": "tntntn",
        }
    ).settings
    assert set(secrets_of(settings)) == {"pass/word", "tok-tok", "pgpgpg", "keykey", "tntntn"}


def test_a_secret_is_masked_however_it_is_spelt() -> None:
    secret = 'pä"ss/w\\rd'
    mask = masker([secret, "pg"])
    for spelt in (secret, json.dumps(secret), quote(secret, safe=""), repr(secret)):
        masked = mask(f"login with {spelt} as pg failed")
        assert "***" in masked
        assert "ss" not in masked
        assert "as pg failed" in masked, "what is too short to be told from words stays"


def test_a_url_without_secrets_is_shown_as_it_is() -> None:
    url = "postgresql://me@db:5432/x?application_name=a@b"
    assert mask_secrets(url) == url


def test_a_refused_value_does_not_show_its_secret() -> None:
    message = refusal({"TOWPATH_HTTP_PORT": "postgresql://me:s3cr3t@db"})
    assert "s3cr3t" not in message


def test_names_are_lower_case_words_with_their_unit_last() -> None:
    allowed = set(string.ascii_lowercase + "_")
    for name, (unit, _) in DOCUMENTATION.items():
        assert set(name) <= allowed
        if unit == "bytes":
            assert name.endswith("_bytes_max")
        if unit == "s":
            assert name.endswith("_seconds")
        if unit == "ms":
            assert name.endswith("_ms")
