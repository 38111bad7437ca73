"""Shell: the keys that sign receipts: from the environment, or made once beside an embedded Kafka.

Not for remote logs: there every gateway must share the keys, so a missing one refused the start already.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from schemas.errors import RejectedError, words_of
from schemas.ids import RECEIPT_KEY_BYTES_MIN
from schemas.settings.secrets import receipt_keys
from schemas.settings.tree import Settings

FILE_NAME = "receipt.key"
FILE_BYTES_MAX = 4_096


def obtain_receipt_keys(settings: Settings, environ: Mapping[str, str]) -> tuple[SecretStr, ...]:
    """Give the keys, newest first; with embedded Kafka a missing one is made once. Raises RejectedError."""
    named = receipt_keys(settings, environ)
    if named:
        return named
    if not settings.kafka.is_embedded:
        name = settings.reef.receipt_keys_env
        raise RejectedError(f"expected receipt keys in {name}, got none: set it", reason="no_receipt_keys")
    return (_kept(settings.reef.state_dir / FILE_NAME),)


def _kept(path: Path) -> SecretStr:
    try:
        if not path.exists():
            _make(path)
        with path.open(encoding="ascii") as file:
            text = file.read(FILE_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        message = (
            f"expected a receipt key at {path}, got {words_of(error)}: make the folder writable or name keys"
        )
        raise RejectedError(message, reason="no_receipt_keys") from error
    if len(text) < RECEIPT_KEY_BYTES_MIN:
        message = (
            f"expected {RECEIPT_KEY_BYTES_MIN} characters or more in {path}, got {len(text)}: restore it"
        )
        raise RejectedError(message, reason="no_receipt_keys")
    return SecretStr(text)


def _make(path: Path) -> None:
    """Write a new key beside its place, then link it there: two that start at once end with one key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
