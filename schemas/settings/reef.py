"""Pure: the section `reef`: what is learned, who may call, and the limits of the front door.

A recipe's own options stand inline beside these keys; schemas/settings/scenarios.py reads them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    SecretStr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from schemas.errors import RejectedError
from schemas.ids import ScenarioName, scenario_name
from schemas.settings.section import DottedPath, EnvironmentName, FilePath, Section, plain_keys

MIB = 1_048_576
SAO = "recipes.sao.recipe:SAORecipe"

Scope = Literal["infer", "report", "read", "admin"]
"""What a token may do: /v1/*, reports and imports, GET /reef/* and /metrics, changes."""
Target = Literal["full", "lora", "none"]
"""What training changes, as written in a file; `TrainingTarget` in events."""
ALL_SCOPES: tuple[Scope, ...] = ("infer", "report", "read", "admin")


class TlsSettings(Section):
    """Certificate of the gateway; both files or none."""

    cert_file: FilePath | None = Field(None, description="PEM chain that the gateway shows; none: plain HTTP")
    key_file: FilePath | None = Field(None, description="PEM key of that certificate")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("expected cert_file and key_file together, got one of them: give both or none")
        return self


class TokenSettings(Section):
    """One bearer token: where it is, and what it opens."""

    token_env: EnvironmentName = Field(description="variable that holds the token")
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = Field(
        ALL_SCOPES, description="what it may do: infer, report, read, admin"
    )
    scenarios: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("*",), description="scenarios that it opens; * is all"
    )

    @field_validator("scenarios")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name if name == "*" else valid_scenario_name(name) for name in names)


class ScenarioSettings(Section):
    """A scenario: a name, and whatever differs from `reef` and `training`."""

    name: ScenarioName = Field(description="name of the scenario")
    recipe: DottedPath | None = Field(None, description="another recipe than reef.recipe")
    target: Target | None = Field(None, description="another target than training.target")
    options: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="options of its recipe, written inline"
    )

    @model_validator(mode="before")
    @classmethod
    def _inline(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping):
            return value
        plain = plain_keys(value)
        own = {key: plain.pop(key) for key in ("name", "recipe", "target") if key in plain}
        options = plain.pop("options", {})
        return {**own, "options": {**options, **plain} if isinstance(options, Mapping) else options}

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> ScenarioName:
        return valid_scenario_name(name)

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        options: dict[str, Any] = written.pop("options")
        return {key: value for key, value in written.items() if value is not None} | options


def valid_scenario_name(text: str) -> ScenarioName:
    """Read a scenario's name. Raises ValueError."""
    try:
        return scenario_name(text)
    except RejectedError as error:
        raise ValueError(str(error)) from error


class ReefSettings(Section):
    """The front door, the scenarios and what identifies a deployment."""

    recipe: DottedPath = Field(SAO, description="learning method, as package.module:Class")
    options: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="the recipe's options, written inline in `reef`", exclude=True
    )
    scenarios: Annotated[tuple[ScenarioSettings, ...], Field(min_length=1)] = Field(
        (ScenarioSettings(name=ScenarioName("default")),),
        description="scenarios: names, or mappings {name, recipe, target, options of the recipe}",
    )
    host: str = Field(
        "127.0.0.1", min_length=1, description="address to listen on; a public one needs tokens"
    )
    port: int = Field(8_900, ge=0, le=65_535, description="port to listen on; 0 takes a free one")
    token: SecretStr | None = Field(
        None,
        min_length=1,
        description="one token with all scopes, as ${VARIABLE}; never written out",
    )
    tokens: tuple[TokenSettings, ...] = Field((), description="tokens: {token_env, scopes, scenarios} each")
    tls: TlsSettings = Field(TlsSettings(), description="certificate of the gateway")
    state_dir: FilePath = Field(Path(".reef"), description="folder of everything that must survive a restart")
    allow_implicit_scenario_creation: bool = Field(
        False, description="create a scenario when a request names an unknown one"
    )
    body_bytes_max: int = Field(8 * MIB, ge=1_024, description="largest request body; above it 413")
    concurrency_max: int = Field(
        1_024, ge=1, description="calls being answered at once; above it 429 with Retry-After"
    )
    outbox_bytes_max: int = Field(4_096 * MIB, ge=MIB, description="events kept on disk while Kafka is down")
    outbox_full: Literal["drop_oldest", "refuse"] = Field(
        "drop_oldest", description="at that limit: drop the oldest event, or refuse new calls with 503"
    )
    durability: Literal["process", "disk"] = Field(
        "process", description="an acknowledged event survives kill -9, or also the loss of power"
    )
    deployment: str = Field(
        "reef", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="prefix of consumer groups and transactions"
    )
    gateway_id: str = Field(
        "gateway-0", pattern=r"^[A-Za-z0-9._-]{1,64}$", description="names this gateway of the deployment"
    )
    receipt_keys_env: EnvironmentName = Field(
        "REEF_RECEIPT_KEYS",
        description="variable of the keys that sign receipts: comma separated, newest first, 16 bytes each",
    )
    score_abs_max: float = Field(1e6, gt=0, description="largest absolute score that a report may give")
    stream_receipt: Literal["chunk", "header"] = Field(
        "chunk",
        description="a stream names its receipt in its last chunk and its header, or in the header only",
    )

    @field_validator("scenarios")
    @classmethod
    def _each_once(cls, scenarios: tuple[ScenarioSettings, ...]) -> tuple[ScenarioSettings, ...]:
        names = [scenario.name for scenario in scenarios]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"expected each scenario once, got {', '.join(doubled)} again: remove one")
        return scenarios
