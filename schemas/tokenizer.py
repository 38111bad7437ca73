"""Shell: names for a model folder's tokenizer and chat template: equal digests, equal ids for equal text.

Every service names them by these functions, so that a call of another tokenizer is known as foreign.
"""

import json
from hashlib import sha256
from pathlib import Path

from schemas.ids import Sha256, framed

WHOLE_TOKENIZER = "tokenizer.json"
"""Holds everything by itself, where it exists."""
TOKENIZER_PARTS = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "spiece.model")
"""Of older models."""
TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"


def tokenizer_digest(folder: Path) -> Sha256:
    """Name the tokenizer of a model folder; one without any has the digest of nothing."""
    names = [WHOLE_TOKENIZER] if (folder / WHOLE_TOKENIZER).is_file() else list(TOKENIZER_PARTS)
    parts = [
        part
        for name in names
        if (folder / name).is_file()
        for part in (name, sha256((folder / name).read_bytes()).hexdigest())
    ]
    return Sha256(sha256(framed(*parts)).hexdigest())


def chat_template_digest(folder: Path) -> Sha256:
    """Name the chat template of a model folder; one without any has the digest of nothing."""
    return Sha256(sha256(_template(folder).encode()).hexdigest())


def _template(folder: Path) -> str:
    file, config = folder / TEMPLATE_FILE, folder / CONFIG_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    if not config.is_file():
        return ""
    written = json.loads(config.read_text(encoding="utf-8")).get("chat_template") or ""
    return written if isinstance(written, str) else json.dumps(written, sort_keys=True)
