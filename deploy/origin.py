"""Pure: from which configuration a deployment was made, so that another one is not taken for it.

Not the configuration: a digest of what was decided, without secrets, and the name of its file.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ConflictError
from schemas.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a supervisor says about its configuration."""

    settings_sha256: str
    """Of every setting, defaults too; secrets count only as given or not."""
    config_path: str | None
    """The file, absolute; None for defaults and options alone."""


def origin_of(settings: Settings, config_path: Path | None) -> Origin:
    """Name a configuration; where its state lies does not count, since that is where it is looked up."""
    decided = settings.model_dump(mode="json", exclude={"reef": {"state_dir"}})  # secrets are masked
    digest = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()
    return Origin(settings_sha256=digest, config_path=None if config_path is None else str(config_path))


def require_same_origin(running: Origin | None, wanted: Origin, *, state_dir: Path) -> None:
    """Refuse to take one deployment for another; one that does not say where it is from counts as the same.

    Raises ConflictError.
    """
    if running is None or running.settings_sha256 == wanted.settings_sha256:
        return
    made_from = running.config_path or "the defaults"
    others = " with other settings" if running.config_path == wanted.config_path else ""
    raise ConflictError(
        f"expected nothing else to run in {state_dir}, got a deployment of {made_from}{others}: "
        "run `reef stack down` first, or set reef.state_dir (and the ports) to others",
        reason="already_running",
    )
