"""Pure: who may do what: tokens as digests, scopes by route, grants by scenario.

Not the reading of tokens from the environment: schemas/settings/secrets.py does that.
"""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from schemas.errors import RejectedError

Scope = Literal["infer", "report", "read", "admin"]
"""/v1/*; reports and imports; GET /reef/* and /metrics; changes."""
ALL_SCOPES: frozenset[Scope] = frozenset({"infer", "report", "read", "admin"})
ALL_SCENARIOS = "*"
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a caller may do."""

    scopes: frozenset[Scope]
    """Kinds of action."""
    scenarios: frozenset[str]
    """Names of scenarios; `*` is all."""

    def covers(self, scenario: str) -> bool:
        """Whether this scenario may be used, existing or not."""
        return ALL_SCENARIOS in self.scenarios or scenario in self.scenarios


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token, known by its digest only."""

    digest: bytes
    """sha256 of the token's bytes."""
    grant: Grant
    """What it opens."""


EVERYTHING = Grant(scopes=ALL_SCOPES, scenarios=frozenset({ALL_SCENARIOS}))
"""What everybody may do where no tokens are configured."""


def digest_of(token: bytes) -> bytes:
    """Digest a token, so that comparing takes the same time for all."""
    return sha256(token).digest()


def authenticate(presented: bytes | None, tokens: Sequence[Token]) -> Grant:
    """Find what a presented token opens. Raises RejectedError."""
    if not tokens:
        return EVERYTHING
    if presented is None:
        raise RejectedError(
            "expected a token, got none: send Authorization: Bearer TOKEN or x-api-key",
            reason="unauthenticated",
        )
    digest = digest_of(presented)
    found = [token.grant for token in tokens if hmac.compare_digest(token.digest, digest)]
    if not found:
        raise RejectedError(
            "expected a token of this deployment, got another: correct it", reason="unauthenticated"
        )
    return found[0]


def scope_of(method: str, path: str) -> Scope | None:
    """Name the scope that a route needs; None where no token is needed."""
    if path in OPEN_PATHS:
        return None
    if path.startswith("/v1/"):
        return "infer"
    if method in {"GET", "HEAD"}:
        return "read"
    return "report" if path.startswith(("/reef/report", "/reef/records")) else "admin"


def require_scope(grant: Grant, scope: Scope) -> None:
    """Refuse a token without the scope. Raises RejectedError."""
    if scope not in grant.scopes:
        raise RejectedError(
            f"expected a token with scope {scope}, got one with {', '.join(sorted(grant.scopes))}: "
            "use another token",
            reason="forbidden",
        )


def require_scenario(grant: Grant, scenario: str) -> None:
    """Refuse a token for another scenario, without saying whether it exists. Raises RejectedError."""
    if not grant.covers(scenario):
        raise RejectedError(
            f"expected a token for scenario {scenario!r}, got one for others: use another token",
            reason="forbidden",
        )


def visible(grant: Grant, scenarios: Iterable[str]) -> tuple[str, ...]:
    """Name the scenarios that a caller may know of, sorted."""
    return tuple(sorted(name for name in scenarios if grant.covers(name)))
