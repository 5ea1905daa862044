"""All code of the README, guides and notebooks is run, page by page, in a folder of tiny files with tiny models."""

import importlib.util
import io
import json
import re
import shlex
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from transencoder import cli
from transencoder.recipes import load_recipe

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *NOTEBOOKS)
]
FENCE = re.compile(r"^( *)(```+|~~~+)([^\n`]*)\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@dataclass(frozen=True)
class Block:
    """A fenced block, or a notebook's cell of code: its language, the title that names its file, its text, and where it stands."""

    language: str
    title: str
    text: str
    where: str


def grade_all(sheet):
    """Grade as a person at the terminal would, who cannot be here."""
    sheet.grades |= {pair: float(i % 6) for i, pair in enumerate(sheet.pairs)}
    sheet.save()


def blocks_of(page):
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return [Block("python", "", "".join(cell["source"]), f"{page}:{cell['id']}") for cell in cells]
    found = []
    for match in FENCE.finditer(text):
        language, _, rest = match[3].strip().partition(" ")
        title = re.fullmatch(r'(?:title="([^"]+)")?', rest)
        where = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        assert title, f'{where}: after the language only title="..." is known, not {rest}'
        found.append(Block(language, title[1] or "", textwrap.dedent(match[4]), where))
    return found


class Runner:
    """Runs the blocks of one page in their order; one namespace for its Python, one folder for its files."""

    def __init__(self, capsys):
        self.capsys = capsys
        self.names = {"__name__": "__main__"}
        self.printed = ""
        self.missing = set()

    def run(self, block):
        runners = {
            "bash": self.bash,
            "mermaid": self.mermaid,
            "python": self.python,
            "toml": self.toml,
            "text": self.text,
        }
        assert block.language in runners, f"{block.where}: no test knows how to run {block.language or 'no language'}"
        if block.title:
            Path(block.title).write_text(block.text, "utf-8")
        runners[block.language](block)

    def bash(self, block):
        lines = [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]
        lines = [words for words in lines if words]
        unknown = {words[0] for words in lines} - set(COMMANDS)
        assert not unknown, f"{block.where}: no test knows how to run {', '.join(unknown)}"
        outputs = [COMMANDS[words[0]](self, words[1:], block.where) for words in lines]
        self.printed = "".join(filter(None, outputs))

    def python(self, block):
        try:
            exec(compile(block.text, block.where, "exec"), self.names)
        except Exception as error:
            self.needs_extra(str(error), block.where, error)
        self.printed = self.capsys.readouterr().out

    def toml(self, block):
        path = Path(block.title or "recipe.toml")
        path.write_text(block.text, "utf-8")
        load_recipe(path)

    def mermaid(self, block):
        """A picture, which tests/docs/test_architecture.py looks at."""

    def text(self, block):
        """What the block before printed, but for its numbers; `...` stands for lines that are left out."""
        if block.title:
            return
        printed = [masked(line) for line in self.printed.splitlines()]
        for line in filter(None, map(masked, block.text.splitlines())):
            assert line == "..." or any(line in each for each in printed), (
                f"{block.where}: nothing printed {line!r}, but:\n{self.printed}"
            )

    def transencoder(self, words, where):
        with pytest.MonkeyPatch.context() as patch:
            if "<" in words:
                words, (_, path) = words[:-2], words[-2:]
                patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
            patch.setattr("transencoder.cli.grading_sheet.Sheet.ask", grade_all)
            code = cli.main(words)
        out, err = self.capsys.readouterr()
        if code:
            self.needs_extra(err, where, AssertionError(f"{where}: transencoder {shlex.join(words)}: {code}\n{err}"))
        return out

    def torchrun(self, words, where):
        """Torchrun's own parser reads the line; what it would start in two processes is started in this one."""
        from torch.distributed.run import get_args_parser

        options = get_args_parser().parse_args(words)
        assert (options.module, options.training_script) == (True, "transencoder"), where
        return self.transencoder(options.training_script_args, where)

    def pip(self, words, where):
        """Nothing is installed: the extras that are named exist, and so do the files."""
        assert words[0] == "install", where
        for word, following in zip(words[1:], [*words[2:], ""], strict=True):
            if word == "-c":
                assert (ROOT / following).is_file(), where
            extras = re.fullmatch(r"(?:\.|transencoder)\[(.+)\]", word)
            assert word == "-c" or (ROOT / word).is_file() or (extras and set(extras[1].split(",")) <= set(EXTRAS)), (
                f"{where}: {word} is no extra"
            )

    def make(self, words, where):
        """Nothing is made: the target exists."""
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(words) <= set(targets), where

    def needs_extra(self, message, where, error):
        """Go on where the error is that packages of an extra are not installed; else fail."""
        said = re.search(r"(No module named|not installed|needs|pip install).*", message)
        optional = [each for extra, listed in EXTRAS.items() if extra not in ("demo", "dev", "docs") for each in listed]
        packages = {re.match(r"[\w-]+", each)[0] for each in optional}
        absent = {each for each in packages if importlib.util.find_spec(each.replace("-", "_")) is None}
        named = {each for each in absent if said and re.search(rf"\b{re.escape(each)}\b", message.splitlines()[-1])}
        if not named:
            raise error
        self.missing |= {f"{where} ({', '.join(sorted(named))})"}


COMMANDS = {name: getattr(Runner, name) for name in ("transencoder", "torchrun", "pip", "make")}


def masked(line):
    """A line without the numbers, whose values differ from model to model, and without the frames of tables."""
    return " ".join(re.sub(r"-?\d+(\.\d+)?", "#", re.sub(r"[^\S ]|[\u2500-\u257f]", " ", line)).split())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_every_block_runs(page, place, capsys, request, monkeypatch):
    place(page, request)
    monkeypatch.setattr("sentence_transformers.base.model.HfApi", Hub)
    runner = Runner(capsys)
    for block in blocks_of(page):
        runner.run(block)
    if runner.missing:
        pytest.skip(f"all other blocks ran; packages of extras are not installed: {', '.join(sorted(runner.missing))}")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_short_and_hold_no_outputs(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert 8 <= len(cells) <= 16
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere_for_readers_of_the_repository(page):
    """All but the pages of settings, which the site alone has."""
    links = re.findall(r"\]\((?!https?:|settings/)([^)#]+)[^)]*\)", page.read_text("utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_results_in_the_readme_are_those_of_the_results_page():
    rows = re.findall(r"^\| ([a-z- ]+) \|((?: \d+\.\d\d \|)+)$", README, re.MULTILINE)
    assert len(rows) >= 3
    page = (ROOT / "results" / "README.md").read_text("utf-8")
    for title, numbers in rows:
        assert re.search(rf"\| {title} \| \d+\.\d\d \|{re.escape(numbers)}", page), f"{title}{numbers}"


class Hub:
    """Takes a model's files and keeps nothing."""

    def __init__(self, **_):
        pass

    def create_repo(self, repo_id, **_):
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, repo_id, folder_path, **_):
        assert (Path(folder_path) / "README.md").is_file()
        return SimpleNamespace(commit_url=f"hub/{repo_id}/commit/1")
