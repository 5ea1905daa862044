"""Several runs at once on a Ray cluster; a stage that runs share is computed by the first of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transencoder import on_ray
from transencoder.configs.run import RunConfig
from transencoder.records import Result
from transencoder.runs import is_finished
from transencoder.settings import expanded
from transencoder.training.encoder import SMALLER
from transencoder.training.mined import MINING
from transencoder.training.run import plan, train


def train_on_ray(runs: Sequence[tuple[RunConfig, str | None]]) -> list[Result]:
    """Train runs as tasks of a Ray cluster, each on a GPU or else a CPU, and return their results in their order.

    A run waits until earlier runs have computed the stages that it shares with them, and then reuses these; each run
    must name the earlier runs in `reuse_from`. All nodes must see the same files and use the same precision: stages in
    bf16 and in fp32 are different ones. A run that is lost with its node resumes where it stopped.

    Args:
        runs: Config and recipe name of each run, as `train` takes them.

    Raises:
        InputError: Ray is not installed, or data or an option cannot be used.
    """
    outputs = {config.output for config, _ in runs}
    alone = [replace(run, reuse_from=tuple(each for each in run.reuse_from if each not in outputs)) for run, _ in runs]
    planned = on_ray.call_all(_stages_of, [(config,) for config in alone], lambda _: True)
    first_of: dict[str, Path] = {}
    awaited: list[list[tuple[Path, str, str]]] = []
    for config, stages in zip(alone, planned, strict=True):
        awaited.append([(first_of[key], name, key) for name, key in stages if key in first_of])
        first_of = {key: Path(expanded(config).output) for _, key in stages} | first_of
    return on_ray.call_all(_train, runs, lambda number: all(is_finished(*each) for each in awaited[number]))


def _stages_of(config: RunConfig) -> list[tuple[str, str]]:
    """Return the name and the key of each stage of a run, as the node that executes this call has them.

    Keys of stages behind one that makes pairs or a smaller model are not known before it has run: they are left out.
    """
    stages = [(stage.name, stage.key) for stage in plan(config).stages.values()]
    known = next((i for i, (name, _) in enumerate(stages, 1) if name in (MINING, SMALLER)), len(stages))
    return stages[:known]


def _train(config: RunConfig, recipe: str | None) -> Result:
    return train(config, recipe=recipe).result
