"""Shell: `reef trainer`: one scenario's trainer, in as many processes as `training.ranks` says.

Not the dependencies: Kafka and lakeFS run elsewhere (`reef stack up`). What runs is in deploy/training.py,
which takes seconds to import, so help does without.
"""

from pathlib import Path
from typing import Annotated

import typer

from deploy.configuration import ConfigFile, read_configuration
from schemas.ids import BatchId

ABANDON = "abandon"

ScenarioName = Annotated[
    str | None, typer.Option("--scenario", help="which one, when several are trained here")
]


FromReplay = Annotated[
    str | None,
    typer.Option(
        "--from-replay", help="learn from the topics of `reef replay --out-topics SUFFIX`, and tell nobody"
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="with --from-replay: the folder of its checkpoints, results and weights"),
]


def trainer(
    context: typer.Context,
    config: ConfigFile = None,
    scenario: ScenarioName = None,
    suffix: FromReplay = None,
    out: Out = None,
) -> None:
    """Train one scenario, or `abandon BATCH`. Any setting may follow as --section.key value."""
    words = list(context.args)
    abandoned = _abandoned(words)
    if (suffix is None) != (out is None) or (suffix is not None and abandoned is not None):
        raise typer.BadParameter(
            "expected --from-replay SUFFIX with --out FOLDER, and nothing to abandon: give both, or neither"
        )
    settings = read_configuration(config, words).settings
    from deploy.training import abandon_batch, replay_of, train  # noqa: PLC0415 - torch is not needed for help

    if abandoned is None:
        replay = None if suffix is None or out is None else replay_of(suffix, out)
        raise typer.Exit(train(settings, scenario, replay))
    abandon_batch(settings, scenario, abandoned)


def _abandoned(words: list[str]) -> BatchId | None:
    """Take `abandon BATCH` out of the words."""
    if ABANDON not in words:
        return None
    at = words.index(ABANDON)
    if len(words) <= at + 1:
        raise typer.BadParameter("expected `reef trainer abandon BATCH`, got no batch: name it")
    batch_id = BatchId(words[at + 1])
    del words[at : at + 2]
    return batch_id
