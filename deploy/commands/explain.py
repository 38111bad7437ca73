"""Shell: `reef explain`: the life of one call, report, batch or release, and why a call was not trained."""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from deploy.gateway_client import Answer, GatewayClient
from deploy.life_table import answer_of, life_table, stages_of, with_answers
from deploy.paper import paper
from deploy.reach import AsJson, GatewayConfig, ScenarioOption, Url, reach
from deploy.times import moment

Name = Annotated[
    str,
    typer.Argument(help="a receipt (rec_…), an imported call, a report, a batch, a candidate or a release"),
]


def explain(
    name: Name,
    scenario: ScenarioOption = None,
    url: Url = None,
    config: GatewayConfig = None,
    as_json: AsJson = False,
) -> None:
    """Tell the life of one thing: call, report, experience, batch, candidate, release, swap, and why so."""
    told = _told(reach(url, config), name, scenario)
    if as_json:
        typer.echo(json.dumps(with_answers(told)))
        return
    console = paper()
    console.print(life_table(stages_of(told), when=moment))
    console.print()
    console.print(answer_of(told), markup=False)


def _told(client: GatewayClient, name: str, scenario: str | None) -> Answer:
    return client.get(f"/reef/explain/{quote(name, safe='')}", scenario=scenario)
