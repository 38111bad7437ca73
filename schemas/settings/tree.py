"""Pure: the whole configuration as one frozen tree: a field per section, a key per setting (RULINGS 39).

Not the reading of it: schemas/settings/load.py does that. Services take narrow pieces, not the tree.
"""

from pydantic import Field

from schemas.settings.inference import InferenceSettings
from schemas.settings.kafka import KafkaSettings
from schemas.settings.observability import ObservabilitySettings
from schemas.settings.reef import ReefSettings
from schemas.settings.section import Section
from schemas.settings.stores import BlobsSettings, LakefsSettings
from schemas.settings.streams import StreamsSettings
from schemas.settings.training import EvaluationSettings, TrainingSettings


class Settings(Section):
    """Everything that an operator can decide. Defaults run all of it on one machine."""

    reef: ReefSettings = Field(ReefSettings(), description="the front door and what is learned")
    inference: InferenceSettings = Field(InferenceSettings(), description="the model that answers")
    training: TrainingSettings = Field(TrainingSettings(), description="how batches become candidates")
    evaluation: EvaluationSettings = Field(EvaluationSettings(), description="which candidates are released")
    kafka: KafkaSettings = Field(KafkaSettings(), description="the log")
    lakefs: LakefsSettings = Field(LakefsSettings(), description="the chain of releases")
    blobs: BlobsSettings = Field(BlobsSettings(), description="fields too large for the log")
    streams: StreamsSettings = Field(StreamsSettings(), description="windows and limits of the folds")
    observability: ObservabilitySettings = Field(ObservabilitySettings(), description="metrics and logs")

    @property
    def blobs_url(self) -> str:
        """Where large fields go; the folder in `state_dir` unless told otherwise."""
        return self.blobs.url or (self.reef.state_dir.absolute() / "blobs").as_uri()
