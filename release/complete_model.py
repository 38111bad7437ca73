"""Shell: a released checkpoint and its base model become one folder that a model loads from, for a while.

The files are linked, not copied.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from release.evaluation import Content
from schemas.events import ArtifactKind


@contextmanager
def complete_model(content: Content, model_folder: Path) -> Iterator[Path]:
    """Give a folder with weights, configuration and tokenizer; an adapter's is the base model itself."""
    if content.kind is not ArtifactKind.CHECKPOINT or (content.folder / "config.json").is_file():
        yield model_folder if content.kind is not ArtifactKind.CHECKPOINT else content.folder
        return
    with tempfile.TemporaryDirectory(prefix="reef-evaluation-") as name:
        folder = Path(name)
        for source in (content.folder, model_folder):
            for file in sorted(source.iterdir()):
                if _is_wanted(file, source is model_folder) and not (folder / file.name).exists():
                    (folder / file.name).symlink_to(file.absolute())
        yield folder


def _is_wanted(file: Path, is_of_base: bool) -> bool:
    is_weights = file.suffix == ".safetensors" or file.name.endswith(".index.json")
    return file.is_file() and not (is_of_base and is_weights)
