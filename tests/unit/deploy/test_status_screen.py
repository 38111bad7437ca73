"""The live screen, drawn from what /reef/status answers."""

from typing import Any

from rich.console import Console

from deploy.status_screen import ago, status_screen

NOW_US = 1_790_000_000_000_000


def a_scenario(**changes: Any) -> dict[str, Any]:
    return {
        "head": {
            "release_id": "h" * 64,
            "release_seq": 4,
            "operation": "training",
            "kind": "checkpoint",
            "content_sha256": "0" * 64,
        },
        "serving": {"release_id": "s" * 64, "release_seq": 3},
        "wanted_release_id": None,
        "swap_problem": None,
        "open_calls": 2,
        "pending_calls": 1_234,
        "pending_experiences": 5,
        "batches_in_flight": 1,
        "consumer_lag": {"session": 7, "batch": 0, "relay": 0},
        "outcomes": {"no_feedback": 3, "trained": 40},
        "last_training": {"step": 9, "metrics": {"reward_mean": 0.5}, "trained_at_us": NOW_US - 90_000_000},
        "last_training_failure": {"reason": "out_of_memory", "failed_at_us": NOW_US - 100_000_000},
        "last_swap": None,
        "last_swap_failure": None,
        "recipe": "a.recipe:It",
        "target": "full",
        **changes,
    }


def a_status(**changes: Any) -> dict[str, Any]:
    return {
        "scenarios": {"default": a_scenario(**changes)},
        "outbox": {"num_events": 2, "size_bytes": 4_096, "oldest_age_s": 1.25, "is_full": False},
        "problems": {"engine": "expected every engine to answer"},
        "services": {"release": True, "trainer": False},
    }


def frame(status: dict[str, Any]) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(status_screen(status, url="http://127.0.0.1:1", now_us=NOW_US))
    return [line.rstrip() for line in capture.get().splitlines()]


def line_of(label: str, **changes: Any) -> str:
    (found,) = [line for line in frame(a_status(**changes)) if line.startswith(label)]
    return found.removeprefix(label).strip()


def test_the_top_says_outbox_services_and_problems() -> None:
    first, second, third, *_ = frame(a_status())
    assert first == "http://127.0.0.1:1   outbox 2 events, 4,096 bytes, oldest 1.2 s"
    assert second.split() == ["services", "release", "answers", "trainer", "silent"]
    assert third == "engine: expected every engine to answer"


def test_a_scenario_says_everything_in_a_line_each() -> None:
    assert line_of("default") == "a.recipe:It full"
    assert line_of("release") == f"3 serves ({'s' * 12}), 4 is the head (training)"
    assert line_of("calls") == "2 open, 1,234 pending"
    assert (
        line_of("experiences")
        == "5 wait, 1 batch(es) in flight; offsets behind the log: session 7, batch 0, relay 0"
    )
    assert line_of("outcomes") == "trained 40, no_feedback 3"
    assert line_of("training") == "step 9, 1 min ago: reward_mean 0.5"
    assert line_of("swap") == "none yet"


def test_what_is_not_known_and_what_failed_last_is_said() -> None:
    assert "does not answer" in line_of("experiences", consumer_lag=None)
    assert line_of("release", head=None) == "none yet"
    assert line_of("release", serving=None).startswith("nothing serves, 4 is the head")
    assert line_of("release", swap_problem="it broke").endswith("it broke")
    failure = {"reason": "deadline", "failed_at_us": NOW_US - 5_000_000}
    swap = {
        "release_seq": 2,
        "swapped_at_us": NOW_US - 9_000_000,
        "pause_ms": 80.4,
        "max_stream_gap_ms": 120.0,
    }
    said = line_of("swap", last_swap=swap, last_swap_failure=failure)
    assert said == "to release 2, 9 s ago: paused 80 ms, largest gap 120 ms; failed 5 s ago: deadline"
    assert "out_of_memory" in line_of("training", last_training=None)


def test_ages_are_said_in_the_largest_unit() -> None:
    ages = [ago(NOW_US - age_s * 1_000_000, NOW_US) for age_s in (0, 59, 60, 7_200, 90_000, -5)]
    assert ages == ["0 s ago", "59 s ago", "1 min ago", "2 h ago", "1 d ago", "0 s ago"]
