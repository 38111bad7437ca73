"""Shell: TCP ports of this machine: whether one is free, and a clear refusal when it is not."""

import random
import socket

from schemas.errors import UnavailableError

HOST = "127.0.0.1"
"""Embedded programs listen here and nowhere else."""

_FREE_PORT_MIN, _FREE_PORT_MAX = 20_000, 32_000  # below the range from which clients' own ports are taken
_FREE_PORT_TRIES_MAX = 100


def is_port_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            candidate.bind((HOST, port))
            candidate.listen(1)
        except OSError:
            return False
    return True


def require_free_port(port: int, *, setting: str) -> None:
    """Refuse a port that another program holds. Raises UnavailableError, which names the setting."""
    if not is_port_free(port):
        raise UnavailableError(
            f"expected port {port} of {HOST} to be free for {setting}, got a program that listens there: "
            f"stop it, or set {setting} to another port",
            reason="port_taken",
        )


def free_port() -> int:
    """Choose a port on which nobody listens."""
    for _ in range(_FREE_PORT_TRIES_MAX):
        port = random.randrange(_FREE_PORT_MIN, _FREE_PORT_MAX)
        if is_port_free(port):
            return port
    raise UnavailableError(
        f"expected a free port between {_FREE_PORT_MIN} and {_FREE_PORT_MAX}, got "
        f"{_FREE_PORT_TRIES_MAX} taken ones in a row: stop what listens there",
        reason="no_free_port",
    )
