"""Shell: the inference engine on this machine: vLLM's server in an environment of its own.

Not the gateway: it listens on loopback without a token, since it has routes that change its weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from deploy.daemon import Daemon, Launch
from deploy.embedded.engine_environment import Device, prepare_engine_environment
from deploy.embedded.model import Model, prepare_model
from deploy.embedded.processor import has_bf16
from deploy.embedded.served_folder import read_served_folder
from deploy.ports import HOST, require_free_port
from deploy.probe import answers, is_gone

_READY_S_MAX = 900.0  # a large model is read from a disk
_STOP_S_MAX = 15.0
_CPU_CONTEXT_TOKENS_MAX = 2_048
_CPU_ARGUMENTS = (
    "--enforce-eager",  # compiling costs minutes and gains nothing here
    "--max-num-seqs=16",
    "--max-num-batched-tokens=512",  # a long prefill would delay a pause
)
_ARGUMENTS = (
    "--generation-config=vllm",  # else a model's own top_p, top_k and temperature fill what a client omits
    "--logprobs-mode=processed_logprobs",  # those of the distribution that was sampled from
)
_WEIGHT_ARGUMENTS = (
    '--weight-transfer-config={"backend":"reef"}',
    "--worker-extension-cls=reef_engine.extension.ReefWorkerExtension",
)
_CPU_KV_CACHE_GIB = 1
_ADAPTER_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as the largest rank."""
_ADAPTERS_SPARE = 2
"""One that still answers its last requests, and a candidate under evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What an engine of ours is told."""

    state_dir: Path
    """The state folder of the deployment; the engine keeps to `engine/`, `logs/` and `run/` in it."""
    cache_dir: Path
    """Where its environment and the prepared models are."""
    port: int
    """Where it listens, on loopback."""
    model: str
    """A folder, a name that the project prepares, or a hub id."""
    device: Device
    """Which build of vLLM runs."""
    num_adapters: int = 0
    """Scenarios that train an adapter."""
    adapter_rank: int = 16
    """Of those adapters."""
    extra_arguments: tuple[str, ...] = ()
    """Further arguments of vLLM; they come last, so they win."""


class Engine:
    """The embedded engine."""

    def __init__(self, options: EngineOptions) -> None:
        """Prepare and start nothing yet."""
        self._options = options
        self._python: Path | None = None
        self._model: Model | None = None
        self.daemon = Daemon(
            Launch(
                name="engine",
                folder=options.state_dir / "engine",
                log_path=options.state_dir / "logs" / "engine.log",
                record_path=options.state_dir / "run" / "engine.json",
                is_ready=self._answers,
                ready_s_max=_READY_S_MAX,
                stop_s_max=_STOP_S_MAX,
                is_gone=self._is_gone,
            )
        )

    @property
    def url(self) -> str:
        """Where clients begin."""
        return f"http://{HOST}:{self._options.port}"

    @property
    def model(self) -> Model:
        """What it serves; known once prepared."""
        assert self._model is not None, "the engine is not prepared"
        return self._model

    def prepare(self) -> None:
        """Make the environment and the model, once a machine. Raises UnavailableError, ConfigurationError."""
        self._python = prepare_engine_environment(self._options.device, self._options.cache_dir)
        self._model = prepare_model(self._options.model, self._options.cache_dir)

    def start(self) -> None:
        """Start the engine. Raises UnavailableError."""
        assert self._python is not None, "the engine is not prepared"
        self.daemon.clear()
        require_free_port(self._options.port, setting="inference.port")
        self.daemon.start((str(self._python), *self._arguments()), environ=self._environ())

    def wait_ready(self) -> None:
        """Wait until the engine answers. Raises UnavailableError."""
        self.daemon.wait_ready()

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """Stop the engine and its workers."""
        self.daemon.stop(stop_s_max=stop_s_max)

    def _answers(self) -> bool:
        return answers(f"{self.url}/health")

    def _is_gone(self) -> bool:
        return is_gone(f"{self.url}/health")

    def _arguments(self) -> tuple[str, ...]:
        on_cpu = self._options.device == "cpu"
        return (
            "-m",
            "vllm.entrypoints.openai.api_server",
            f"--model={read_served_folder(self._options.state_dir, model=self.model.source)}",
            f"--served-model-name={self.model.name}",
            f"--host={HOST}",
            f"--port={self._options.port}",
            *_ARGUMENTS,
            *_WEIGHT_ARGUMENTS,
            *_adapter_arguments(self._options),
            *((*_CPU_ARGUMENTS, *_dtype_argument(), *_context_argument(self.model)) if on_cpu else ()),
            *self._options.extra_arguments,
        )

    def _environ(self) -> dict[str, str]:
        cache_dir = self._options.cache_dir
        return {
            "VLLM_SERVER_DEV_MODE": "1",  # opens the routes that change weights
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1" if self._options.num_adapters else "0",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1" if self.model.is_local else "0",
            "VLLM_CPU_KVCACHE_SPACE": str(_CPU_KV_CACHE_GIB),
            "VLLM_CACHE_ROOT": str(cache_dir / "vllm"),
            "VLLM_CONFIG_ROOT": str(cache_dir / "vllm-config"),
            "PYTHONDONTWRITEBYTECODE": "",
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages: to touch fresh small ones is dear
        }


def _adapter_arguments(options: EngineOptions) -> tuple[str, ...]:
    if not options.num_adapters:
        return ()
    rank = next((rank for rank in _ADAPTER_RANKS if rank >= options.adapter_rank), options.adapter_rank)
    return (
        "--enable-lora",
        f"--max-lora-rank={rank}",
        f"--max-loras={options.num_adapters + _ADAPTERS_SPARE}",
    )


def _dtype_argument() -> tuple[str, ...]:
    """Compute in fp32 where bf16 would be emulated: the small model gave 52 tokens a second instead of 4."""
    return () if has_bf16() else ("--dtype=float32",)


def _context_argument(model: Model) -> tuple[str, ...]:
    """Bound the context on a CPU, where a token of cache costs as much as it does on a GPU."""
    if not model.is_local:
        return (f"--max-model-len={_CPU_CONTEXT_TOKENS_MAX}",)
    config = json.loads((Path(model.source) / "config.json").read_bytes())
    tokens_max = int(config.get("max_position_embeddings", _CPU_CONTEXT_TOKENS_MAX))
    return (f"--max-model-len={min(tokens_max, _CPU_CONTEXT_TOKENS_MAX)}",)
