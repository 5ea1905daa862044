"""Commands for runs and models: `runs list|clean`, `report`, `results`, `truncate`, `weight`, `export`, `push`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.filesize import decimal as size
from rich.table import Table

from transencoder import runs
from transencoder.cli import files
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.errors import InputError
from transencoder.recipes import value_from_text
from transencoder.runs.files import folder_bytes
from transencoder.settings import Setting


@dataclass(frozen=True, kw_only=True)
class ListRuns:
    """List the runs in a folder: state, stages done, disk use."""

    folder: str = argument("folder", ".")
    """folder that holds the runs"""

    def __call__(self) -> None:
        found = runs.list_runs(self.folder)
        table = Table("run", "method", "state", "started", "stages", "disk")
        for run in found:
            started = (run.started or "")[:16].replace("T", " ")
            table.add_row(str(run.folder), run.method, run.state, started, str(run.n_stages), size(run.disk_bytes))
        show(table)
        show(f"{len(found)} runs, {size(sum(run.disk_bytes for run in found))}")


@dataclass(frozen=True, kw_only=True)
class Clean:
    """Remove what a run no longer needs: unused and unfinished stages."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder"""
    dry_run: bool = False
    """only say what would be removed"""
    everything: bool = False
    """remove all stages; the final models stay"""

    def __call__(self) -> None:
        for folder in self.runs:
            summary = runs.clean_run(folder, everything=self.everything, dry_run=self.dry_run)
            for name in summary.names:
                show(str(Path(folder) / name))
            show(f"{folder}: {size(summary.bytes_freed)} {'would be freed' if self.dry_run else 'freed'}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a finished run's report again, or a page that compares several runs."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder; several are compared with the first"""
    output: str | None = option(None, metavar="FILE")
    """with several runs: the HTML file to write (default: comparison.html)"""

    def __call__(self) -> None:
        from transencoder.report.comparison import write_comparison
        from transencoder.report.run_report import write_report

        if len(self.runs) > 1:
            show(str(write_comparison(self.runs, self.output or "comparison.html")))
        elif self.output is None:
            show(str(write_report(self.runs[0])))
        else:
            raise InputError(
                "--output is for several runs: the report of a single one goes into its folder. Leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class Results:
    """Write a results page from the records of runs."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder"""
    output: str = option(metavar="FILE")
    """Markdown file to write"""

    def __call__(self) -> None:
        from transencoder.report.comparison import results_page

        show(str(results_page(self.runs, self.output)))


@dataclass(frozen=True, kw_only=True)
class Truncate:
    """Write a smaller model with some of another model's layers, as a base model for a student."""

    model: str = argument("MODEL")
    """folder, run, hub id (id@revision), or minilm"""
    layers: tuple[str, ...] = option(metavar="N")
    """layers to keep, counted from 0, such as 0,2,5"""
    output: str = option(metavar="FOLDER")
    """the folder to write, which must be new"""
    hub: files.Hub

    def __call__(self) -> None:
        from transencoder import encoders

        output = Path(self.output)
        layers = value_from_text(Setting(name="layers", kind=int, is_list=True), self.layers, "--layers")
        folder = encoders.fetch(self.model, **vars(self.hub))
        encoders.truncate(folder, layers, output)
        kept, all_ = encoders.count_parameters(output), encoders.count_parameters(folder)
        show(f"{output}: layers {', '.join(map(str, layers))} of {self.model}, {kept:,} of {all_:,} parameters")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Write a bi-encoder that weights tokens by how rare they are in your text; nothing is trained."""

    model: str = argument("MODEL")
    """folder, run, hub id (id@revision), or minilm, with mean pooling"""
    sentences: str = option(metavar="FILE")
    """your text: TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    column: str | None = option(None, flag=files.COLUMN, metavar="NAME")
    """the text column (default: text, body and other known names, else the only one)"""
    output: str = option(metavar="FOLDER")
    """the folder to write, which must be new"""
    rows: files.Rows

    def __call__(self) -> None:
        from transencoder import encoders

        sentences = files.read_texts(self.sentences, self.column, self.rows)
        encoders.weight_tokens(encoders.fetch(self.model, form="bi", **self.rows.hub), sentences, Path(self.output))
        show(f"{self.output}: {self.model}, with tokens weighted by their frequency in {len(sentences):,} sentences")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a model for onnxruntime or OpenVINO, once its scores agree with PyTorch's."""

    model: str = argument("MODEL")
    """folder, a run's bi-encoder or cross-encoder, hub id, or minilm"""
    to: Literal["onnx", "openvino"]
    """runtime to write the model for: onnxruntime or OpenVINO"""
    output: str = option(metavar="FOLDER")
    """the folder to write, which must be new"""
    hub: files.Hub

    def __call__(self) -> None:
        from transencoder.encoders import fetch
        from transencoder.export import export_model

        found = export_model(fetch(self.model, **vars(self.hub)), self.to, self.output)
        n_bytes = folder_bytes(Path(self.output))
        show(
            f"{self.output}: {self.to}, {size(n_bytes)}; scores of {found.n_pairs} pairs of up to {found.longest} "
            f"tokens differ by at most {found.max_difference:.1g} from PyTorch's"
        )


@dataclass(frozen=True, kw_only=True)
class Push:
    """Upload a model with its card to the hub, as a private repository unless told otherwise."""

    model: str = argument("MODEL")
    """folder of a model, such as a run's bi-encoder or cross-encoder"""
    repo_id: str = argument("REPO_ID")
    """hub repository: name or owner/name"""
    public: bool = False
    """let everybody see the new repository"""
    update: bool = False
    """add a commit to an existing repository"""
    branch: str | None = None
    """branch to push to (default: the main one)"""
    token: str | None = None
    """hub access token that may write (default: the one you are logged in with)"""

    def __call__(self) -> None:
        if not Path(self.model).expanduser().is_dir():
            raise InputError(f"{self.model} is no folder; give the folder of a trained model")
        from transencoder import export
        from transencoder.encoders import fetch

        where = export.push(
            fetch(self.model),
            self.repo_id,
            is_private=not self.public,
            is_update=self.update,
            branch=self.branch,
            token=self.token,
        )
        show(f"{self.repo_id}: {where}")
