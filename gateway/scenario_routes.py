"""Shell: the routes of scenarios: which there are, what they accept, their releases, and what operators wish.

Not the chain itself: the release service owns it, and this shows what the log says of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from gateway.auth import require_scenario, visible
from gateway.catalog import Catalog
from gateway.chain_commands import ChainCommands, Wish
from gateway.exchange import parse_object
from gateway.report_routes import as_json
from gateway.reports import identifier, refused
from gateway.rest import exchange_of
from gateway.scenarios import KnownScenario, Scenarios
from gateway.views import Found, Views
from schemas.errors import RejectedError
from schemas.events import ArtifactKind
from schemas.ids import CandidateId, CommandId, ReleaseId, ScenarioName
from schemas.kinds import is_weights

LINEAGE_CALLS_MAX = 10_000
"""Calls that one answer about a release's lineage names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioParts:
    """What the routes of scenarios need."""

    catalog: Catalog
    """Names and what serves."""
    scenarios: Scenarios
    """Recipes, and the making of scenarios."""
    views: Views
    """What the log says."""
    commands: ChainCommands
    """What operators wish."""
    body_bytes_max: int
    """Largest request."""


def scenario_router(parts: ScenarioParts) -> APIRouter:
    """Make the routes of scenarios and releases."""
    router = APIRouter()
    _add_reading(router, parts)
    _add_changing(router, parts)
    return router


def _add_reading(router: APIRouter, parts: ScenarioParts) -> None:
    @router.get("/reef/scenarios")
    async def listed(request: Request) -> Response:
        names = visible(exchange_of(request).grant, parts.catalog.names())
        return as_json({"scenarios": [await _shown(parts, ScenarioName(name)) for name in names]})

    @router.get("/reef/scenarios/{scenario}/contract")
    async def contract(request: Request, scenario: str) -> Response:
        name = _resolved(request, parts, scenario)
        return as_json(contract_of(parts.scenarios.get(name), parts.scenarios.rules(name).score_abs_max))

    @router.get("/reef/scenarios/{scenario}/releases")
    async def releases(request: Request, scenario: str) -> Response:
        name = _resolved(request, parts, scenario)
        rows = await parts.views.releases(name)
        measured = await parts.views.metrics(name)
        state = parts.catalog.get(name)
        serving = None if state is None or state.serving is None else state.serving.release_seq
        published = {row["candidate_id"] for row in rows}
        held = [
            {**one, "metrics": measured[one["candidate_id"]]}
            for one in await parts.views.held(name)
            if one["candidate_id"] not in published
        ]
        metrics = [measured.get(row["candidate_id"], {}) for row in rows]
        shown = release_rows(rows, metrics, serving_seq=serving)
        return as_json({"scenario": name, "releases": shown, "held": held})

    @router.get("/reef/scenarios/{scenario}/releases/{release_id}/lineage")
    async def lineage(request: Request, scenario: str, release_id: str) -> Response:
        name = _resolved(request, parts, scenario)
        return as_json(await _lineage(parts, name, release_id))


def _add_changing(router: APIRouter, parts: ScenarioParts) -> None:
    @router.post("/reef/scenarios")
    async def create(request: Request) -> Response:
        body = await _body(request, parts)
        text = identifier(body.get("name"), param="name")
        require_scenario(exchange_of(request).grant, text.strip().lower())
        known, is_new = await parts.scenarios.create(text.strip())
        return as_json(await _shown(parts, known.scenario.name), 201 if is_new else 200)

    @router.post("/reef/scenarios/{scenario}/rollback")
    async def rollback(request: Request, scenario: str) -> Response:
        name = _resolved(request, parts, scenario)
        body = await _body(request, parts)
        target = ReleaseId(identifier(body.get("release_id"), param="release_id"))
        return as_json(_published(name, await parts.commands.roll_back(_wish(name, body), target)))

    @router.post("/reef/scenarios/{scenario}/promote")
    async def promote(request: Request, scenario: str) -> Response:
        name = _resolved(request, parts, scenario)
        body = await _body(request, parts)
        field = "candidate_id" if body.get("candidate_id") is not None else "release_id"
        candidate = CandidateId(identifier(body.get(field), param=field))
        return as_json(_published(name, await parts.commands.promote(_wish(name, body), candidate)))


def contract_of(known: KnownScenario, score_abs_max: float) -> dict[str, Any]:
    """Say what a scenario accepts."""
    recipe, schema = known.recipe, known.recipe.report
    return {
        "scenario": known.scenario.name,
        "processor": type(recipe).__name__,
        "required_request_types": ["inference", "report"],
        "recipe": known.scenario.recipe,
        "kind": recipe.kind,
        "target": known.scenario.target,
        "credit": known.scenario.options.credit,
        "options": known.scenario.options.model_dump(mode="json"),
        "report": {
            "is_score_required": schema.is_score_required,
            "num_references_min": schema.num_references_min,
            "required_metadata": list(schema.required_metadata),
            "score_abs_max": score_abs_max,
        },
    }


def release_rows(
    rows: Sequence[Found], metrics: Sequence[Mapping[str, float]], *, serving_seq: int | None
) -> list[dict[str, Any]]:
    """Show a chain, newest first; the newest is the current one; weights are pending until they serve."""
    return [
        {
            **row,
            "content_id": row["content_sha256"],
            "current": number == 0,
            "serving": row["release_seq"] == serving_seq,
            "pending": is_weights(ArtifactKind(row["kind"]))
            and (serving_seq is None or row["release_seq"] > serving_seq),
            "restorable": number > 0,
            "metrics": dict(measured),
        }
        for number, (row, measured) in enumerate(zip(rows, metrics, strict=True))
    ]


async def _lineage(parts: ScenarioParts, name: ScenarioName, release_id: str) -> dict[str, Any]:
    rows = await parts.views.releases(name)
    row = next((row for row in rows if row["release_id"] == release_id), None)
    if row is None:
        raise RejectedError(
            f"expected a release of {name!r}, got {release_id[:80]!r}: see its releases",
            reason="no_such_release",
        )
    batches, num_left = list[dict[str, Any]](), LINEAGE_CALLS_MAX
    for batch_id in row["batch_ids"]:
        calls = await parts.views.batch_calls(batch_id, calls_max=num_left)
        batches.append({"batch_id": batch_id, "calls": calls})
        num_left -= len(calls)
    return {"scenario": name, **row, "content_id": row["content_sha256"], "batches": batches}


async def _shown(parts: ScenarioParts, name: ScenarioName) -> dict[str, Any]:
    head = await parts.views.head(name) or {}
    known = parts.scenarios.get(name)
    return {
        "scenario": name,
        "name": name,
        "recipe": known.scenario.recipe,
        "target": known.scenario.target,
        "release_id": head.get("release_id"),
        "release_seq": head.get("release_seq"),
        "content_sha256": head.get("content_sha256"),
        "content_id": head.get("content_sha256"),
    }


def _resolved(request: Request, parts: ScenarioParts, scenario: str) -> ScenarioName:
    exchange = exchange_of(request)
    state = parts.catalog.resolve(scenario.lower(), exchange.grant)
    exchange.scenario = state.name
    return state.name


async def _body(request: Request, parts: ScenarioParts) -> dict[str, Any]:
    return parse_object(await exchange_of(request).body(parts.body_bytes_max))


def _wish(name: ScenarioName, body: Mapping[str, Any]) -> Wish:
    unknown = set(body) - {"release_id", "candidate_id", "command_id", "expected_head_release_id"}
    if unknown:
        raise refused("expected no such field, got it: remove it", param=sorted(unknown)[0][:80])
    command_id, expected = body.get("command_id"), body.get("expected_head_release_id")
    return Wish(
        scenario=name,
        command_id=None if command_id is None else CommandId(identifier(command_id, param="command_id")),
        expected_head_release_id=None
        if expected is None
        else ReleaseId(identifier(expected, param="expected_head_release_id")),
    )


def _published(name: ScenarioName, row: Found) -> dict[str, Any]:
    return {
        "scenario": name,
        "release_id": row["release_id"],
        "release_seq": row["release_seq"],
        "kind": row["kind"],
        "content_sha256": row["content_sha256"],
        "content_id": row["content_sha256"],
    }
