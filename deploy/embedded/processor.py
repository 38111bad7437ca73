"""Shell: which numbers this machine's processor multiplies by itself."""

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux calls it: on x86 the first two, on Arm the last."""


def has_bf16(cpuinfo: str | None = None) -> bool:
    """Whether it has instructions for bf16; without them each product is emulated, many times slower."""
    text = _CPUINFO.read_text() if cpuinfo is None and _CPUINFO.exists() else cpuinfo or ""
    lines = [line.partition(":") for line in text.splitlines()]
    flags = [value.split() for name, _, value in lines if name.strip() in ("flags", "Features")]
    return bool(flags) and not _BF16.isdisjoint(flags[0])
