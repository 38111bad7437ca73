"""The pages for operators name only metrics, settings and pages that exist."""

import re
from pathlib import Path

import pytest

from schemas.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
METRICS = set(re.findall(r"reef_\w+", (DOCS / "metrics.md").read_text()))
REFERENCE = (DOCS / "configuration.md").read_text()
SECTIONS = "|".join(Settings.model_fields)


@pytest.fixture(params=["operations.md", "security.md", "gpu.md"])
def page(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return (DOCS / name).read_text()


def test_metrics_on_the_page_exist(page: str) -> None:
    assert set(re.findall(r"`(reef_[a-z_]+)", page)) <= METRICS


def test_settings_on_the_page_exist(page: str) -> None:
    named = set(re.findall(rf"`((?:{SECTIONS})\.[a-z_]+(?:\.[a-z_]+)?)`", page))
    assert named
    listed = {*re.findall(r"`([a-z_.]+)` \|", REFERENCE), "kafka.security", "reef.scenarios"}
    assert named <= listed


def test_pages_that_are_linked_exist(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", page) if "://" not in link]
    assert links
    assert not [link for link in links if not (DOCS / link).exists()]
