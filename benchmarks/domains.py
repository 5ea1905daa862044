"""Measure what each way of training without labels gains on ten domains, and what it loses on the other domains.

    python benchmarks/domains.py run --output ../runs/domains --ways bi-quantile paper --seeds 1
    python benchmarks/domains.py table

A cell is a domain, a way, a base model and a seed. It is trained in a folder below --output, which is removed
afterwards. Then all tests are scored, and one line with all metrics, and with intervals of the gains over the base
model, is added to results/domains.jsonl. A cell that has a line is skipped, so a second call continues where the first
one stopped. `table` writes results/domains.md. Training uses no dev set and one thread. Settings are chosen on the
development domains of domain_data.py; the others are for reporting.
"""

import argparse
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from domain_data import DOMAINS, Domain, DomainText, general_text, tests, text_of
from domain_table import page
from sentence_transformers import CrossEncoder, SentenceTransformer
from starts import write_first_layers
from tsdae import train_tsdae

from transencoder import (
    MLM,
    BiScorer,
    ContrastiveTension,
    CrossScorer,
    FitConfig,
    Member,
    SimCSE,
    Trained,
    TransEncoder,
    train,
)
from transencoder.devices import has_bf16
from transencoder.encoders import weight_tokens
from transencoder.metrics import METRICS, metric_draws, row_intervals
from transencoder.models import MINILM, resolve_model
from transencoder.recipes import load_recipe
from transencoder.runs.log import source_commit

RESULTS = Path(__file__).parent / "results"
BASES = ("minilm", "unsupervised")
"""Base models: all-MiniLM-L6-v2, trained with labels, and its first three layers after SimCSE on mixed English."""

PRECISION = "fp32"
"""Precision of base models and tests, the same on all machines. Training uses the default: bf16 where it is faster."""

N_ELSEWHERE = 200
"""Number of pairs of every other domain's test, which show what is forgotten."""

Models = dict[str, SentenceTransformer | CrossEncoder]
"""Models by form, one of `FORMS` of domain_table.py."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Inputs of a way."""

    domain: Domain
    text: DomainText
    start: str
    cross_start: Callable[[], str]
    """Function that returns the path of the base model's cross-encoder for general text; the first call trains it."""
    seed: int
    folder: Path


def distil(job: Job, *, mines: bool = False, weights: bool = False, warmed: bool = False, **settings: Any) -> Models:
    """Train Trans-Encoder on the domain's pairs or, with `mines`, on pairs mined from its sentences.

    With `weights`, also return the bi-encoder halfway to the base model, and the one with weighted tokens. With
    `warmed`, the cross-encoder starts from the one for general text.
    """
    text = job.text
    given = {"sentences": text.sentences, "documents": text.documents} if mines else {"pairs": text.pairs}
    config = TransEncoder(
        **given | settings,
        members=(Member(start=job.start, cross_start=job.cross_start() if warmed else None),),
        output=str(job.folder),
        task_kind="graded" if job.domain.metric == "spearman" else "binary",
        is_symmetric=job.domain.is_symmetric,
        seed=job.seed,
    )
    models = _models(train(config))
    if weights:
        models["half bi"] = halfway(job.start, str(job.folder / "bi-encoder"))
        weight_tokens(job.folder / "bi-encoder", text.texts, job.folder / "weighted")
        models["weighted bi"] = SentenceTransformer(str(job.folder / "weighted"))
    return models


def halfway(start: str, trained: str) -> SentenceTransformer:
    """Return the bi-encoder with the mean weights of two of the same shape, as `--bi.trained-share 0.5` keeps it."""
    model, before = SentenceTransformer(trained), SentenceTransformer(start).state_dict()
    model.load_state_dict({name: torch.lerp(before[name], own, 0.5) for name, own in model.state_dict().items()})
    return model


def learn_encoder(job: Job, *, method: type[SimCSE] | type[ContrastiveTension], **settings: Any) -> Models:
    """Train a bi-encoder on the domain's sentences."""
    config = method(
        **settings,
        sentences=job.text.texts,
        start=job.start,
        output=str(job.folder / "encoder"),
        seed=job.seed,
    )
    return _models(train(config))


def learn_words_first(job: Job, *, words: FitConfig, **settings: Any) -> Models:
    """Train the base model as a masked language model on the domain's sentences, then a bi-encoder."""
    output = str(job.folder / "words")
    config = MLM(
        sentences=job.text.texts,
        start=job.start,
        new_head=True,
        output=output,
        seed=job.seed,
        fit=words,
    )
    train(config)
    return learn_encoder(replace(job, start=output), **settings)


def denoise(job: Job) -> Models:
    """Train by TSDAE, with sentence-transformers' loss, on the domain's sentences."""
    return {"bi": train_tsdae(job.text.texts["text"], job.start, job.folder, job.seed)}


def weight(job: Job) -> Models:
    """Return the base model untrained, with tokens weighted by their frequency in the domain's texts."""
    job.folder.mkdir(parents=True)
    weight_tokens(Path(job.start), job.text.texts, job.folder / "weighted")
    return {"bi": SentenceTransformer(str(job.folder / "weighted"))}


_SMALL: dict[str, Any] = {"batch_size": 64, "epochs": 3, "max_length": 64}
_SIMCSE: dict[str, Any] = {"method": SimCSE, "pooling": "mean", "fit": replace(SimCSE.fit, **_SMALL)}
_TENSION = replace(
    ContrastiveTension.fit, **_SMALL, learning_rate=3e-5, optimizer="adamw", dropout=0.1, max_grad_norm=1.0
)
_LAST = FitConfig(selection="last")
_BI = FitConfig(batch_size=64, learning_rate=2e-5, epochs=4, max_length=64, selection="last")
_BI_FROM_BI: dict[str, Any] = {"same_form": True, "cycles": 1, "bi": _BI, "cross": _LAST}
_MINED: dict[str, Any] = {"mines": True, "n_pairs": 3000, "bi": replace(_BI, epochs=2)}
_TAUGHT: dict[str, Any] = {
    **_BI_FROM_BI,
    **{"label_policy": "clip", "bi_labels": "tokens", "weights": True, "teachers": (MINILM,)},
}
_FOUR_EPOCHS = FitConfig(learning_rate=2e-5, epochs=4)
_WARMED: dict[str, Any] = {
    **{"warmed": True, "same_form": False, "cycles": 1, "bi_labels": "tokens", "bi": _BI},
    "cross": FitConfig(batch_size=64, learning_rate=5e-5, epochs=2, dropout=0.0, max_length=128, selection="last"),
}

WAYS: dict[str, Callable[[Job], Models]] = {
    "weighted": weight,
    "simcse": partial(learn_encoder, **_SIMCSE),
    "contrastive-tension": partial(learn_encoder, method=ContrastiveTension, negatives="in_batch", fit=_TENSION),
    "tsdae": denoise,
    "mlm-simcse": partial(learn_words_first, words=replace(MLM.fit, batch_size=32, learning_rate=5e-5), **_SIMCSE),
    "bi-quantile": partial(distil, **_BI_FROM_BI, label_policy="quantile"),
    "bi-quantile-sentences": partial(distil, **_BI_FROM_BI | _MINED, label_policy="quantile"),
    "bi-clip": partial(distil, **_BI_FROM_BI, label_policy="clip"),
    "bi-tokens": partial(distil, **_BI_FROM_BI, label_policy="clip", bi_labels="tokens", weights=True),
    "bi-tokens-sentences": partial(
        distil, **_BI_FROM_BI | _MINED, label_policy="clip", bi_labels="tokens", weights=True
    ),
    "teacher": partial(distil, **_TAUGHT),
    "teacher-longer": partial(distil, **_TAUGHT | {"bi": replace(_BI, learning_rate=5e-5, epochs=8)}),
    "warmed": partial(distil, **_WARMED, label_policy="affine"),
    "warmed-clip": partial(distil, **_WARMED, label_policy="clip"),
    "paper": partial(distil, cycles=1, bi=_LAST, cross=_LAST),
    "standard": partial(distil, preset="standard"),
    "standard-4-epochs": partial(distil, preset="standard", bi=_FOUR_EPOCHS),
    "standard-sentences": partial(distil, preset="standard", mines=True),
    "standard-sentences-4-epochs": partial(distil, preset="standard", mines=True, bi=_FOUR_EPOCHS),
    "standard-teacher": partial(distil, preset="standard", teachers=(MINILM,)),
}
"""Ways of training by name.

`simcse` and `contrastive-tension` make three passes over up to 3,000 texts, each text twice. Ways that train a
bi-encoder from a bi-encoder see 6,000 pairs in all: the domain's pairs 4 times, or mined pairs twice. `paper` uses the
learning rates, batch sizes, lengths and epochs of Table 16 for the kind of task, and the last checkpoints; `standard`
uses the defaults of `transencoder train` (two epochs, of mined pairs one), ways ending in `-4-epochs` its former ones.
`teacher` is `bi-tokens` with minilm as a frozen teacher, which counts as much as the base model; `teacher-longer` is
the same with 8 epochs at a learning rate of 5e-5. `warmed` trains a cross-encoder that starts from `general_cross`."""

CHOSEN = ("standard", "bi")
"""Way and form that `transencoder train` gives by default."""


def run(options: argparse.Namespace) -> None:
    """Train and score the requested cells that have no line yet."""
    torch.set_num_threads(1)
    done = {cell_of(line) for line in read_lines(options.results)}
    cells = itertools.product(options.seeds, options.bases, options.ways, options.domains)
    for seed, base, way, domain in cells:
        cell = (domain, way, base, seed)
        if cell not in done:
            print(time.strftime("%H:%M:%S"), *cell, file=sys.stderr, flush=True)
            with (options.results / "domains.jsonl").open("a") as file:
                file.write(json.dumps(measured(*cell, options)) + "\n")


def measured(domain: str, way: str, base: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train one cell, and return its line."""
    folder = options.output / "-".join((domain, way, base, str(seed)))
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted call
    start = base_model(base, options.output, options.data)
    text = text_of(domain, options.data)
    cross_start = partial(general_cross, base, options.output, options.data)
    job = Job(domain=DOMAINS[domain], text=text, start=start, cross_start=cross_start, seed=seed, folder=folder)
    seconds, processor = time.monotonic(), time.process_time()
    models = WAYS[way](job)
    seconds, processor = time.monotonic() - seconds, time.process_time() - processor
    line = {
        "domain": domain,
        "way": way,
        "base": base,
        "seed": seed,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "n_pairs": len(text.pairs),
        "n_sentences": len(text.texts),
        **judged(models, start, domain, options.data),
        "commit": source_commit(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "bf16": has_bf16("cuda" if torch.cuda.is_available() else "cpu"),
    }
    shutil.rmtree(folder, ignore_errors=True)
    return line


def judged(models: Models, start: str, domain: str, data: Path) -> dict[str, Any]:
    """Return the metric of each model and the base model on every test, and each gain with both interval ends."""
    scores: dict[str, dict[str, float]] = {form: {} for form in ("base", *models)}
    gains: dict[str, dict[str, list[float]]] = {form: {} for form in models}
    for name, test in tests(data).items():
        metric, rows = DOMAINS[name].metric, test if name == domain else test.select(range(N_ELSEWHERE))
        gold, before = np.array(rows["score"]), base_scores(start, data)[name][: len(rows)]
        each = {"base": before, **{form: scored(model, rows) for form, model in models.items()}}
        for form, values in each.items():
            scores[form][name] = round(METRICS[metric](gold, values), 3)
        draws = metric_draws(metric, gold, np.stack(list(each.values())), name=name, seed=0)
        assert draws is not None, "every test has hundreds of pairs"
        for form, ends in row_intervals(draws, list(each))["gains"].items():
            gains[form][name] = [round(value, 3) for value in (scores[form][name] - scores["base"][name], *ends)]
    return {"scores": scores, "gains": gains}


def scored(model: SentenceTransformer | CrossEncoder, pairs: Dataset) -> np.ndarray:
    """Return a model's scores of pairs, float64 (n,)."""
    kind = CrossScorer if isinstance(model, CrossEncoder) else BiScorer
    scorer = kind(model, precision=PRECISION)
    return scorer.score(pairs).astype(np.float64)


@cache
def base_scores(start: str, data: Path) -> dict[str, np.ndarray]:
    """Score every test with a base model."""
    model = SentenceTransformer(start)
    return {name: scored(model, test) for name, test in tests(data).items()}


@cache
def general_cross(base: str, output: Path, data: Path) -> str:
    """Return the path of a cross-encoder trained on a base model's labels of 90,000 pairs of general text.

    Training follows the recipe trans-encoder/minilm-general, here with sentences that are in no test. It takes 44
    minutes from the base model of three layers.
    """
    folder = output / f"general-{base}"
    texts = [" ".join(text.split()) for text in general_text(40_000, data)["text"] if 8 < len(text) < 400]
    recipe = load_recipe("trans-encoder/minilm-general")
    assert isinstance(recipe, TransEncoder)
    config = replace(
        recipe,
        sentences=Dataset.from_dict({"text": texts}),
        members=(Member(start=base_model(base, output, data)),),
        output=str(folder),
        precision="bf16",
    )
    return str(train(config).folder / "cross-encoder")


@cache
def base_model(name: str, output: Path, data: Path) -> str:
    """Return the path of a base model.

    The second one is trained as in the recipe simcse/minilm-3-without-dev, here with minilm's maximum length. A model
    that exists is used as it is, so that all cells start from the same one.
    """
    if name == "minilm":
        return resolve_model(MINILM)
    layers, folder = output / "minilm-3", output / "unsupervised"
    if (folder / "bi-encoder").exists():
        return str(folder / "bi-encoder")
    if not layers.exists():
        write_first_layers(layers)
    fit = replace(SimCSE.fit, learning_rate=1e-4, batch_size=128, max_length=256)
    text = general_text(20_000, data)
    config = SimCSE(sentences=text, start=str(layers), output=str(folder), pooling="mean", precision=PRECISION, fit=fit)
    return str(train(config).folder / "bi-encoder")


def _models(trained: Trained) -> Models:
    forms = trained.result["best"]
    return {form: getattr(trained, f"{form}_encoder") for form in ("bi", "cross") if form in forms}


def read_lines(results: Path) -> list[dict[str, Any]]:
    """Return the lines of all measured cells."""
    path = results / "domains.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cell_of(line: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Return the cell that a line belongs to."""
    return line["domain"], line["way"], line["base"], line["seed"]


def write_table(options: argparse.Namespace) -> None:
    """Write and print the table of all lines."""
    development = {name: domain.is_development for name, domain in DOMAINS.items()}
    metrics = {name: domain.metric for name, domain in DOMAINS.items()}
    text = page(read_lines(options.results), development, metrics, WAYS, CHOSEN)
    (options.results / "domains.md").write_text(text)
    print(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("TRANSENCODER_DATA", "../shared/data"))
    commands = parser.add_subparsers(required=True)
    runs, table = commands.add_parser("run"), commands.add_parser("table")
    for command, function in ((runs, run), (table, write_table)):
        command.add_argument("--results", type=Path, default=RESULTS)
        command.set_defaults(function=function)
    runs.add_argument("--output", type=Path, required=True, help="folder for runs, outside the repository")
    runs.add_argument("--data", type=Path, default=data)
    runs.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    runs.add_argument("--domains", nargs="+", default=list(DOMAINS), choices=DOMAINS)
    runs.add_argument("--bases", nargs="+", default=["minilm"], choices=BASES)
    runs.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    options.function(options)
