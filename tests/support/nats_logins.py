"""Every way in which a NATS server may want to know who comes, and the settings that answer it."""

from pathlib import Path

from tests.support.nats_identities import Identity, Operator

TLS = Path(__file__).parent / "tls"


def logins(folder: Path) -> list[tuple[str, str, dict[str, str]]]:
    """(configuration of the server, its scheme, variables) of each way to be known."""
    tls = f'cert_file: "{TLS}/server.pem", key_file: "{TLS}/server-key.pem"'
    trust = {"TOWPATH_NATS_TLS_CA_FILE": str(TLS / "ca.pem")}
    ours = {
        "TOWPATH_NATS_TLS_CERT_FILE": str(TLS / "client.pem"),
        "TOWPATH_NATS_TLS_KEY_FILE": str(TLS / "client-key.pem"),
    }
    operator, user = Operator(), Identity("user")
    seed = folder / "seed.nk"
    seed.write_text(user.seed)
    creds = operator.write_credentials(folder / "user.creds")
    return [
        (
            'authorization { user: me, password: "s3cr3t" }',
            "nats",
            {"TOWPATH_NATS_USER": "me", "TOWPATH_NATS_PASSWORD": "s3cr3t"},
        ),
        ('authorization { token: "s3cr3t" }', "nats", {"TOWPATH_NATS_TOKEN": "s3cr3t"}),
        (operator.config, "nats", {"TOWPATH_NATS_CREDENTIALS_FILE": str(creds)}),
        (
            f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}",
            "nats",
            {"TOWPATH_NATS_NKEY_SEED_FILE": str(seed)},
        ),
        (f"tls {{ {tls} }}", "tls", {**trust, "TOWPATH_NATS_TLS_HOSTNAME": "localhost"}),
        (
            f'tls {{ {tls}, ca_file: "{TLS}/client.pem", verify: true }}',
            "tls",
            {**trust, **ours},
        ),
        (
            f"tls {{ {tls}, handshake_first: true }}",
            "tls",
            {**trust, "TOWPATH_NATS_TLS_HANDSHAKE_FIRST": "true"},
        ),
    ]
