"""Settings as values. `cli/configuration.py` reads the file and the environment; nothing else does."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One configured provider account. References are `env:NAME`, `file:PATH` or `vault:NAME`, never the secret itself."""

    name: str
    contract: str
    base_url: str | None = None
    secrets: tuple[str, ...] = ()
    credential: str | None = None
    owners: tuple[str, ...] = ()  # empty: every owner
    result_origins: tuple[str, ...] = ()
    sweep_seconds: int = 3_600  # pause between two walks through the provider's list of jobs; 0: none
    params: Mapping[str, str] = field(default_factory=dict)  # constants of the contract: values, or references env: and file:


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Bounds of the HTTP edge, each with its unit in its name."""

    host: str = "127.0.0.1"
    port: int = 8080
    uds: str | None = None
    trusted_proxies: tuple[str, ...] = ()  # addresses whose forwarded headers are believed: none
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    head_bytes: int = 32_768
    api_body_bytes: int = 1_048_576
    max_wait_seconds: int = 60
    answer_seconds: float = 8.0  # a database that has said nothing for so long is unavailable: 503
    max_connections: int = 4_096
    shutdown_seconds: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockworkSettings:
    """Bounds of the reconciler."""

    workers: int = 32  # errands in flight in this process
    claim_batch: int = 64
    lease_seconds: float = 45.0
    send_budget_seconds: float = 10.0  # bytes of an acting errand leave at the latest this long before the lease ends
    send_margin_seconds: float = 2.0
    poll_seconds: float = 1.0  # fallback when no wake-up comes
    sweep_seconds: float = 15.0
    audit_seconds: float = 60.0
    drain_seconds: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long what is kept, in days; ended operations are counted from their last change. Each expires by itself (MISSION F6)."""

    result_days: float = 30.0
    payload_days: float = 30.0
    exchange_days: float = 14.0
    record_days: float = 365.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration."""

    database_url: str = "sqlite:///var/gateway.db"
    database_pooled: bool = False  # a pooler that keeps no session stands before PostgreSQL (pgbouncer, transaction mode)
    public_url: str = "http://127.0.0.1:8080"
    key_file: str = "var/master.key"
    artifact_dir: str = "var/artifacts"
    log_level: str = "info"
    log_format: str = "auto"  # auto: text on a terminal, JSON elsewhere
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    web: WebSettings = field(default_factory=WebSettings)
    clockwork: ClockworkSettings = field(default_factory=ClockworkSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
