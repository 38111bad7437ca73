"""docs/outcomes.md tells every reason, and every reason is reached by a test of the folds."""

import re
from pathlib import Path

from schemas.events import OutcomeReason

ROOT = Path(__file__).parents[3]


def table_after(heading: str) -> list[list[str]]:
    text = (ROOT / "docs" / "outcomes.md").read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_reason_has_its_row_and_every_row_its_reason() -> None:
    rows = table_after("Reasons")
    assert sorted(row[0].strip("`") for row in rows) == sorted(OutcomeReason)
    assert all(len(row) == 4 and all(row) for row in rows), "who sets it, when, and what to do"


def test_every_reason_is_reached_by_a_test() -> None:
    tests = "".join(
        (Path(__file__).parent / name).read_text() for name in ("test_session.py", "test_batch.py")
    )
    reached = {name.lower() for name in re.findall(r"OutcomeReason\.([A-Z_]+)", tests)}
    assert reached == set(OutcomeReason)


def test_reasons_are_set_where_the_table_says() -> None:
    session: set[str] = set()
    batch: set[str] = set()
    for name, found in (("calls credit session", session), ("batch ending sealing", batch)):
        for module in name.split():
            text = (ROOT / "streams" / f"{module}.py").read_text()
            found |= {each.lower() for each in re.findall(r"OutcomeReason\.([A-Z_]+)", text)}
    for reason, setters, *_ in table_after("Reasons"):
        expected = {
            who for who, found in (("session", session), ("batch", batch)) if reason.strip("`") in found
        }
        assert set(setters.split(", ")) == expected, reason


READ_BY_FOLDS = ("codec", "claims", "resolution", "recipe", "bus/resolver", "bus/schema_log")
"""What a worker reads with: their refusals become EventRejected as those of the folds do."""
NOT_REFUSED = {"unknown_event_type", "blobs_needed"}
"""What stops the worker or is fetched: no record is refused for it."""


def test_every_refusal_has_its_row_and_every_row_its_refusal() -> None:
    modules = [*(ROOT / "streams").glob("*.py"), *[ROOT / "schemas" / f"{name}.py" for name in READ_BY_FOLDS]]
    raised = {reason for path in modules for reason in re.findall(r'reason="([a-z_]+)"', path.read_text())}
    raised |= {"unknown_receipt"}  # of schemas/ids.py, which refuses other names too
    rows = {
        name for cell, _ in table_after("Inputs that are refused") for name in re.findall("`(.*?)`", cell)
    }
    assert rows == raised - NOT_REFUSED
