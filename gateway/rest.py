"""Shell: FastAPI for everything that need not be fast, made to refuse in the gateway's own words only.

Not routes: those stand where their nouns do, and are included by the composition.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from gateway.errors import BUG, Problem, WrongMethodError, error_body, no_such_route, problem_of
from gateway.exchange import Exchange, Receive, Scope, Send
from schemas.errors import ReefError

EXCHANGE = "reef.exchange"
"""Where a route finds its exchange in the ASGI scope."""
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def fastapi_app(lifespan: Lifespan | None = None) -> FastAPI:
    """Make the application for everything that need not be fast, refusing in JSON only."""
    app = FastAPI(
        title="Reef on a stream",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.router.default = _no_such_route
    app.add_exception_handler(ReefError, _answer_refusal)
    app.add_exception_handler(HTTPException, _answer_wrong_method)
    app.add_exception_handler(Exception, _answer_bug)
    return app


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReefError)
    return _problem_response(request, problem_of(error))


async def _answer_wrong_method(request: Request, error: Exception) -> Response:
    """Answer the one refusal that Starlette raises here: routes read queries and bodies themselves."""
    assert isinstance(error, HTTPException)
    assert error.status_code == 405, error
    refusal = WrongMethodError(request.method, request.url.path, _methods_of(request))
    return _problem_response(request, problem_of(refusal))


def has_route(app: FastAPI, scope: Scope) -> bool:
    """Whether there is a route with this path, with whatever method."""
    return any(route.matches(scope)[0] is not Match.NONE for route in app.router.routes)


def _methods_of(request: Request) -> set[str]:
    """Give the methods of every route with this path: Starlette names those of the first only."""
    return {
        method
        for method in _METHODS
        for route in request.app.router.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    }


def exchange_of(request: Request) -> Exchange:
    """Give the exchange that a route answers."""
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


async def _answer_bug(request: Request, error: Exception) -> Response:
    return _problem_response(request, BUG)


def _problem_response(request: Request, problem: Problem) -> Response:
    exchange_of(request).result = problem.code
    body = error_body(problem, request.url.path)
    return Response(body, problem.status, problem.headers, media_type="application/json")


async def _no_such_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise no_such_route(scope["method"], scope["path"])
