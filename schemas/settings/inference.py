"""Pure: the section `inference`: the model that answers, the engine that runs it, and how it samples."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from schemas.settings.section import EMBEDDED, EmbeddedOrUrl, Port, Section


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_written(engines: tuple[str, ...]) -> str | list[str]:
    return engines[0] if len(engines) == 1 else list(engines)


Engines = Annotated[
    tuple[EmbeddedOrUrl, ...],
    Field(min_length=1, max_length=64),
    BeforeValidator(_as_list),
    PlainSerializer(_as_written),
]
"""`embedded`, an address, or a list of addresses."""


class SamplingDefaults(Section):
    """What the gateway writes into a request that leaves it out. Truncation makes calls untrainable."""

    temperature: float = Field(1.0, ge=0, le=2, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="1 keeps the whole distribution")
    top_k: int = Field(0, ge=0, description="0 keeps the whole distribution")
    min_p: float = Field(0.0, ge=0, le=1, description="0 keeps the whole distribution")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="0 is none")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="0 is none")
    repetition_penalty: float = Field(1.0, gt=0, le=2, description="1 is none")


class InferenceSettings(Section):
    """The engine and the deadlines of asking it."""

    model: str = Field(
        "smollm2-135m",
        min_length=1,
        description="a directory, a name that the project prepares (smollm2-135m, tiny), or a hub id",
    )
    engine: Engines = Field((EMBEDDED,), description="embedded, a URL, or a list of URLs")
    port: Port = Field(8_901, description="port of the embedded engine")
    engine_args: tuple[str, ...] = Field((), description="further arguments of the embedded engine")
    sampling_defaults: SamplingDefaults = Field(SamplingDefaults(), description="written into every request")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where the embedded engine runs")
    transport: Literal["auto", "nccl", "gloo", "folder"] = Field(
        "auto", description="how new weights reach the engine; auto: nccl, else gloo on CPU, else folder"
    )
    timeout_s: float = Field(600.0, gt=0, description="longest time for one answer; above it 504")
    engine_wait_s: float = Field(0.0, ge=0, description="how long a request waits for an engine that is down")
    swap_deadline_s: float = Field(30.0, gt=0, description="longest time for one swap; above it SwapFailed")
    releases_kept: int = Field(3, ge=1, description="releases kept as folders beside the gateway")

    @property
    def is_embedded(self) -> bool:
        """Whether the engine runs beside us."""
        return EMBEDDED in self.engine

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """Where the engines answer."""
        return tuple(f"http://127.0.0.1:{self.port}" if at == EMBEDDED else at for at in self.engine)
