import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    EVENT_TYPES,
    ClockTicked,
    ErasureRequested,
    Event,
    ReportAccepted,
    ScenarioConfigured,
    TrainingTarget,
)
from schemas.ids import ReportId, ScenarioName, Sha256
from schemas.packed import JsonBytes
from schemas.topic_match import TopicFound, refusal
from schemas.topics import (
    COMMANDS,
    EXPERIENCE,
    FOREVER_MS,
    INTERACTIONS,
    OUTCOMES,
    RELAY_STATE,
    REPORT_IDS,
    SCHEMAS_LOG,
    TOPICS,
    Cleanup,
    TimestampType,
    TopicSpec,
    is_by_key,
    key_of,
    topic_of,
    topic_table,
)

DAY_MS = 86_400_000


def found_as_made(spec: TopicSpec, num_partitions: int = 8) -> TopicFound:
    partitions = spec.num_partitions or num_partitions
    return TopicFound(name=spec.name, num_partitions=partitions, config=spec.config())


def test_every_event_lives_in_a_topic() -> None:
    assert {event_type for spec in TOPICS.values() for event_type in spec.events} == set(EVENT_TYPES)


def test_only_what_relays_copy_lives_in_several_topics() -> None:
    homes = {event: [name for name, spec in TOPICS.items() if event in spec.events] for event in EVENT_TYPES}
    several = {event for event, names in homes.items() if len(names) > 1}
    assert several == {ScenarioConfigured, ErasureRequested, ClockTicked}
    assert homes[ScenarioConfigured] == [INTERACTIONS, EXPERIENCE, COMMANDS]


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_an_event_is_first_written_to_a_topic_it_lives_in(event_type: type[Event]) -> None:
    assert event_type in TOPICS[topic_of(event_type)].events


def test_a_scenario_is_configured_by_a_command_first() -> None:
    assert topic_of(ScenarioConfigured) == COMMANDS


def test_what_concerns_every_partition_is_not_sent_by_key() -> None:
    to_a_partition = {
        (spec.name, event)
        for spec in TOPICS.values()
        for event in spec.events
        if not is_by_key(event, spec.name)
    }
    assert to_a_partition == {
        (INTERACTIONS, ErasureRequested),
        (INTERACTIONS, ScenarioConfigured),
        (INTERACTIONS, ClockTicked),
        (EXPERIENCE, ClockTicked),
    }


def test_the_brokers_clock_is_used_exactly_where_windows_run() -> None:
    by_broker = {
        name for name, spec in TOPICS.items() if spec.timestamp_type is TimestampType.LOG_APPEND_TIME
    }
    assert by_broker == {INTERACTIONS, EXPERIENCE}


def test_state_is_compacted_often_and_never_deleted() -> None:
    states = [spec for name, spec in TOPICS.items() if name.endswith("-state.v1")]
    assert len(states) == 3
    for spec in states:
        config = spec.config()
        assert config["cleanup.policy"] == "compact"
        assert config["segment.bytes"] == "67108864"
        assert config["segment.ms"] == "600000"
        assert config["min.cleanable.dirty.ratio"] == "0.1"


def test_retention_is_as_promised() -> None:
    table = topic_table(retention_days=21)
    assert table[INTERACTIONS].retention_ms == table[EXPERIENCE].retention_ms == 21 * DAY_MS
    assert table[OUTCOMES].retention_ms == table[REPORT_IDS].retention_ms == 90 * DAY_MS
    assert {table[name].cleanup for name in (OUTCOMES, REPORT_IDS)} == {Cleanup.COMPACT_DELETE}
    forever = {
        name for name, spec in table.items() if spec.cleanup is Cleanup.DELETE and spec.retention_ms < 0
    }
    assert forever == {"reef.candidates.v1", "reef.releases.v1", "reef.serving.v1", "reef.commands.v1"}
    assert FOREVER_MS == -1


def test_the_schema_log_is_one_partition_whatever_the_deployment_chose() -> None:
    spec = TOPICS[SCHEMAS_LOG]
    assert refusal(spec, found_as_made(spec), 50) is None


@pytest.mark.parametrize("spec", TOPICS.values(), ids=TOPICS)
@given(num_partitions=st.integers(2, 100))
def test_a_topic_as_we_make_it_is_accepted_and_one_with_more_partitions_refused(
    spec: TopicSpec, num_partitions: int
) -> None:
    assert refusal(spec, found_as_made(spec, num_partitions), num_partitions) is None
    larger = TopicFound(name=spec.name, num_partitions=num_partitions + 1, config=spec.config())
    message = refusal(spec, larger, num_partitions)
    assert message is not None
    assert f"found partitions {num_partitions + 1}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("setting", "value"),
    [("cleanup.policy", "compact"), ("message.timestamp.type", "CreateTime"), ("cleanup.policy", "")],
)
def test_a_topic_of_other_cleanup_or_clock_is_refused(setting: str, value: str) -> None:
    spec = TOPICS[INTERACTIONS]
    other = TopicFound(name=spec.name, num_partitions=8, config=spec.config() | {setting: value})
    message = refusal(spec, other, 8)
    assert message is not None
    assert f"expected {setting} {spec.config()[setting]}" in message
    assert "kafka-configs.sh" in message


def test_the_order_of_a_cleanup_policy_does_not_matter() -> None:
    spec = TOPICS[OUTCOMES]
    other = TopicFound(
        name=spec.name, num_partitions=8, config=spec.config() | {"cleanup.policy": "delete,compact"}
    )
    assert refusal(spec, other, 8) is None


def test_an_operator_may_change_the_retention() -> None:
    spec = TOPICS[RELAY_STATE]
    other = TopicFound(name=spec.name, num_partitions=8, config=spec.config() | {"retention.ms": "1"})
    assert refusal(spec, other, 8) is None
    assert other.retention_ms == 1


def test_keys_join_what_belongs_together() -> None:
    configured = ScenarioConfigured(
        scenario=ScenarioName("demo"),
        recipe="recipes.sao.recipe:SAORecipe",
        recipe_digest=Sha256("00"),
        options=JsonBytes(b"{}"),
        target=TrainingTarget.FULL,
        is_retired=False,
        configured_at_us=1,
    )
    accepted = ReportAccepted(
        scenario=ScenarioName("demo"),
        report_id=ReportId("r/1"),
        content_sha256=Sha256("00"),
        references=(),
        accepted_at_us=1,
    )
    assert key_of(configured) == b"demo"
    assert key_of(accepted) == b"demo/r/1"
    assert key_of(ClockTicked()) == b""
