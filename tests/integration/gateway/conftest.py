"""Fixtures: a scripted engine, and a gateway before it."""

from collections.abc import Iterator

import pytest

from tests.gateway_rig import GatewayRig, running_gateway
from tests.scripted_upstream import ScriptedUpstream, running_upstream


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with running_upstream() as found:
        yield found


@pytest.fixture
def gateway(upstream: ScriptedUpstream) -> Iterator[GatewayRig]:
    with running_gateway([upstream.url]) as found:
        yield found
