"""docs/http.md names every code that a request can be refused with, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import ENGINE_STATUSES_PASSED, REASONS

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
DEFAULTS = {"RejectedError": "rejected", "ConflictError": "conflict", "UnavailableError": "unavailable"}
"""What an error says that is made without a reason."""
SCHEMAS = "ids bus/failures bus/reader claims file_blobs s3_blobs artifacts artifact_fetch manifest".split()
"""Where what routes call raises its own refusals; events are decoded there only after the views read them."""
RELEASE = "chain commands decisions head repository".split()
"""Where an operator's wish is refused; an UnavailableError there is no refusal: the wish is taken again."""
ELSEWHERE = {
    "a swap ends so, and says it as SwapFailed": {
        "engine_failed",
        "engine_not_swappable",
        "not_staged",
        "overtaken",
        "sender_failed",
        "verification_failed",
    },
    "a gateway does not start": {"port_taken"},
    "the outbox waits until the courier is there again": {"courier_gone"},
    "no request writes to Kafka, or follows a topic": {"fenced", "beyond_end"},
    "the resolver fetches the blobs, and decodes again": {"blobs_needed"},
    "a call is shown without its text": {"blob_missing", "blob_mismatch"},
    "a harness or policy is `artifact_unavailable`, what is uploaded is a candidate": {"digest_mismatch"},
    "the release service looks at the repository again": {"conflict"},
}
"""What no client is told, by what becomes of it."""


def made_in(path: Path, kinds: re.Pattern[str]) -> Iterator[str]:
    """Read off the source which reasons errors of these kinds are made with."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        kind = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        if not given and kind in DEFAULTS and kinds.fullmatch(kind):
            yield DEFAULTS[kind]
        if given and kinds.fullmatch(kind):
            values = [given[0].body, given[0].orelse] if isinstance(given[0], ast.IfExp) else given
            yield from (str(value.value) for value in values if isinstance(value, ast.Constant))


def every_reason() -> set[str]:
    raised = re.compile(r"\w+Error|__init__")
    routes = [*(ROOT / "gateway").glob("*.py"), *(ROOT / f"schemas/{name}.py" for name in SCHEMAS)]
    found = {reason for path in routes for reason in made_in(path, raised)}
    refused = re.compile("RejectedError|ConflictError")
    found |= {reason for name in RELEASE for reason in made_in(ROOT / f"release/{name}.py", refused)}
    return found | set(REASONS) | {f"engine_{status}" for status in ENGINE_STATUSES_PASSED}


def rows() -> list[tuple[str, set[str]]]:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    table = page.split("## Errors\n", 1)[1].split("\n## ", 1)[0]
    written = [
        (statuses, set(re.findall(r"`([a-z_0-9]+)`", codes))) for statuses, codes in ROW.findall(table)
    ]
    return [(statuses, codes) for statuses, codes in written if codes]


def test_the_page_lists_the_codes_that_a_client_can_meet() -> None:
    unheard = set[str]().union(*ELSEWHERE.values())
    reasons = every_reason()
    assert unheard <= reasons, "what nobody raises needs no explanation"
    assert set[str]().union(*(codes for _, codes in rows())) == reasons - unheard


def test_a_code_with_a_status_of_its_own_stands_beside_it() -> None:
    for code, status in REASONS.items():
        assert [statuses for statuses, codes in rows() if code in codes and str(status) in statuses], code


def test_the_reasons_are_read_off_the_source() -> None:
    assert {"report_conflict", "kafka_failed", "unavailable", "engine_down", "bad_field"} <= every_reason()
