"""Pure: the secrets that settings name, taken out of the environment once and handed down as `SecretStr`.

Not a store: what is not in the environment is a problem, never an open door.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from schemas.ids import RECEIPT_KEY_BYTES_MIN
from schemas.settings.problems import Path
from schemas.settings.reef import ALL_SCOPES, Scope
from schemas.settings.tree import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token and what it opens."""

    secret: SecretStr
    """What a client sends."""
    scopes: tuple[Scope, ...]
    """What it may do."""
    scenarios: tuple[str, ...]
    """Names; `*` is all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogin:
    """Who we are to the broker."""

    username: SecretStr
    """The user's name."""
    password: SecretStr
    """The password."""


def tokens_of(settings: Settings, environ: Mapping[str, str]) -> tuple[Token, ...]:
    """Give every token; empty when the gateway is open, which loopback alone allows."""
    listed = [
        Token(secret=SecretStr(environ[one.token_env]), scopes=one.scopes, scenarios=one.scenarios)
        for one in settings.reef.tokens
    ]
    if settings.reef.token is not None:
        listed.append(Token(secret=settings.reef.token, scopes=ALL_SCOPES, scenarios=("*",)))
    return tuple(listed)


def kafka_login(settings: Settings, environ: Mapping[str, str]) -> KafkaLogin | None:
    """Give name and password when the broker asks for them."""
    security = settings.kafka.security
    if not security.has_sasl or security.username_env is None or security.password_env is None:
        return None
    return KafkaLogin(
        username=SecretStr(environ[security.username_env]), password=SecretStr(environ[security.password_env])
    )


def receipt_keys(settings: Settings, environ: Mapping[str, str]) -> tuple[SecretStr, ...]:
    """Give the keys that sign receipts, newest first; empty when the variable is not set."""
    parts = environ.get(settings.reef.receipt_keys_env, "").split(",")
    return tuple(SecretStr(part.strip()) for part in parts if part.strip())


def missing_secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the settings that name a secret which is not there, or is too short to be one."""
    for index, token in enumerate(settings.reef.tokens):
        if not environ.get(token.token_env):
            yield ("reef", "tokens", index, "token_env"), _unset(token.token_env)
    security = settings.kafka.security
    for key, name in (("username_env", security.username_env), ("password_env", security.password_env)):
        if security.has_sasl and name is not None and not environ.get(name):
            yield ("kafka", "security", key), _unset(name)
    for secret in receipt_keys(settings, environ):
        if len(secret.get_secret_value().encode()) < RECEIPT_KEY_BYTES_MIN:
            name = settings.reef.receipt_keys_env
            message = f"expected keys of {RECEIPT_KEY_BYTES_MIN} bytes or more in {name}, got a shorter one"
            yield ("reef", "receipt_keys_env"), f"{message}: make a longer one"


def _unset(name: str) -> str:
    return f"expected a secret in the environment variable {name}, got none: set it"
