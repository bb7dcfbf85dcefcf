"""The settings file of the engine, as workers and clients read it."""

from pathlib import Path

import pytest

from towpath_worker.options import connection_options


def test_a_client_finds_nats_by_the_file_that_the_command_line_reads(tmp_path: Path) -> None:
    file = tmp_path / "towpath.toml"
    file.write_text(
        'nats_url = "tls://a:1"\nprefix = "mine"\nnats_tls_handshake_first = true\n'
        'postgres_url = "postgresql://x"\nhttp_port = 8080\n'
    )
    environ = {"TOWPATH_CONFIG": str(file)}
    options = connection_options(environ=environ)
    assert (options.nats_url, options.prefix) == ("tls://a:1", "mine")
    assert options.tls_handshake_first
    assert connection_options(environ={**environ, "TOWPATH_PREFIX": "theirs"}).prefix == "theirs"
    assert connection_options(prefix="ours", environ=environ).prefix == "ours"
    assert connection_options(environ={**environ, "TOWPATH_PREFIX": ""}).prefix == "mine"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("nats_url = ", "is no TOML"),
        ("prefix = 5\n", "prefix in the settings file .* must be text"),
        ('prefix = "Not.Good"\n', "prefix: 'Not.Good' is not allowed"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "towpath.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=said):
        connection_options(environ={"TOWPATH_CONFIG": str(file)})
