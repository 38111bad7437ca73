"""Pure: what this machine must have, judged from facts that deploy/machine.py gathered.

Not the setting-up: each verdict that is not good says what to run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.settings import Settings

GB = 10**9

PYTHON_VERSION = (3, 11)
JAVA_VERSION_MIN = 17
GO_VERSION_MIN = (1, 21)  # since then Go fetches the version that go.mod names
MAVEN_VERSION_MIN = (3, 6)
DISK_BYTES_FIRST = 25 * GB
"""As the README says: two Python environments with torch, their downloads, jars, Go's modules, the demo."""
DISK_BYTES_LATER = 2 * GB
MEMORY_BYTES_MIN = 12 * GB
"""As the README says, for the demo: the engine on a CPU takes 6 GB of it, Kafka and lakeFS one."""

ADVICE_JDK = (
    f"install a JDK of {JAVA_VERSION_MIN} or later, on Debian by `apt-get install openjdk-17-jdk-headless`"
)
ADVICE_MAVEN = "install Maven, on Debian by `apt-get install maven`"
ADVICE_GO = "install Go 1.21 or later, on Debian 13 by `apt-get install golang-go`, else from go.dev/dl"

Outcome = Literal["ok", "warning", "missing", "unusable", "taken"]
"""The last three are in the way of a start: the exit status is 1."""
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found on the machine; None where there is none."""

    settings: Settings
    """What is to run here."""
    python: Version
    """Of this process."""
    uv: str | None
    """Path of uv."""
    java: int | None
    """Major version of the JDK on PATH; 0 when it does not say."""
    maven: Version | None
    """Version of Maven on PATH."""
    go: Version | None
    """Version of Go on PATH."""
    has_jars: bool
    """Kafka's jars are in the cache."""
    has_lakefs: bool
    """The lakeFS server is in the cache."""
    has_engine: bool
    """The engine's environment is in the cache."""
    disk_free_bytes: int
    """On the cache's file system."""
    memory_bytes: int
    """Of the whole machine."""
    ports_of_others: tuple[int, ...]
    """Taken, and not by our own stack."""
    state_dir_problem: str | None
    """Why the state folder cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One line of the doctor's."""

    name: str
    """What was looked at."""
    outcome: Outcome
    """How it stands."""
    found: str
    """What there is."""
    advice: str = ""
    """What to run or change; empty when all is well."""

    @property
    def is_obstacle(self) -> bool:
        """Whether nothing starts before it is mended."""
        return self.outcome not in ("ok", "warning")


def judge_machine(facts: Facts) -> tuple[Verdict, ...]:
    """Give every verdict, in the order of set-up."""
    return tuple(verdict for check in CHECKS for verdict in check(facts))


def _python(facts: Facts) -> Sequence[Verdict]:
    expected = ".".join(map(str, PYTHON_VERSION))
    advice = f"install Python {expected}, on Debian 12 by `apt-get install python3 python3-venv`"
    return [_tool("Python", facts.python[:2] == PYTHON_VERSION, _dotted(facts.python), advice)]


def _uv(facts: Facts) -> Sequence[Verdict]:
    return [_tool("uv", facts.uv is not None, facts.uv, "run `make setup`")]


def _java(facts: Facts) -> Sequence[Verdict]:
    if not facts.settings.kafka.is_embedded:
        return [_not_needed("JDK", "kafka.bootstrap is an address")]
    good = facts.java is not None and facts.java >= JAVA_VERSION_MIN
    found = None if facts.java is None else str(facts.java)
    return [_tool("JDK", good, found, ADVICE_JDK)]


def _maven(facts: Facts) -> Sequence[Verdict]:
    if facts.has_jars or not facts.settings.kafka.is_embedded:
        return [_not_needed("Maven", "Kafka's jars are there" if facts.has_jars else "no embedded Kafka")]
    good = facts.maven is not None and facts.maven >= MAVEN_VERSION_MIN
    return [_tool("Maven", good, _dotted(facts.maven), ADVICE_MAVEN)]


def _go(facts: Facts) -> Sequence[Verdict]:
    if facts.has_lakefs or not facts.settings.lakefs.is_embedded:
        return [_not_needed("Go", "lakeFS is built" if facts.has_lakefs else "no embedded lakeFS")]
    good = facts.go is not None and facts.go >= GO_VERSION_MIN
    return [_tool("Go", good, _dotted(facts.go), ADVICE_GO)]


def _disk(facts: Facts) -> Sequence[Verdict]:
    is_made = facts.has_jars and facts.has_lakefs and facts.has_engine
    expected_bytes = DISK_BYTES_LATER if is_made else DISK_BYTES_FIRST
    found = f"{facts.disk_free_bytes // GB} GB free"
    if facts.disk_free_bytes >= expected_bytes:
        return [Verdict(name="disk", outcome="ok", found=found)]
    advice = f"free {expected_bytes // GB} GB, or set REEF_CACHE to a folder on a larger disk"
    return [Verdict(name="disk", outcome="missing", found=found, advice=advice)]


def _memory(facts: Facts) -> Sequence[Verdict]:
    found = f"{facts.memory_bytes // GB} GB"
    if facts.memory_bytes >= MEMORY_BYTES_MIN or not facts.settings.inference.is_embedded:
        return [Verdict(name="memory", outcome="ok", found=found)]
    advice = f"use a machine with {MEMORY_BYTES_MIN // GB} GB, or set inference.engine to an address"
    return [Verdict(name="memory", outcome="warning", found=found, advice=advice)]


def _state_dir(facts: Facts) -> Sequence[Verdict]:
    name, path = "reef.state_dir", str(facts.settings.reef.state_dir)
    if facts.state_dir_problem is None:
        return [Verdict(name=name, outcome="ok", found=path)]
    return [Verdict(name=name, outcome="unusable", found=path, advice=facts.state_dir_problem)]


def _ports(facts: Facts) -> Sequence[Verdict]:
    return [_port(setting, port, facts.ports_of_others) for setting, port in ports_of(facts.settings).items()]


CHECKS: tuple[Callable[[Facts], Sequence[Verdict]], ...] = (
    _python,
    _uv,
    _java,
    _maven,
    _go,
    _disk,
    _memory,
    _state_dir,
    _ports,
)


def ports_of(settings: Settings) -> dict[str, int]:
    """Give the ports that this machine needs, by setting."""
    every = (
        ("reef.port", settings.reef.port, True),
        ("kafka.port", settings.kafka.port, settings.kafka.is_embedded),
        ("lakefs.port", settings.lakefs.port, settings.lakefs.is_embedded),
        ("inference.port", settings.inference.port, settings.inference.is_embedded),
    )
    return {setting: port for setting, port, is_needed in every if is_needed and port}


def _tool(name: str, good: bool, found: str | None, advice: str) -> Verdict:
    if good:
        return Verdict(name=name, outcome="ok", found=found or "")
    return Verdict(name=name, outcome="missing", found=found or "none", advice=advice)


def _not_needed(name: str, why: str) -> Verdict:
    return Verdict(name=name, outcome="ok", found=f"not needed: {why}")


def _port(setting: str, port: int, taken: Sequence[int]) -> Verdict:
    if port not in taken:
        return Verdict(name=setting, outcome="ok", found=f"{port} is free or ours")
    advice = f"stop the program that listens on {port}, or set {setting} to another port"
    return Verdict(name=setting, outcome="taken", found=f"{port} is taken", advice=advice)


def _dotted(version: Version | None) -> str | None:
    return None if version is None else ".".join(map(str, version))
