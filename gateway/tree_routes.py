"""Shell: the routes by which agents pull what they run with: a harness, and a routing policy.

Not the chain that these are releases of: gateway/scenario_routes.py shows that.
"""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from gateway.catalog import Catalog
from gateway.report_routes import as_json
from gateway.rest import exchange_of
from gateway.tree_answers import TREE_KINDS, chosen, path_of, read_asked, tree_object, versions_object
from gateway.trees import Trees
from gateway.views import Views
from schemas.events import ArtifactKind
from schemas.ids import ScenarioName


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeParts:
    """What the routes of trees need."""

    catalog: Catalog
    """Names of scenarios."""
    views: Views
    """Chains, as the log tells them."""
    trees: Trees
    """Their files."""


def tree_router(parts: TreeParts) -> APIRouter:
    """Make the routes of every kind of tree."""
    router = APIRouter()
    for kind in TREE_KINDS:
        _add_routes(router, parts, kind)
    return router


def _add_routes(router: APIRouter, parts: TreeParts, kind: ArtifactKind) -> None:
    @router.get(path_of(kind))
    async def pulled(request: Request) -> Response:
        name, asked = _resolved(request, parts), read_asked(request.query_params)
        row = chosen(await parts.views.releases(name), kind, asked.release_id)
        return as_json(tree_object(name, row, await parts.trees.read(row), asked.encoding))

    @router.get(f"{path_of(kind)}/versions")
    async def versions(request: Request) -> Response:
        name = _resolved(request, parts)
        rows, measured = await parts.views.releases(name), await parts.views.metrics(name)
        return as_json(versions_object(name, rows, kind, measured))


def _resolved(request: Request, parts: TreeParts) -> ScenarioName:
    exchange = exchange_of(request)
    exchange.scenario = parts.catalog.resolve(exchange.head.scenario, exchange.grant).name
    return exchange.scenario
