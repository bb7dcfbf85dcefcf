"""How the bus connects, how large its streams are, and how much it holds in memory."""

from collections.abc import Mapping

from msgspec import Struct

MIB = 1024 * 1024


class BusSettings(Struct, frozen=True, kw_only=True):
    """Settings of the bus. Sizes are bytes, times seconds, unless the name says otherwise."""

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """Every server of a cluster: addresses that servers announce are not kept."""
    prefix: str = "towpath"
    name: str = "towpath-engine"
    """Shown by the server's monitoring as the connection's name."""

    # How the server knows us. At most one of these ways; a URL may carry user and password, too.
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None
    """A `.creds` file (JWT and seed); needs the package `nkeys`."""
    nkey_seed_file: str | None = None
    """A file with an nkey seed; needs the package `nkeys`."""
    tls_ca_file: str | None = None
    """Trust these authorities instead of the system's; TLS itself is asked for by `tls://`."""
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    tls_handshake_first: bool = False
    inbox_prefix: str = "_INBOX"
    """Permissions of the engine's user may pin its inboxes to a prefix of their own."""

    # Connection. A silent server is noticed after about ping_interval * (pings_max + 1).
    connect_timeout_s: float = 2.0
    start_timeout_s: float = 30.0
    """How long `start` waits for a server before it raises BusUnavailable."""
    reconnect_backoff_min_s: float = 0.1
    reconnect_backoff_max_s: float = 2.0
    ping_interval_s: float = 5.0
    pings_outstanding_max: int = 2
    request_timeout_s: float = 5.0
    """For each request to the JetStream API."""

    # Streams. `discard: new`: a full stream refuses, and the outbox waits. The server reserves
    # these sizes when the streams are created, so their sum must fit into its max_file_store.
    replicas: int = 1
    dispatch_bytes_max: int = 1024 * MIB
    in_bytes_max: int = 1024 * MIB
    events_bytes_max: int = 512 * MIB
    advisories_bytes_max: int = 32 * MIB
    events_age_max_s: float = 7 * 86_400.0
    advisories_age_max_s: float = 86_400.0
    message_bytes_max: int = 1 * MIB
    """`max_msg_size` of the streams."""
    payload_bytes_needed: int = (768 + 16) * 1024
    """The server's `max_payload` must be at least this: the largest dispatch and its headers."""
    dispatch_duplicate_window_s: float = 60.0
    in_duplicate_window_s: float = 0.1
    """The smallest the server takes: deduplication of reports and signals is the engine's."""

    # Consumers.
    queues_max: int = 256
    ack_wait_s: float = 30.0
    dispatch_deliveries_max: int = 5
    ack_pending_max: int = 10_000
    waiting_max: int = 4096
    pull_batch_max: int = 256
    pull_expires_max_s: float = 60.0

    # Pulling. In memory at most about twice the credit of `set_credit`, and these bytes plus the
    # open pulls.
    pull_expires_s: float = 30.0
    pull_heartbeat_s: float = 5.0
    pull_bytes_max: int = 64 * MIB
    recovery_backoff_min_s: float = 0.2
    recovery_backoff_max_s: float = 5.0
    audit_interval_s: float = 10.0
    """How often streams and consumers are looked at without a reason."""

    # Publishing.
    publish_window: int = 512
    publish_queue_max: int = 20_000
    publish_queue_bytes_max: int = 64 * MIB
    publish_timeout_s: float = 5.0
    """From handing over to confirmation; later the message counts as not stored."""
    core_queue_max: int = 10_000

    # API.
    service_version: str = "0.1.0"
    service_metadata: Mapping[str, str] = {}
    drain_timeout_s: float = 5.0
    """How long `close` waits for API handlers that still run."""
