"""Shell: `reef status`: one live screen over GET /reef/status; without a terminal, one frame."""

import json
import time

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from deploy.gateway_client import GatewayClient
from deploy.paper import paper
from deploy.reach import AsJson, GatewayConfig, Url, reach
from deploy.status_screen import status_screen
from schemas.errors import UnavailableError

PATH = "/reef/status"
REFRESH_S = 1.0


def status(url: Url = None, config: GatewayConfig = None, as_json: AsJson = False) -> None:
    """Show how all goes, until Ctrl-C; once without a terminal or with --json."""
    client = reach(url, config)
    if as_json:
        typer.echo(json.dumps(client.get(PATH)))
        return
    console = paper()
    shown = _screen(client)
    if not console.is_terminal:
        console.print(shown)
        return
    with Live(shown, console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(REFRESH_S)
                live.update(_screen_or_problem(client), refresh=True)
        except KeyboardInterrupt:
            return


def _screen(client: GatewayClient) -> Group | Text:
    return status_screen(client.get(PATH), url=client.url, now_us=time.time_ns() // 1_000)


def _screen_or_problem(client: GatewayClient) -> Group | Text:
    """Go on while the gateway is away: it may come back."""
    try:
        return _screen(client)
    except UnavailableError as error:
        return Text(f"{error}", style="red")
