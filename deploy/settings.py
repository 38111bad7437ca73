"""Shell: what deploy reads from the environment: caches, the gateway to ask, what child processes inherit.

Not the configuration of the services, which is serve.yaml (schemas/settings).
"""

import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class DeploySettings(BaseSettings):
    """Where things that can be made again are kept: jars, the lakeFS binary, engine environments, models."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    cache_dir: Path = Field(default=Path("~/.cache/reef"), validation_alias="REEF_CACHE")
    """May be removed at any time while nothing runs; `make setup` makes it again."""


def read_cache_dir() -> Path:
    """Find the cache folder; an empty REEF_CACHE counts as unset."""
    settings = DeploySettings(_env_ignore_empty=True)
    return settings.cache_dir.expanduser().absolute()


class ClientSettings(BaseSettings):
    """Which gateway the client commands talk to, when their options do not say."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    url: str | None = Field(default=None, validation_alias="REEF_URL")
    """Of a gateway anywhere; the local one when unset."""
    token: SecretStr | None = Field(default=None, validation_alias="REEF_TOKEN")
    """What it asks for, if it asks."""


def read_client_settings() -> ClientSettings:
    """Read both; empty variables count as unset."""
    return ClientSettings(_env_ignore_empty=True)


def child_environ(extra: dict[str, str]) -> dict[str, str]:
    """Give a child process our environment and some more; secrets go here, never on an argument list."""
    return {**os.environ, **extra}
