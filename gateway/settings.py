"""Shell: the narrow pieces of the configuration that the request path takes, and its secrets.

Not the configuration itself: schemas/settings has its keys, and how files are read.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.auth import ALL_SCENARIOS, ALL_SCOPES, Grant, Token, digest_of
from schemas.errors import RejectedError
from schemas.events import Sampling
from schemas.ids import RECEIPT_KEY_BYTES_MIN
from schemas.settings import InferenceSettings, ReefSettings, SamplingDefaults, TokenSettings

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """What answering a call needs to know."""

    public_model: str
    """The name of /v1/models, under which every answer comes."""
    receipt_keys: tuple[bytes, ...]
    """Newest first; the first signs."""
    sampling_defaults: Sampling
    """Written into requests."""
    body_bytes_max: int
    """Largest request."""
    concurrency_max: int
    """Calls at once."""
    timeout_s: float
    """Deadline of one answer."""
    stream_receipt: Literal["chunk", "header"]
    """Where a stream names its receipt."""


def call_settings(
    reef: ReefSettings, inference: InferenceSettings, *, public_model: str, receipt_keys: tuple[bytes, ...]
) -> CallSettings:
    """Cut the piece for calls."""
    return CallSettings(
        public_model=public_model,
        receipt_keys=receipt_keys,
        sampling_defaults=plain_sampling(inference.sampling_defaults),
        body_bytes_max=reef.body_bytes_max,
        concurrency_max=reef.concurrency_max,
        timeout_s=inference.timeout_s,
        stream_receipt=reef.stream_receipt,
    )


def plain_sampling(defaults: SamplingDefaults) -> Sampling:
    """Give the defaults in the words of events."""
    return Sampling(**defaults.model_dump(), seed=None, constraints=())


def environment() -> Mapping[str, str]:
    """Give the process's environment, to be handed down once."""
    return os.environ


def read_tokens(reef: ReefSettings, environ: Mapping[str, str]) -> tuple[Token, ...]:
    """Read every configured token; a missing one is an error, never an open door. Raises RejectedError."""
    tokens = [_read_token(token, environ) for token in reef.tokens]
    if reef.token is not None:
        secret = reef.token.get_secret_value().encode()
        everything = Grant(scopes=ALL_SCOPES, scenarios=frozenset({ALL_SCENARIOS}))
        tokens.append(Token(digest=digest_of(secret), grant=everything))
    if not tokens and reef.host not in LOOPBACK:
        raise RejectedError(
            f"expected reef.token or reef.tokens with reef.host {reef.host}, got none: "
            "name a token, or listen on 127.0.0.1",
            reason="token_required",
        )
    return tuple(tokens)


def _read_token(token: TokenSettings, environ: Mapping[str, str]) -> Token:
    secret = environ.get(token.token_env, "").strip()
    if not secret:
        raise RejectedError(
            f"expected a token in {token.token_env}, got none: set that variable", reason="token_missing"
        )
    grant = Grant(scopes=frozenset(token.scopes), scenarios=frozenset(token.scenarios))
    return Token(digest=digest_of(secret.encode()), grant=grant)


def read_receipt_keys(reef: ReefSettings, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Read the keys that sign receipts; none when the variable is not set. Raises RejectedError."""
    written = environ.get(reef.receipt_keys_env, "")
    keys = tuple(part.strip().encode() for part in written.split(",") if part.strip())
    short = [len(key) for key in keys if len(key) < RECEIPT_KEY_BYTES_MIN]
    if short:
        raise RejectedError(
            f"expected receipt keys of at least {RECEIPT_KEY_BYTES_MIN} bytes in {reef.receipt_keys_env}, "
            f"got one of {short[0]}: use longer keys",
            reason="receipt_key_short",
        )
    return keys
