"""Pure: whether a topic on the cluster is the one of the table: what cannot be changed later must agree.

Retention and sizes may differ: an operator may change those on a live topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.topics import FOREVER_MS, TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFound:
    """A topic as the cluster describes it."""

    name: str
    """Its name."""
    num_partitions: int
    """How many partitions it has."""
    config: Mapping[str, str]
    """Its settings, defaults included."""

    @property
    def retention_ms(self) -> int:
        """Age at which records go; -1 is never."""
        return int(self.config.get("retention.ms", FOREVER_MS))


def refusal(spec: TopicSpec, found: TopicFound, num_partitions: int) -> str | None:
    """Say in one line why this topic cannot be used and what to do; None when it can."""
    expected = {
        "partitions": str(spec.num_partitions or num_partitions),
        "cleanup.policy": _sorted_list(spec.cleanup),
        "message.timestamp.type": spec.timestamp_type,
    }
    came = {
        "partitions": str(found.num_partitions),
        "cleanup.policy": _sorted_list(found.config.get("cleanup.policy", "")),
        "message.timestamp.type": found.config.get("message.timestamp.type", ""),
    }
    differing = [name for name in expected if expected[name] != came[name]]
    if not differing:
        return None
    wanted = ", ".join(f"{name} {expected[name]}" for name in differing)
    got = ", ".join(f"{name} {came[name] or 'unknown'}" for name in differing)
    return f"topic {spec.name}: expected {wanted}, found {got}: {_advice(spec, differing)}"


def _advice(spec: TopicSpec, differing: list[str]) -> str:
    if "partitions" not in differing:
        return f"set it with kafka-configs.sh --alter --topic {spec.name}, or use another cluster"
    if spec.num_partitions is None:
        return "set kafka.partitions to the number found for all topics, or use another cluster"
    return "delete the topic while nothing runs and start again, or use another cluster"


def _sorted_list(text: str) -> str:
    return ",".join(sorted(part.strip() for part in text.split(",")))
