"""Pure: the narrow pieces of the configuration that the request path takes.

Not the configuration itself: schemas/settings has its keys, and how files and secrets are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.auth import Grant, Token, digest_of
from schemas.events import Sampling
from schemas.settings import InferenceSettings, ReefSettings, SamplingDefaults
from schemas.settings.secrets import Token as SecretToken


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


def door_tokens(tokens: Sequence[SecretToken]) -> tuple[Token, ...]:
    """Keep of each token its digest and what it opens."""
    return tuple(
        Token(
            digest=digest_of(token.secret.get_secret_value().encode()),
            grant=Grant(scopes=frozenset(token.scopes), scenarios=frozenset(token.scenarios)),
        )
        for token in tokens
    )
