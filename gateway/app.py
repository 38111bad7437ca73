"""Shell: the gateway as one ASGI application: a door that every request passes, then its handler.

The door opens an exchange, checks who calls, and is the one place where errors become answers. Calls that
must be fast are answered right behind it, all else by FastAPI. Not the composition: deploy/commands has it.

Next: gateway/calls.py
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from fastapi import FastAPI

from gateway.auth import Scope as Permission
from gateway.auth import Token, authenticate, require_scope, scope_of
from gateway.errors import BUG, Problem, WrongMethodError, error_body, no_such_route, problem_of
from gateway.exchange import Bodies, ClientLeftError, Exchange, Header, Message, Receive, Scope, Send
from gateway.head import read_head
from gateway.metrics import CallMetrics
from gateway.request_log import RequestLog
from gateway.rest import EXCHANGE, has_route
from schemas.errors import ReefError

Handler = Callable[[Exchange], Awaitable[None]]
Routes = Mapping[str, Mapping[str, Handler]]
"""Handlers by path, then by method."""
PATH_CHARS_MAX = 200


class Gateway:
    """The whole gateway, as servers call it."""

    def __init__(
        self,
        *,
        routes: Routes,
        rest: FastAPI,
        tokens: Sequence[Token],
        metrics: CallMetrics,
        log: RequestLog,
    ) -> None:
        """Take the fast routes and the rest."""
        self._routes = routes
        self._rest = rest
        self._tokens = tokens
        self._metrics = metrics
        self._log = log
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._bodies)
        self._metrics.opened()
        try:
            await self._answer(exchange, scope, receive, send)
        except ClientLeftError:
            exchange.result = "client_aborted"
        except ReefError as error:
            await self._refuse(exchange, problem_of(error))
        except Exception:  # noqa: BLE001 - the gateway's one boundary
            self._log.failed(request_id=exchange.request_id, path=exchange.path[:PATH_CHARS_MAX])
            await self._refuse(exchange, BUG)
        finally:
            exchange.close()
            self._close(exchange)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        exchange.identify(read_head(scope["headers"]))
        needed = scope_of(exchange.method, exchange.path)
        if needed is not None:
            exchange.grant = authenticate(exchange.head.token, self._tokens)
            if needed not in exchange.grant.scopes:
                self._forbid(exchange, scope, needed)
        methods = self._routes.get(exchange.path)
        if methods is None:
            await self._pass_on(exchange, scope, receive, send)
            return
        handler = methods.get(exchange.method)
        if handler is None:
            raise WrongMethodError(exchange.method, exchange.path, methods)
        await handler(exchange)

    def _forbid(self, exchange: Exchange, scope: Scope, needed: Permission) -> None:
        """Refuse a token without the scope; what no route has is 404 to every token."""
        if exchange.path not in self._routes and not has_route(self._rest, scope):
            raise no_such_route(exchange.method, exchange.path)
        require_scope(exchange.grant, needed)

    async def _pass_on(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        """Let FastAPI answer; the request id goes on top, the status into the canonical line."""
        own: Header = (b"x-request-id", exchange.request_id.encode("ascii"))

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.is_started = True
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), own]
            else:
                exchange.num_bytes_out += len(message.get("body", b""))
            await send(message)

        scope[EXCHANGE] = exchange
        await self._rest(scope, receive, send_marked)

    async def _refuse(self, exchange: Exchange, problem: Problem) -> None:
        exchange.result = problem.code
        if exchange.is_started:
            return  # the answer is under way: closing the connection is all that can still be said
        if not exchange.request_id:
            exchange.identify(exchange.head)
        headers = tuple((n.encode("ascii"), v.encode("latin-1")) for n, v in problem.headers.items())
        with suppress(ClientLeftError):
            await exchange.respond(problem.status, error_body(problem, exchange.path), headers)

    def _close(self, exchange: Exchange) -> None:
        duration_s = time.perf_counter() - exchange.started_s
        exchange.result = exchange.result or ("answered" if exchange.status < 400 else "refused")
        self._metrics.answered(exchange, duration_s)
        self._log.answered(
            {
                "request_id": exchange.request_id,
                "method": exchange.method,
                "path": exchange.path[:PATH_CHARS_MAX],
                "status": exchange.status,
                "result": exchange.result,
                "scenario": exchange.scenario,
                "receipt": exchange.receipt,
                "release_id": exchange.release_id,
                "num_tokens": exchange.num_tokens,
                "bytes_in": exchange.num_bytes_in,
                "bytes_out": exchange.num_bytes_out,
                "duration_ms": round(duration_s * 1000, 2),
            }
        )
