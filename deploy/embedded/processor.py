"""Shell: which numbers this machine's processor multiplies by itself."""

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux calls it: on x86 the first two, on Arm the last."""


def has_bf16() -> bool:
    """Whether it has instructions for bf16; without them each product is emulated, many times slower."""
    return _CPUINFO.exists() and names_bf16(_CPUINFO.read_text())


def names_bf16(cpuinfo: str) -> bool:
    """Whether the flags of the first processor in Linux's list name such instructions."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    flags = [value.split() for name, _, value in lines if name.strip() in ("flags", "Features")]
    return bool(flags) and not _BF16.isdisjoint(flags[0])
