"""Shell: which of our services a configuration asks for, in the order in which they are started.

The one place that knows how to tell that each is ready.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.probe import answers
from deploy.service import Service, ServiceOptions
from schemas.errors import RejectedError
from schemas.events import TrainingTarget
from schemas.settings import Settings
from schemas.settings.scenarios import scenarios_of

LOOPBACK = "127.0.0.1"
EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that a server binds and nobody can ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What every service is told."""

    settings: Settings
    """The configuration, read."""
    words: Sequence[str]
    """The configuration as it was typed: `--config FILE` and `--section.key value`."""


def compose_services(deployment: Deployment) -> tuple[tuple[Service, ...], ...]:
    """Name the services by stages; nothing is started. Raises RejectedError on what one machine cannot run.

    Release comes first, since the gateway is ready only when every scenario has a release.
    """
    stages = [(_by_metrics(deployment, "release", 0),), (_by_metrics(deployment, "streams", 2),)]
    trained = [one.name for one in scenarios_of(deployment.settings) if one.target is not TrainingTarget.NONE]
    if len(trained) > 1:
        raise RejectedError(
            f"expected one trained scenario on one machine, got {', '.join(trained)}: "
            "set target none for the others, or train them elsewhere (`reef trainer --scenario NAME`)",
            reason="configuration",
        )
    if trained:
        stages.append((_by_metrics(deployment, "trainer", 1),))
    return (*stages, (_gateway(deployment),))


def gateway_url(settings: Settings) -> str:
    """Give the address at which this machine can ask the gateway."""
    host = LOOPBACK if settings.reef.host in EVERYWHERE else settings.reef.host
    scheme = "https" if settings.reef.tls.cert_file else "http"
    return f"{scheme}://{host}:{settings.reef.port}"


def _gateway(deployment: Deployment) -> Service:
    return _service(deployment, "gateway", f"{gateway_url(deployment.settings)}/readyz")


def _by_metrics(deployment: Deployment, name: str, port_offset: int) -> Service:
    """Name a service that shows its metrics as soon as it works (RULINGS 41)."""
    port = deployment.settings.observability.metrics_port + port_offset
    return _service(deployment, name, f"http://{LOOPBACK}:{port}/metrics")


def _service(deployment: Deployment, name: str, ready_url: str) -> Service:
    return Service(
        ServiceOptions(
            name=name,
            words=(name, *deployment.words),
            state_dir=deployment.settings.reef.state_dir.absolute(),
            is_ready=lambda: answers(ready_url),
        )
    )
