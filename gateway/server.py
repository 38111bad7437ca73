"""Shell: the HTTP server: uvicorn on uvloop and httptools, one process, no access log of its own."""

import socket
from pathlib import Path
from typing import Any

import uvicorn

from gateway.json_refusals import JsonRefusalsProtocol
from schemas.errors import UnavailableError

BACKLOG = 2_048
IDLE_S_MAX = 75
"""Of a client's idle connection; longer than load balancers keep theirs."""
GRACE_S = 20
"""How long a stop waits for open answers."""


def server_for(app: Any, *, cert_file: Path | None = None, key_file: Path | None = None) -> uvicorn.Server:
    """Make a server; it serves the socket that it is given."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=JsonRefusalsProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S_MAX,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=cert_file,
        ssl_keyfile=key_file,
    )
    return uvicorn.Server(config)


def bound_socket(host: str, port: int) -> socket.socket:
    """Take the port before anything else starts. Raises UnavailableError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"expected port {port} on {host} to be free, got {error.strerror}: "
            "set reef.port, or end the program that has it",
            reason="port_taken",
        ) from error
    listener.set_inheritable(True)
    return listener
