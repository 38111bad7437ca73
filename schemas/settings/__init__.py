"""Pure: the configuration of a deployment, section by section. schemas/settings/load.py reads it."""

from schemas.settings.inference import InferenceSettings, SamplingDefaults
from schemas.settings.kafka import KafkaSecurity, KafkaSettings
from schemas.settings.observability import ObservabilitySettings
from schemas.settings.reef import ReefSettings, ScenarioSettings, Scope, TlsSettings, TokenSettings
from schemas.settings.stores import BlobsSettings, LakefsSettings
from schemas.settings.streams import StreamsSettings
from schemas.settings.training import EvaluationSettings, TrainingSettings
from schemas.settings.tree import Settings

__all__ = [
    "BlobsSettings",
    "EvaluationSettings",
    "InferenceSettings",
    "KafkaSecurity",
    "KafkaSettings",
    "LakefsSettings",
    "ObservabilitySettings",
    "ReefSettings",
    "SamplingDefaults",
    "ScenarioSettings",
    "Scope",
    "Settings",
    "StreamsSettings",
    "TlsSettings",
    "TokenSettings",
    "TrainingSettings",
]
