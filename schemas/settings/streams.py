"""Pure: the section `streams`: windows and limits of the folds (STREAMS 13). Folds read them from the log."""

from typing import Self

from pydantic import Field, model_validator

from schemas.settings.section import Section

HOUR_S = 3_600
DAY_S = 24 * HOUR_S


class StreamsSettings(Section):
    """How long and how much the folds hold."""

    workers: int = Field(1, ge=1, le=256, description="stream processes")
    join_window_s: int = Field(DAY_S, ge=1, description="how long a call waits for its first report")
    orphan_window_s: int = Field(DAY_S, ge=1, description="how long a report waits for its call")
    orphans_max: int = Field(100_000, ge=1, description="reports that wait in one partition")
    dedup_window_s: int = Field(
        2 * DAY_S, ge=1, description="how long repeats are recognised; twice join_window_s or more"
    )
    buffer_max_age_s: int = Field(7 * DAY_S, ge=1, description="how long an experience waits for a batch")
    buffer_experiences_max: int = Field(100_000, ge=1, description="experiences that wait in one scenario")
    max_calls_per_route: int = Field(10_000, ge=1, description="calls of one route that wait for reports")
    tick_s: float = Field(1.0, ge=0.1, le=60, description="least time between two ClockTicked of a partition")

    @model_validator(mode="after")
    def _repeats_outlive_joins(self) -> Self:
        if self.dedup_window_s < 2 * self.join_window_s:
            raise ValueError(
                f"expected dedup_window_s >= 2 x join_window_s = {2 * self.join_window_s}, "
                f"got {self.dedup_window_s}: raise the one or lower the other"
            )
        return self

    @property
    def longest_window_s(self) -> int:
        """What the log must be kept at least twice as long for."""
        return max(self.join_window_s, self.orphan_window_s, self.dedup_window_s, self.buffer_max_age_s)
