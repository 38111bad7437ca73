"""Shell: the one way in which commands read their configuration: the process's own environment is taken here.

Not a cache: each process reads once, at its entry, and hands narrow pieces down.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.settings.load import Loaded, load_settings


def process_environment() -> Mapping[str, str]:
    """Give the environment of this process, for secrets named in settings."""
    return dict(os.environ)


def load_for_command(file: Path | None, overrides: Sequence[str] = ()) -> Loaded:
    """Read a command's configuration from `-c FILE` and its other words. Raises ConfigurationError."""
    return load_settings(file, overrides, process_environment())
