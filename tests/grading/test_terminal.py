"""`grade` in a terminal: keys, undo, stop, go on; and through a file."""

import csv
import fcntl
import os
import pty
import subprocess
import sys
import termios

import pytest

from transencoder.cli import main
from transencoder.grading import choose


def graded(path):
    with path.open() as file:
        return [(row["sentence1"], row["sentence2"], row["score"]) for row in csv.DictReader(file, delimiter="\t")]


@pytest.fixture
def typed(finished_run, tmp_path):
    """Run `grade` in a pseudo-terminal with keys; returns (exit code, what it showed, what it wrote)."""

    def run(*keys):
        keys = list(keys)
        ours, theirs = pty.openpty()
        output = tmp_path / "dev.tsv"
        command = [sys.executable, "-m", "transencoder", "grade", str(finished_run), "--n-pairs", "12"]
        process = subprocess.Popen(
            [*command, "--output", str(output)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # whose Ctrl-C is a signal then
        )
        os.close(theirs)
        shown, n_asked = b"", 0
        while True:
            try:
                read = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            shown += read
            if keys and shown.count(b" left") > n_asked:  # one key a question
                n_asked = shown.count(b" left")
                os.write(ours, keys.pop(0).encode())
        os.close(ours)
        return process.wait(), shown.decode(), graded(output) if output.exists() else []

    return run


def test_pairs_are_graded_taken_back_skipped_and_gone_on_with(typed, finished_run):
    pairs = choose(finished_run, 12)
    code, shown, rows = typed("5", "x3", "u", "4", "s", "q")  # x is no key
    assert code == 0, shown
    assert rows == [(*pairs[0], "5"), (*pairs[1], "4")]
    assert "taken back: 3" in shown
    assert "1 of 12, about" in shown
    assert "2 of 12 pairs are graded; the same command goes on" in shown
    code, shown, rows = typed(*"0123450123")  # 10 more; the skipped pair comes again
    assert code == 0, shown
    assert [row[:2] for row in rows] == pairs
    assert "On your grades the base model has" in shown.replace("\r\n", " ") or "your grades" in shown
    assert "gain over the first" in shown
    assert "--set" in shown


def test_ctrl_c_keeps_every_grade(typed, finished_run):
    code, shown, rows = typed("1", "2", "\x03")
    assert code == 130, shown
    assert "Traceback" not in shown
    assert [row[2] for row in rows] == ["1", "2"]


def test_without_a_terminal_a_file_is_the_way(finished_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(finished_run)
    assert main(["grade", run, "--output", "dev.tsv"]) == 2
    assert "--export FILE" in capsys.readouterr().err
    assert main(["grade", run, "--n-pairs", "12", "--export", "pairs.csv"]) == 0
    assert "12 pairs. When they are graded: transencoder grade" in capsys.readouterr().out
    with open("pairs.csv") as file:
        rows = list(csv.DictReader(file))
    with open("pairs.csv", "w") as file:
        writer = csv.DictWriter(file, ["sentence1", "sentence2", "score"])
        writer.writeheader()
        writer.writerows(row | {"score": i % 6} for i, row in enumerate(rows[:11]))
    assert main(["grade", run, "--n-pairs", "12", "--import", "pairs.csv", "--output", "dev.tsv"]) == 0
    out = capsys.readouterr().out
    assert "11 of 12 pairs are graded" in out
    assert "your grades" in out
    assert [float(score) for *_, score in graded(tmp_path / "dev.tsv")] == [i % 6 for i in range(11)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-pairs", "3"], "--n-pairs is 3"),
        (["--output", "a.jsonl"], "must end in .tsv or .csv"),
        (["--tool", "argilla"], "is for --export"),
        (["--import", "absent.csv"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(options, message, finished_run, capsys):
    assert main(["grade", str(finished_run), *options]) == 2
    assert message in capsys.readouterr().err


def test_grades_of_other_pairs_are_not_overwritten(finished_run, tmp_path, capsys):
    output = tmp_path / "dev.tsv"
    output.write_text("sentence1\tsentence2\tscore\nmine\tyours\t3\n")
    assert main(["grade", str(finished_run), "--output", str(output)]) == 2
    assert "not among those of" in capsys.readouterr().err
    assert "mine\tyours\t3" in output.read_text()
