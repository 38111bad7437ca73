"""Container files and manifests name only what exists: commands, settings, ports, flags, images by tag."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.cli import ENTRIES
from deploy.commands.streams import METRICS_PORT_OFFSET as STREAMS_OFFSET
from deploy.embedded import engine as embedded_engine
from deploy.first_run import make_model, repository_of
from schemas.errors import RejectedError
from schemas.settings import Settings
from schemas.settings.load import load_settings

ROOT = Path(__file__).parents[3]
CONTAINERS, KUBERNETES = ROOT / "deploy" / "containers", ROOT / "deploy" / "kubernetes"
OVERLAYS = {"compose.yaml": ("compose.yaml",), "compose.gpu.yaml": ("compose.yaml", "compose.gpu.yaml")}
CONFIG = "/etc/reef/serve.yaml"
SECRETS = {
    "reef-services": (
        "REEF_RECEIPT_KEYS LAKECTL_CREDENTIALS_ACCESS_KEY_ID LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY "
        "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY"
    ).split(),
    "reef-tokens": ["REEF_APP_TOKEN", "REEF_OPERATOR_TOKEN"],
}
"""What an operator makes before the manifests are applied (docs/operations.md)."""
A_SECRET = "0123456789abcdef0123456789abcdef"
PROBED_PORT = re.compile(r"http://127\.0\.0\.1:(\d+)(/\w+)")
TAGGED = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?:[0-9][a-z0-9.-]*")
"""An image without a registry's host, by a tag that begins with a number."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container, whoever describes it."""

    place: str
    name: str
    image: str
    entrypoint: Sequence[str]
    words: Sequence[str]
    environ: Mapping[str, str]
    limits: Mapping[str, Any]
    probes: Mapping[str, Any]
    raw: Mapping[str, Any]
    ends_by_itself: bool = False
    settings_file: Path = field(default=CONTAINERS / "serve.yaml")

    @property
    def is_ours(self) -> bool:
        return self.image.startswith("reef:") and not self.entrypoint

    def settings(self) -> Settings:
        overrides = self.words[3:]
        return load_settings(self.settings_file, overrides, self.environ).settings


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in YAML(typ="safe").load_all(path) if one is not None]


def laid_over(below: Any, above: Any) -> Any:
    """As compose merges files: mappings by key; of sequences ours overlay only commands, which replace."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: laid_over(below.get(key), value) for key, value in above.items()}}


def compose(*names: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in names:
        merged = laid_over(merged, documents(CONTAINERS / name)[0])
    return merged


def value_of(written: object) -> str:
    """A value as the container sees it: secrets of the environment are set."""
    return re.sub(r"\$\{\w+:\?[^}]*\}", A_SECRET, str(written))


def in_compose() -> Iterator[Container]:
    for place, names in OVERLAYS.items():
        for name, service in compose(*names)["services"].items():
            yield Container(
                place=place,
                name=name,
                image=service["image"],
                entrypoint=service.get("entrypoint", ()),
                words=service.get("command", ()),
                environ={key: value_of(one) for key, one in (service.get("environment") or {}).items()},
                limits=service["deploy"]["resources"]["limits"],
                probes={"readiness": service["healthcheck"]["test"]} if "healthcheck" in service else {},
                raw=service,
                ends_by_itself=name == "first-run",
            )


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in documents(KUBERNETES / "kustomization.yaml")[0]["resources"]:
        yield from ((name, document) for document in documents(KUBERNETES / name))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, document in manifests():
        if "template" in document.get("spec", {}):
            yield name, document["spec"]["template"]["spec"]


def environ_of(container: Mapping[str, Any]) -> dict[str, str]:
    generated = {
        one["name"]: dict(literal.split("=", 1) for literal in one.get("literals", ()))
        for one in documents(KUBERNETES / "kustomization.yaml")[0]["configMapGenerator"]
    }
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        if "secretRef" in source:
            found |= dict.fromkeys(SECRETS[source["secretRef"]["name"]], A_SECRET)
        else:
            found |= generated[source["configMapRef"]["name"]]
    return found | {one["name"]: one.get("value", "gateway-0") for one in container.get("env", ())}


def in_kubernetes() -> Iterator[Container]:
    for place, pod in pods():
        for container in pod["containers"]:
            yield Container(
                place=place,
                name=container["name"],
                image=container["image"],
                entrypoint=container.get("command", ()),
                words=container.get("args", ()),
                environ=environ_of(container),
                limits=container["resources"]["limits"],
                probes={key: one for key, one in container.items() if key.endswith("Probe")},
                raw=container,
                ends_by_itself=pod.get("restartPolicy") == "OnFailure",
                settings_file=KUBERNETES / "serve.yaml",
            )


EVERY = [*in_compose(), *in_kubernetes()]
OURS = [one for one in EVERY if one.is_ours]
ENGINES = [one for one in EVERY if one.image.startswith("reef-engine")]


def label(one: Container) -> str:
    return f"{one.place}:{one.name}"


def test_every_service_is_in_every_description() -> None:
    services = {"gateway", "streams", "trainer", "release"}
    for place in OVERLAYS:
        assert services == {one.name for one in OURS if one.place == place}
    assert {one.name for one in OURS if one.place not in OVERLAYS} == services
    assert {one.place for one in ENGINES} == {"compose.yaml", "compose.gpu.yaml", "gateway.yaml"}


@pytest.mark.parametrize("one", OURS, ids=label)
def test_a_container_of_ours_runs_a_command_that_exists_with_settings_that_exist(one: Container) -> None:
    assert one.words[0] in {entry.name for entry in ENTRIES if entry.takes_settings}
    assert list(one.words[1:3]) == ["-c", CONFIG]
    one.settings()  # unknown keys, unknown REEF_…__… and missing secrets are refused


def test_a_variable_that_is_no_setting_would_be_found() -> None:
    with pytest.raises(RejectedError, match="bogus"):
        load_settings(CONTAINERS / "serve.yaml", (), {**OURS[0].environ, "REEF_REEF__BOGUS": "1"})


@pytest.mark.parametrize("one", [one for one in EVERY if one.ends_by_itself], ids=label)
def test_what_runs_first_is_a_module_of_ours(one: Container) -> None:
    assert list(one.entrypoint[:2]) == ["python", "-m"]
    assert find_spec(one.entrypoint[2]) is not None
    assert set(one.words) == {"model", "blobs"}
    assert repository_of(load_settings(one.settings_file, (), one.environ).settings.blobs_url) == "reef-blobs"


def probed(one: Container, port: int, path: str) -> bool:
    """Whether every probe asks this port and path; an `httpGet` names its port by `http`."""
    for probe in one.probes.values():
        if isinstance(probe, dict) and "httpGet" in probe:
            if probe["httpGet"]["port"] != "http" or probe["httpGet"]["path"] not in (path, "/healthz"):
                return False
        elif PROBED_PORT.findall(json.dumps(probe)) != [(str(port), path)]:
            return False
    return bool(one.probes)


@pytest.mark.parametrize("one", OURS, ids=label)
def test_a_probe_asks_where_the_settings_make_the_service_listen(one: Container) -> None:
    settings = one.settings()
    first = settings.observability.metrics_port
    asked = {
        "gateway": (settings.reef.port, "/readyz"),
        "release": (first, "/metrics"),
        "trainer": (first + 1, "/metrics"),
        "streams": (first + STREAMS_OFFSET, "/metrics"),
    }
    assert probed(one, *asked[one.name])


def test_the_gateways_port_is_the_one_that_is_published() -> None:
    for one in OURS:
        if one.name != "gateway":
            assert one.settings().reef.host == "127.0.0.1", f"{label(one)} would need tokens"
            continue
        settings = one.settings()
        assert settings.reef.host == "0.0.0.0"
        scopes = {scope for token in settings.reef.tokens for scope in token.scopes}
        assert scopes == {"infer", "report", "read", "admin"}
        if one.place in OVERLAYS:
            published = compose(*OVERLAYS[one.place])["services"]["door"]["ports"]
            assert published == [f"127.0.0.1:{settings.reef.port}:{settings.reef.port}"]
        else:
            assert one.raw["ports"] == [{"name": "http", "containerPort": settings.reef.port}]
            service = next(document for _, document in manifests() if document["kind"] == "Service")
            assert service["spec"]["ports"][0]["port"] == settings.reef.port


@pytest.mark.parametrize("one", ENGINES, ids=label)
def test_an_engine_runs_as_the_embedded_one_does_and_where_its_gateway_asks(one: Container) -> None:
    needed = {*embedded_engine._ARGUMENTS, *embedded_engine._WEIGHT_ARGUMENTS}
    assert needed < set(one.words)
    settings = load_settings(one.settings_file, (), OURS[0].environ).settings
    flags = dict(word.split("=", 1) for word in one.words if "=" in word)
    assert settings.inference.engine_urls == (f"http://{flags['--host']}:{flags['--port']}",)
    assert flags["--host"] == "127.0.0.1"
    assert flags["--model"] == settings.inference.model
    assert flags["--served-model-name"] == Path(settings.inference.model).name
    assert probed(one, int(flags["--port"]), "/health")
    assert "VLLM_SERVER_DEV_MODE=1" in (CONTAINERS / "Dockerfile.engine").read_text()


def test_an_engine_and_its_gateway_share_a_network_and_the_folder_of_releases() -> None:
    for names in OVERLAYS.values():
        services = compose(*names)["services"]
        assert services["engine"]["network_mode"] == services["gateway"]["network_mode"] == "service:door"
        assert "serving:/var/lib/reef" in services["gateway"]["volumes"]
        assert "serving:/var/lib/reef:ro" in services["engine"]["volumes"]
    pod = next(pod for name, pod in pods() if name == "gateway.yaml")
    assert [one["name"] for one in pod["containers"]] == ["gateway", "engine"]
    for container in pod["containers"]:
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert (mounts["/var/lib/reef"], mounts["/models"]) == ("state", "models")


def test_trainer_and_release_see_one_folder_since_exports_travel_through_it() -> None:
    for names in OVERLAYS.values():
        services = compose(*names)["services"]
        assert all("learning:/var/lib/reef" in services[name]["volumes"] for name in ("trainer", "release"))
    claims = {
        name: next(v for v in pod["volumes"] if v["name"] == "state")["persistentVolumeClaim"]["claimName"]
        for name, pod in pods()
        if name in ("trainer.yaml", "release.yaml")
    }
    assert claims == {"trainer.yaml": "learning", "release.yaml": "learning"}


def test_a_trainer_has_a_gpu_for_each_rank() -> None:
    trainer = next(one for one in OURS if one.place == "trainer.yaml")
    assert trainer.limits["nvidia.com/gpu"] == trainer.settings().training.ranks
    engine = next(one for one in ENGINES if one.place == "gateway.yaml")
    assert engine.limits["nvidia.com/gpu"] == 1


@pytest.mark.parametrize("one", EVERY, ids=label)
def test_a_container_has_limits_probes_an_image_by_tag_and_no_rights_beyond_its_own(one: Container) -> None:
    assert TAGGED.fullmatch(one.image), one.image
    assert {"memory"} < {*one.limits}
    assert {"cpu", "cpus"} & {*one.limits}
    assert one.probes or one.ends_by_itself or one.name == "door", "a container without a probe"
    assert not one.raw.get("privileged")
    if one.place in OVERLAYS:
        assert one.raw["cap_drop"] == ["ALL"]
        assert one.raw["security_opt"] == ["no-new-privileges:true"]
        return
    security = one.raw["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]


def test_a_pod_runs_as_nobody_special() -> None:
    found = list(pods())
    assert len(found) == 5
    for _, pod in found:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        mounted = {volume["name"] for volume in pod["volumes"]} | {"state"}
        for container in pod["containers"]:
            assert {one["name"] for one in container["volumeMounts"]} <= mounted


def test_every_manifest_is_listed_and_no_pod_is_reachable_unless_written() -> None:
    listed = set(documents(KUBERNETES / "kustomization.yaml")[0]["resources"])
    found = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert found - {"kustomization.yaml", "serve.yaml"} == listed
    policies = {d["metadata"]["name"]: d["spec"] for _, d in manifests() if d["kind"] == "NetworkPolicy"}
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened = [one for one in policies.values() if one.get("ingress")]
    assert [port["port"] for one in opened for rule in one["ingress"] for port in rule["ports"]] == [8900]


@pytest.mark.parametrize("name", ["reef", "engine", "lakefs"])
def test_an_image_is_built_from_a_tag_as_an_ordinary_user_without_secrets(name: str) -> None:
    path = CONTAINERS / f"Dockerfile.{name}"
    assert path.with_name(f"{path.name}.dockerignore").read_text().startswith("**\n!")
    text = path.read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    assert all(TAGGED.fullmatch(base) for base in bases), bases
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    assert not re.search(r"TOKEN|PASSWORD|SECRET|_KEY", text)
    sources = [
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()
    ]
    assert sources
    for source in sources:
        for device in ("cpu", "cuda"):
            assert (ROOT / source.replace("${DEVICE}", device)).exists(), source


def test_blobs_that_are_not_in_lakefs_are_not_made_by_us() -> None:
    with pytest.raises(RejectedError, match="by hand"):
        repository_of("s3://bucket/prefix")


def test_a_model_that_is_there_is_left_alone_and_another_is_not_invented(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    make_model(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    for wrong in ("smollm2-135m", str(tmp_path / "my-model")):
        with pytest.raises(RejectedError, match="copy your model there"):
            make_model(wrong)
