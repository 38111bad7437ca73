"""A taken port is refused with the name of the setting that moves it."""

import socket

import pytest

from deploy.ports import HOST, free_port, is_port_free, require_free_port
from schemas.errors import UnavailableError


def test_a_taken_port_names_the_setting() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_port_free(port)
        with pytest.raises(UnavailableError, match=f"{port}.*set kafka.port to another"):
            require_free_port(port, setting="kafka.port")


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port()
    require_free_port(port, setting="kafka.port")
    with socket.create_server((HOST, port)):
        assert not is_port_free(port)
