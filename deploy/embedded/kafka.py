"""Shell: Apache Kafka itself on this machine: one broker that is its own controller, from Maven's jars.

Not a cluster: replication is 1. Data, log and configuration stand in the state folder.
"""

import base64
import socket
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

from deploy.checks import ADVICE_JDK, ADVICE_MAVEN
from deploy.command import require_program, run_command
from deploy.daemon import Daemon, Launch
from deploy.folders import made_once, write_whole
from deploy.ports import HOST, free_port, require_free_port

KAFKA_VERSION = "4.1.1"

_POM = Path(__file__).parent / "kafka" / "pom.xml"
_DOWNLOAD_S_MAX = 900.0
_FORMAT_S_MAX = 60.0
_READY_S_MAX = 60.0
_STOP_S_MAX = 20.0
_PROBE_S_MAX = 1.0
_HEAP_MIB = 512
_METADATA_V4 = struct.pack(">hhih4siB", 3, 4, 7, 4, b"reef", 0, 0)  # api, version, request id, client, topics
_RESPONSE_HEAD = struct.Struct(">iiii")  # size, request id, throttle, number of brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """What a broker of ours is told."""

    state_dir: Path
    """The state folder of the deployment; the broker keeps to `kafka/`, `logs/` and `run/` in it."""
    cache_dir: Path
    """Where the jars are."""
    port: int
    """Where it listens, on loopback; its controller takes any free port."""
    is_durable: bool = False
    """Flush each write to the disk before it counts (`reef.durability: disk`)."""


class Kafka:
    """The embedded broker."""

    def __init__(self, options: KafkaOptions) -> None:
        """Start nothing yet."""
        self._options = options
        self._folder = options.state_dir / "kafka"
        self._libs = kafka_jars_path(options.cache_dir)
        self._java = ("java", *_java_options(self._libs))
        self.daemon = Daemon(
            Launch(
                name="kafka",
                folder=self._folder,
                log_path=options.state_dir / "logs" / "kafka.log",
                record_path=options.state_dir / "run" / "kafka.json",
                is_ready=self._answers,
                ready_s_max=_READY_S_MAX,
                stop_s_max=_STOP_S_MAX,
            )
        )

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return f"{HOST}:{self._options.port}"

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def prepare(self) -> None:
        """Bring the jars into the cache. Raises UnavailableError."""
        require_program("java", advice=ADVICE_JDK)
        made_once(self._libs, _download, wait_s=_DOWNLOAD_S_MAX)

    def start(self) -> None:
        """Start the broker on data of earlier starts, or on none. Raises UnavailableError."""
        require_program("java", advice=ADVICE_JDK)
        self.daemon.clear()
        require_free_port(self._options.port, setting="kafka.port")
        write_whole(self._properties, self._configuration(free_port()).encode())
        self._format()
        self.daemon.start((*self._java, "kafka.Kafka", str(self._properties)))

    def wait_ready(self) -> None:
        """Wait until the broker takes part in its cluster of one. Raises UnavailableError."""
        self.daemon.wait_ready()

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """Stop the broker in order."""
        self.daemon.stop(stop_s_max=stop_s_max)

    def _answers(self) -> bool:
        return num_brokers(HOST, self._options.port) > 0

    def _format(self) -> None:
        if (self._folder / "data" / "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        run_command(
            (
                *self._java,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",
                "-c",
                str(self._properties),
            ),
            what="formatting Kafka's data folder",
            deadline_s=_FORMAT_S_MAX,
        )

    def _configuration(self, controller_port: int) -> str:
        port, host = self._options.port, HOST
        return "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@{host}:{controller_port}",
                f"listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
                f"advertised.listeners=PLAINTEXT://{host}:{port}",
                "controller.listener.names=CONTROLLER",
                f"log.dirs={self._folder / 'data'}",
                "num.partitions=1",
                "default.replication.factor=1",
                "offsets.topic.replication.factor=1",
                "offsets.topic.num.partitions=8",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "transaction.state.log.num.partitions=8",
                "share.coordinator.state.topic.replication.factor=1",
                "share.coordinator.state.topic.min.isr=1",
                "auto.create.topics.enable=false",
                "group.initial.rebalance.delay.ms=0",
                *(("log.flush.interval.messages=1",) if self._options.is_durable else ()),
                "",
            )
        )


def kafka_jars_path(cache_dir: Path) -> Path:
    """Where the jars are once prepared."""
    return cache_dir / f"kafka-{KAFKA_VERSION}"


def num_brokers(host: str, port: int) -> int:
    """Ask a broker how many brokers serve; 0 when nobody answers within a second.

    An open port is not enough: a broker listens before its controller lets it take part.
    """
    try:
        with socket.create_connection((host, port), timeout=_PROBE_S_MAX) as connection:
            connection.sendall(struct.pack(">i", len(_METADATA_V4)) + _METADATA_V4)
            answer = connection.recv(_RESPONSE_HEAD.size, socket.MSG_WAITALL)
    except OSError:
        return 0
    return 0 if len(answer) < _RESPONSE_HEAD.size else int(_RESPONSE_HEAD.unpack(answer)[-1])


def _download(folder: Path) -> None:
    maven = require_program("mvn", advice=ADVICE_MAVEN)
    properties = (f"-Dkafka.version={KAFKA_VERSION}", f"-DoutputDirectory={folder}")
    run_command(
        (maven, "-B", "-q", "-f", str(_POM), *properties, "dependency:copy-dependencies"),
        what="Maven's download of Kafka's jars",
        deadline_s=_DOWNLOAD_S_MAX,
    )


def _java_options(libs: Path) -> tuple[str, ...]:
    return (
        f"-Xmx{_HEAP_MIB}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "-cp",
        f"{libs}/*",
    )
