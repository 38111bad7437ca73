"""Shell: `reef releases`, `reef rollback`, `reef promote`: a scenario's chain, shown and moved over HTTP.

Not the moving: the gateway writes a command into the log, and the release service carries it out.
"""

import json
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Annotated, Any
from urllib.parse import quote

import typer

from deploy.chain_table import chain_table, chosen_candidate, chosen_release, held_table
from deploy.gateway_client import Answer, GatewayClient
from deploy.paper import PAPER_WIDTH, paper
from deploy.progress import say, shown_step
from deploy.reach import AsJson, GatewayConfig, ScenarioOption, Url, chosen_scenario, reach
from deploy.times import moment
from schemas.errors import UnavailableError
from schemas.events import ArtifactKind
from schemas.kinds import is_weights

PUBLISHED_S_MAX = 75.0
"""The gateway itself gives the release service 60 s."""
SERVES_S_MAX = 60.0
POLL_S = 0.25

Expected = Annotated[
    str | None,
    typer.Option("--expected-head", help="refuse when the head is another: a release's number or id"),
]
CommandIdOption = Annotated[
    str | None, typer.Option("--command-id", help="the same id is the same wish, however often it is asked")
]
Wait = Annotated[bool, typer.Option(help="wait until the new release serves")]


def releases(
    scenario: Annotated[str | None, typer.Argument(help="may be left out while there is one")] = None,
    url: Url = None,
    config: GatewayConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a scenario's releases, newest first: what serves, where it came from, what was measured."""
    client = reach(url, config)
    answer = _chain(client, chosen_scenario(client, scenario))
    if as_json:
        typer.echo(json.dumps(answer))
        return
    console = paper()
    is_whole = console.width == PAPER_WIDTH
    console.print(chain_table(answer["releases"], is_whole=is_whole, when=moment))
    if answer["held"]:
        console.print()
        console.print(held_table(answer["held"], is_whole=is_whole, when=moment))
        say("publish one with `reef promote CANDIDATE`")


def rollback(
    release: Annotated[str, typer.Argument(help="number (7 or r7), id, or the beginning of an id")],
    scenario: ScenarioOption = None,
    expected_head: Expected = None,
    command_id: CommandIdOption = None,
    wait: Wait = True,
    url: Url = None,
    config: GatewayConfig = None,
    as_json: AsJson = False,
) -> None:
    """Publish an older release's content again, as a new release, and wait until it serves."""
    client = reach(url, config)
    name = chosen_scenario(client, scenario)
    rows = _chain(client, name)["releases"]
    target = chosen_release(rows, release)
    body = {"release_id": target["release_id"], **_expecting(rows, expected_head)}
    what = f"rolling {name} back to release {target['release_seq']}"
    _move(client, name, "rollback", _Wish(body, command_id, what), is_waiting=wait, as_json=as_json)


def promote(
    candidate: Annotated[str, typer.Argument(help="a held candidate's id, or the commit where it waits")],
    scenario: ScenarioOption = None,
    expected_head: Expected = None,
    command_id: CommandIdOption = None,
    wait: Wait = True,
    url: Url = None,
    config: GatewayConfig = None,
    as_json: AsJson = False,
) -> None:
    """Publish a held candidate on the present head, and wait until it serves."""
    client = reach(url, config)
    name = chosen_scenario(client, scenario)
    chain = _chain(client, name)
    meant = chosen_candidate(chain["held"], candidate)
    body = {"candidate_id": meant, **_expecting(chain["releases"], expected_head)}
    what = f"promoting {meant} in {name}"
    _move(client, name, "promote", _Wish(body, command_id, what), is_waiting=wait, as_json=as_json)


class _Wish:
    """What is asked for, under an id that makes asking again harmless."""

    def __init__(self, body: Mapping[str, str], command_id: str | None, what: str) -> None:
        self.command_id = command_id or f"cli_{token_hex(16)}"
        self.body = {**body, "command_id": self.command_id}
        self.what = what


def _move(
    client: GatewayClient, name: str, verb: str, wish: _Wish, *, is_waiting: bool, as_json: bool
) -> None:
    try:
        with shown_step(wish.what):
            answer = client.post(f"{_path(name)}/{verb}", wish.body, answer_s_max=PUBLISHED_S_MAX)
    except UnavailableError:
        say(f"it may still happen; the same wish again: --command-id {wish.command_id}")
        raise
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        paper().print(f"release {answer['release_seq']} of {name} is published: {answer['release_id']}")
    if is_waiting and is_weights(ArtifactKind(answer["kind"])):
        with shown_step(f"waiting until release {answer['release_seq']} serves"):
            serving_seq = _until_it_serves(client, name, answer)
        overtaken = "" if serving_seq == answer["release_seq"] else f", newer than {answer['release_seq']}"
        say(f"release {serving_seq} serves{overtaken}")


def _until_it_serves(client: GatewayClient, name: str, answer: Answer) -> int:
    """Watch the status until a release serves that is no older, and give its number.

    Raises UnavailableError.
    """
    ends_s = time.monotonic() + SERVES_S_MAX
    while True:
        status: Mapping[str, Any] = client.get("/reef/status")["scenarios"].get(name) or {}
        serving = status.get("serving") or {}
        if serving.get("release_seq", -1) >= answer["release_seq"]:
            return int(serving["release_seq"])
        if time.monotonic() > ends_s:
            break
        time.sleep(POLL_S)
    problem = status.get("swap_problem") or "no word of why"
    raise UnavailableError(
        f"expected release {answer['release_seq']} to serve within {SERVES_S_MAX:g} s, got release "
        f"{serving.get('release_seq', 'none')} and {problem}: it is published, see `reef status`",
        reason="not_serving",
    )


def _chain(client: GatewayClient, name: str) -> Answer:
    return client.get(f"{_path(name)}/releases")


def _path(name: str) -> str:
    return f"/reef/scenarios/{quote(name, safe='')}"


def _expecting(rows: list[Mapping[str, Any]], word: str | None) -> dict[str, str]:
    return {} if word is None else {"expected_head_release_id": chosen_release(rows, word)["release_id"]}
