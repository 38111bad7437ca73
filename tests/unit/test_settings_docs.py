"""The documentation of the configuration is true: its table is the models', its examples load."""

import re
from pathlib import Path

import pytest

from schemas.settings import Settings
from schemas.settings.load import load_settings
from schemas.settings.reference import reference
from schemas.settings.sources import settings_leaves

DOCUMENT = (Path(__file__).parents[2] / "docs/configuration.md").read_text(encoding="utf-8")
EXAMPLES = [
    text for text in re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL) if "my_package" not in text
]
ENVIRON = {
    name: "0123456789abcdef" for name in ("APP_TOKEN", "OPERATOR_TOKEN", "KAFKA_USER", "KAFKA_PASSWORD")
}


def test_the_table_in_the_documentation_is_the_models_table() -> None:
    written = DOCUMENT.split("<!-- reference begins -->")[1].split("<!-- reference ends -->")[0]
    assert written.strip() == reference().strip(), "run python -m schemas.settings.reference"


def test_every_key_has_a_row_with_its_meaning() -> None:
    names = [".".join(str(part) for part in path) for path, _ in settings_leaves(Settings())]
    assert len(names) > 80
    for name in names:
        rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1, name
        assert rows[0].split("|")[4].strip() not in ("", "None"), name


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_of_the_documentation_loads(tmp_path: Path, text: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text, encoding="utf-8")
    environ = ENVIRON | {"REEF_RECEIPT_KEYS": "0123456789abcdef"}
    assert load_settings(file, (), environ).settings != load_settings(None, (), {}).settings


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2
