"""Shell: a look at the dependencies, whether or not anybody supervises them: addresses, pids, answers."""

import socket
from pathlib import Path
from typing import TypedDict

from deploy.embedded.kafka import num_brokers
from deploy.embedded.lakefs import lakefs_credentials_path
from deploy.embedded.model import model_name
from deploy.probe import answers
from deploy.process_record import recorded_pid
from schemas.settings import Settings

_PROBE_S_MAX = 2.0


class KafkaStatus(TypedDict):
    """The log; `pid` is null when it does not run here."""

    bootstrap: str
    pid: int | None
    ready: bool


class LakefsStatus(TypedDict):
    """The chain of releases; `credentials_file` is null when the server is not ours."""

    url: str
    credentials_file: str | None
    pid: int | None
    ready: bool


class EngineStatus(TypedDict):
    """The model that answers."""

    url: str
    model: str
    pid: int | None
    ready: bool


class StackStatus(TypedDict):
    """What `reef stack status --json` writes (RULINGS 8)."""

    kafka: KafkaStatus
    lakefs: LakefsStatus
    engine: EngineStatus


def look_at_stack(settings: Settings) -> StackStatus:
    """Ask each dependency now."""
    state_dir = settings.reef.state_dir.absolute()
    return {
        "kafka": _kafka(settings, state_dir),
        "lakefs": _lakefs(settings, state_dir),
        "engine": _engine(settings, state_dir),
    }


def _kafka(settings: Settings, state_dir: Path) -> KafkaStatus:
    bootstrap = settings.kafka.bootstrap_servers
    addresses = [address.rpartition(":") for address in bootstrap.split(",")]
    if settings.kafka.is_embedded:
        ready = any(num_brokers(host, int(port)) > 0 for host, _, port in addresses)
    else:
        ready = any(_listens(host.strip("[]"), int(port)) for host, _, port in addresses)
    return {"bootstrap": bootstrap, "pid": _pid(state_dir, "kafka"), "ready": ready}


def _lakefs(settings: Settings, state_dir: Path) -> LakefsStatus:
    url, path = settings.lakefs.endpoint, lakefs_credentials_path(state_dir)
    return {
        "url": url,
        "credentials_file": str(path) if settings.lakefs.is_embedded else None,
        "pid": _pid(state_dir, "lakefs"),
        "ready": answers(f"{url}/api/v1/healthcheck"),
    }


def _engine(settings: Settings, state_dir: Path) -> EngineStatus:
    url = settings.inference.engine_urls[0]
    ready = all(answers(f"{one}/health") for one in settings.inference.engine_urls)
    model = model_name(settings.inference.model)
    return {"url": url, "model": model, "pid": _pid(state_dir, "engine"), "ready": ready}


def _pid(state_dir: Path, name: str) -> int | None:
    return recorded_pid(state_dir / "run" / f"{name}.json")


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_PROBE_S_MAX):
            return True
    except OSError:
        return False
