"""Shell: which gateway a client command talks to, by what token, and about which scenario.

In this order: `--url`, `--config FILE`, `REEF_URL`, the gateway of this machine. The token is `REEF_TOKEN`;
without it, and where no other gateway is named, the configuration's own with the most scopes.
"""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from deploy.configuration import read_configuration
from deploy.gateway_client import GatewayClient
from deploy.services import gateway_url
from deploy.settings import read_client_settings
from schemas.errors import RejectedError
from schemas.settings import Settings
from schemas.settings.secrets import tokens_of
from schemas.settings.settings import process_environment

Url = Annotated[
    str | None, typer.Option("--url", help="the gateway; default: REEF_URL, else that of this machine")
]
GatewayConfig = Annotated[
    Path | None, typer.Option("--config", "-c", help="serve.yaml of the gateway, for its address and token")
]
AsJson = Annotated[bool, typer.Option("--json", help="write JSON, for programs")]
ScenarioOption = Annotated[
    str | None, typer.Option("--scenario", "-s", help="may be left out while there is one")
]


def reach(url: str | None, config: Path | None) -> GatewayClient:
    """Find the gateway; nothing is asked yet."""
    client = read_client_settings()
    named = url or (None if config is not None else client.url)
    if named is not None:
        return GatewayClient(url=named.rstrip("/"), token=client.token)
    settings = read_configuration(config, ()).settings
    return GatewayClient(url=gateway_url(settings), token=client.token or _own_token(settings))


def chosen_scenario(client: GatewayClient, name: str | None) -> str:
    """Give the scenario that was named, or the only one. Raises RejectedError, UnavailableError."""
    if name is not None:
        return name
    names = [str(row["name"]) for row in client.get("/reef/scenarios")["scenarios"]]
    if len(names) == 1:
        return names[0]
    known = ", ".join(names) or "(there is none yet)"
    raise RejectedError(
        f"expected the name of a scenario, got none: name one of: {known}",
        reason="configuration",
    )


def _own_token(settings: Settings) -> SecretStr | None:
    tokens = tokens_of(settings, process_environment())
    return max(tokens, key=lambda token: len(token.scopes)).secret if tokens else None
