"""Pure: the section `observability`: how the system is watched."""

from typing import Literal

from pydantic import Field

from schemas.settings.section import Port, Section


class ObservabilitySettings(Section):
    """Metrics and logs."""

    metrics_port: Port = Field(
        9_464, description="first port of /metrics; release, trainer and stream workers take it and the next"
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="console for people, json for collectors"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level written")
