"""Shell: every benchmark in turn, each in a process of its own: `python -m tests.bench`, or `make bench`.

Each prints JSON lines. Only ratios within one line compare; absolute figures belong to the machine.
"""

import subprocess
import sys

BENCHMARKS = ("codec", "outbox", "memory", "fold", "replay", "streams", "trainer", "swap")
BENCHMARK_S_MAX = 1_800


def main(names: list[str]) -> int:
    """Run the named ones, or all; give the number that failed."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.stderr.write(f"expected some of {', '.join(BENCHMARKS)}, got {unknown[0]!r}\n")
        return 2
    num_failed = 0
    for name in names or BENCHMARKS:
        sys.stderr.write(f"== {name}\n")
        command = (sys.executable, "-m", f"tests.bench.bench_{name}")
        num_failed += subprocess.run(command, check=False, timeout=BENCHMARK_S_MAX).returncode != 0
    return num_failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
