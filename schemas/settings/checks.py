"""Pure: rules over several sections: what is unsafe or could not work is refused before anything starts."""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

from schemas.settings.problems import Path
from schemas.settings.secrets import missing_secrets, receipt_keys
from schemas.settings.streams import DAY_S
from schemas.settings.tree import Settings

Finding = tuple[tuple[Path, ...], str]
"""The keys concerned, the one to change first, and what is wrong."""


def findings(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield everything that is wrong between keys."""
    for check in _CHECKS:
        yield from check(settings)
    yield from _remote_log_needs_receipt_keys(settings, environ)
    for path, message in missing_secrets(settings, environ):
        yield (path,), message


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _public_bind_needs_tokens(settings: Settings) -> Iterator[Finding]:
    reef = settings.reef
    if not is_loopback(reef.host) and reef.token is None and not reef.tokens:
        message = f"expected tokens when listening on {reef.host}, got none: set reef.token or reef.tokens"
        yield (("reef", "host"), ("reef", "token"), ("reef", "tokens")), f"{message}, or bind 127.0.0.1"


def _remote_log_needs_shared_blobs(settings: Settings) -> Iterator[Finding]:
    if not settings.kafka.is_embedded and settings.blobs_url.startswith("file:"):
        message = "expected blobs.url as s3://bucket/prefix with a remote Kafka, got a local folder"
        yield (
            (("blobs", "url"), ("kafka", "bootstrap")),
            f"{message}: others who read the log cannot read your disk",
        )


def _remote_log_needs_receipt_keys(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    if not settings.kafka.is_embedded and not receipt_keys(settings, environ):
        name = settings.reef.receipt_keys_env
        message = f"expected receipt keys in the environment variable {name} with a remote Kafka, got none"
        yield (
            (("reef", "receipt_keys_env"), ("kafka", "bootstrap")),
            f"{message}: set the same for every gateway",
        )


def _log_outlives_windows(settings: Settings) -> Iterator[Finding]:
    kept_s, longest_s = settings.kafka.retention_days * DAY_S, settings.streams.longest_window_s
    if kept_s < 2 * longest_s:
        days = -(-2 * longest_s // DAY_S)
        message = f"expected at least {days} days, twice the longest window of streams ({longest_s} s)"
        got = f"got {settings.kafka.retention_days}: raise it or shorten the window"
        windows = ("join_window_s", "orphan_window_s", "dedup_window_s", "buffer_max_age_s")
        concerned = (("kafka", "retention_days"), *(("streams", window) for window in windows))
        yield concerned, f"{message}, {got}"


def _one_scenario_owns_the_weights(settings: Settings) -> Iterator[Finding]:
    default = settings.training.target
    full = [one.name for one in settings.reef.scenarios if (one.target or default) == "full"]
    if len(full) > 1:
        message = f"expected one scenario with target full on one engine, got {', '.join(full)}"
        advice = "give the others target lora or none, or an engine and gateway of their own"
        yield (("reef", "scenarios"), ("training", "target")), f"{message}: {advice}"


_CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _public_bind_needs_tokens,
    _remote_log_needs_shared_blobs,
    _log_outlives_windows,
    _one_scenario_owns_the_weights,
)
