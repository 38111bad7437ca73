"""Shell: `reef report`: says how good answers were, by their receipts. Applications do so over HTTP."""

import json
import math
from typing import Annotated, Any

import typer

from deploy.gateway_client import ANSWER_S_MAX
from deploy.paper import paper
from deploy.reach import AsJson, GatewayConfig, ScenarioOption, Url, reach

Receipts = Annotated[list[str], typer.Argument(help="rec_…: x-reef-agent-record-id of the answers")]
Score = Annotated[float | None, typer.Option("--score", help="the larger the better")]
Feedback = Annotated[str | None, typer.Option("--feedback", help="words; stored, never logged")]
Metadata = Annotated[str | None, typer.Option("--metadata", help="a JSON object, as the recipe may require")]
ReportIdOption = Annotated[
    str | None, typer.Option("--id", help="makes the report repeatable; minted when left out")
]
Supersedes = Annotated[str | None, typer.Option("--supersedes", help="the report that this one replaces")]
Withdraw = Annotated[bool, typer.Option("--withdraw", help="take the superseded report back")]


def report(  # noqa: PLR0913, PLR0917 - the options of a command
    receipts: Receipts,
    score: Score = None,
    feedback: Feedback = None,
    metadata: Metadata = None,
    report_id: ReportIdOption = None,
    supersedes: Supersedes = None,
    withdraw: Withdraw = False,
    scenario: ScenarioOption = None,
    url: Url = None,
    config: GatewayConfig = None,
    as_json: AsJson = False,
) -> None:
    """Report on one answer or several. Accepted means durable, not trained."""
    if score is not None and not math.isfinite(score):
        raise typer.BadParameter(f"expected --score to be a finite number, got {score}")
    given: dict[str, Any] = {
        "references": receipts,
        "score": score,
        "feedback": feedback,
        "metadata": None if metadata is None else _read_object(metadata),
        "agent_record_id": report_id,
        "supersedes": supersedes,
        "withdraw": withdraw or None,
    }
    body = {name: value for name, value in given.items() if value is not None}
    answer = reach(url, config).post("/reef/report", body, scenario=scenario, answer_s_max=ANSWER_S_MAX)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    paper().print(f"report {answer['agent_record_id']} on {len(receipts)} call(s) is durable")
    if answer.get("trains") is False:
        paper().print(f"it will not train: {answer.get('why')}")


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter('expected a JSON object, got another text: write \'{"key": "value"}\'')
    return found
