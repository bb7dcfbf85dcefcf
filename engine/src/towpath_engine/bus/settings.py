"""How the bus connects, how large its streams are, and how much it holds in memory."""

from collections.abc import Mapping

from msgspec import Struct

MIB = 1024 * 1024


class BusSettings(Struct, frozen=True, kw_only=True):
    """Settings of the bus. Sizes are bytes, times seconds, unless the name says otherwise.

    What the engine's settings decide has no default here: theirs is the only one. What has one is
    no setting: it follows from the design, or was measured, and nobody needs to change it.
    """

    urls: tuple[str, ...]
    """Every server of a cluster: addresses that servers announce are not kept."""
    prefix: str
    name: str = "towpath-engine"
    """Shown by the server's monitoring as the connection's name."""

    # How the server knows us. At most one of these ways; a URL may carry user and password, too.
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None
    """A `.creds` file (JWT and seed); needs the package `nkeys`. Read for each connection."""
    nkey_seed_file: str | None = None
    """A file with an nkey seed; needs the package `nkeys`. Read for each connection."""
    tls_ca_file: str | None = None
    """Trust these authorities instead of the system's."""
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    tls_handshake_first: bool = False
    inbox_prefix: str
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
    replicas: int
    dispatch_bytes_max: int
    in_bytes_max: int
    events_bytes_max: int
    advisories_bytes_max: int
    events_age_max_s: float
    advisories_age_max_s: float = 86_400.0
    message_bytes_max: int = 1 * MIB
    """`max_msg_size` of the streams."""
    payload_bytes_needed: int
    """The server's `max_payload` must be at least this: the largest dispatch and its headers."""
    dispatch_duplicate_window_s: float = 60.0
    in_duplicate_window_s: float = 0.1
    """The smallest the server takes: deduplication of reports and signals is the engine's."""

    # Consumers.
    queues_max: int
    ack_wait_s: float
    dispatch_deliveries_max: int = 5
    ack_pending_max: int
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
    publish_window: int
    publish_queue_max: int
    publish_queue_bytes_max: int = 64 * MIB
    publish_timeout_s: float
    """From handing over to confirmation; later the message counts as not stored."""
    core_queue_max: int = 10_000

    # API.
    service_version: str
    service_metadata: Mapping[str, str] = {}
    drain_timeout_s: float = 5.0
    """How long `close` waits for API handlers that still run."""

    @property
    def demands_tls(self) -> bool:
        """True when nothing may be said to a server that speaks no TLS: `tls://` or a TLS field."""
        fields = (self.tls_ca_file, self.tls_cert_file, self.tls_hostname)
        schemes = any(url.startswith(("tls://", "wss://")) for url in self.urls)
        return schemes or self.tls_handshake_first or any(fields)
