"""`grade` in a terminal: keys, undo, stop, go on; and through a file."""

import csv
import json
import os
import pty
import select
import shlex
import shutil
import signal
import sys
import threading
import time
import traceback

import pytest
import torch

from transencoder import train
from transencoder.cli import main
from transencoder.cli.grading_sheet import Sheet, _pressed
from transencoder.errors import InputError
from transencoder.grading import SCALES, ScoredPairs, choose
from transencoder.runs.files import read_checked_json, write_checked_json


def graded(path):
    with path.open() as file:
        return [(row["sentence1"], row["sentence2"], row["score"]) for row in csv.DictReader(file, delimiter="\t")]


def _leave_with(command):
    """Run a command in a fork, which finds all that it imports, with the terminal that it was given; does not return."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch.set_num_threads(1)  # a fork has no others
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        code = main(command)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.fixture
def typed(finished_run, tmp_path):
    """Run `grade` in a pseudo-terminal with keys; returns (exit code, what it showed, what it wrote)."""

    def run(*keys):
        keys = list(keys)
        output = tmp_path / "dev.tsv"
        command = ["grade", str(finished_run), "--n-pairs", "12", "--output", str(output)]
        process, ours = pty.fork()
        if process == 0:
            _leave_with(command)
        shown, n_asked = b"", 0
        while True:
            if not select.select([ours], [], [], 60)[0]:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                pytest.fail(f"nothing for a minute after {shown.decode(errors='replace')}")
            try:
                read = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            shown += read
            asked = shown.count(b" left\x1b") + shown.count(b"is left. u")
            if keys and asked > n_asked:  # one key a question
                n_asked = asked
                first, *more = keys.pop(0).split("|")
                os.write(ours, first.encode())
                for part in more:
                    time.sleep(0.2)
                    os.write(ours, part.encode())
        os.close(ours)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status), shown.decode(), graded(output) if output.exists() else []

    return run


def test_pairs_are_graded_taken_back_skipped_and_gone_on_with(typed, finished_run):
    pairs = choose(ScoredPairs.of_run(finished_run))[:12]
    code, shown, rows = typed("5", "x\x1b[5~|3", "u", "4", "s", "q")  # x and Page Up are no grades
    assert code == 0, shown
    assert rows == [(*pairs[0], "5"), (*pairs[1], "4")]
    assert "taken back: 3" in shown
    assert "1 of 12, about" in shown
    assert "2 of 12 pairs are graded; the same command goes on" in shown and "--n-pairs 12\r" in shown
    code, shown, rows = typed(*"0123450124", "u", "3", "q")  # 10 more; the skipped pair comes again
    assert code == 0, shown
    assert [row[:2] for row in rows] == pairs
    assert rows[-1][2] == "3", "also the last grade can be taken back"
    assert "on the graded pairs the base model has" in " ".join(shown.split()).lower()
    assert "gain over the first" in shown
    assert "--set dev=" in shown and "--set score_range=0,5" in shown and "--n-pairs 24" in shown


def test_ctrl_c_keeps_every_grade(typed, finished_run):
    code, shown, rows = typed("1", "2", "\x03")
    assert code == 130, shown
    assert "Traceback" not in shown
    assert [row[2] for row in rows] == ["1", "2"]


def test_ctrl_c_that_does_not_interrupt_the_system_call_ends_the_wait():
    """Was: where the signal came just before the call, a key was awaited for ever."""
    keys, ours = os.pipe()
    written = threading.Event()

    def press():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)  # this thread gets it, and the other's system call goes on
        time.sleep(3)
        written.set()
        os.write(ours, b"x")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            _pressed(keys)
        assert not written.is_set()
    finally:
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        os.close(keys)
        os.close(ours)


def test_without_a_terminal_a_file_is_the_way(finished_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(finished_run)
    assert main(["grade", run, "--output", "dev.tsv"]) == 2
    assert "--export FILE" in capsys.readouterr().err
    assert main(["grade", run, "--n-pairs", "12", "--export", "pairs.csv"]) == 0
    assert "12 pairs. When they are graded: transencoder grade" in capsys.readouterr().out
    assert main(["grade", run, "--import", "pairs.csv"]) == 2
    assert "pairs.csv has no grade yet" in capsys.readouterr().err
    with open("pairs.csv", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    with open("pairs.csv", "w") as file:
        writer = csv.DictWriter(file, ["sentence1", "sentence2", "score"])
        writer.writeheader()
        writer.writerows(row | {"score": i % 6} for i, row in enumerate(rows[:11]))
    assert main(["grade", run, "--n-pairs", "12", "--import", "pairs.csv", "--output", "dev.tsv"]) == 0
    out = capsys.readouterr().out
    assert "pairs.csv: 11 grades, now in dev.tsv too" in out
    assert "11 of 12 pairs are graded" in out
    assert "graded pairs" in out
    assert [float(score) for *_, score in graded(tmp_path / "dev.tsv")] == [i % 6 for i in range(11)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-pairs", "3"], "--n-pairs is 3"),
        (["--output", "a.jsonl"], "must end in .tsv or .csv"),
        (["--tool", "argilla"], "is for --export"),
        (["--import", "absent.csv"], "cannot be read"),
        (["--export", "pairs.tsv"], "for csv its name must end in .csv"),
        (["--export", "pairs.csv", "--tool", "argilla"], "for argilla its name must end in .json"),
        (["--export", __file__], "must end in .csv"),
        (["--output", "no/such/folder/dev.tsv"], "there is no folder"),
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


def test_an_export_is_not_written_over_grades(finished_run, tmp_path, capsys):
    (tmp_path / "graded.csv").write_text("sentence1,sentence2,score\na,b,3\n")
    assert main(["grade", str(finished_run), "--export", str(tmp_path / "graded.csv")]) == 2
    assert "which is there already" in capsys.readouterr().err
    assert "a,b,3" in (tmp_path / "graded.csv").read_text()


def test_a_session_that_began_earlier_does_not_overwrite_a_later_ones_grades(tmp_path):
    early, late = (
        Sheet(pairs=[("a", "b")], scale=SCALES["graded"], output=tmp_path / "dev.tsv", grades={}) for _ in "12"
    )
    late.grades[("a", "b")] = 2.0
    late.save()
    early.grades[("a", "b")] = 5.0
    with pytest.raises(InputError, match="was changed by somebody else"):
        early.save()
    assert graded(tmp_path / "dev.tsv") == [("a", "b", "2")]


def test_two_sessions_do_not_overwrite_each_other(tmp_path):
    sheet = Sheet(pairs=[("a", "b")], scale=SCALES["graded"], output=tmp_path / "dev.tsv", grades={("a", "b"): 1.0})
    sheet.save()
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t5\n")
    with pytest.raises(InputError, match="was changed by somebody else"):
        sheet.save()
    assert graded(tmp_path / "dev.tsv") == [("a", "b", "5")]


def test_grades_of_an_earlier_training_stay_in_the_file(finished_run, tmp_path, capsys):
    pairs = choose(ScoredPairs.of_run(finished_run))[:12]
    run = shutil.copytree(finished_run, tmp_path / "run")
    (run / "dev.tsv").write_text("sentence1\tsentence2\tscore\nold\tpair\t3\n")
    with (tmp_path / "graded.csv").open("w") as file:
        csv.writer(file).writerows(
            [("sentence1", "sentence2", "score"), *((*pair, i % 6) for i, pair in enumerate(pairs))]
        )
    assert main(["grade", str(run), "--n-pairs", "12", "--import", str(tmp_path / "graded.csv")]) == 0
    assert "1 grade of pairs that this run does not keep" in " ".join(capsys.readouterr().out.split())
    assert graded(run / "dev.tsv")[0] == ("old", "pair", "3")
    assert len(graded(run / "dev.tsv")) == 13


@pytest.mark.parametrize("dev", [None, {"start": 50.0, "bi": 60.0, "cross": 40.0}])
def test_report_and_cards_say_what_the_grades_say_if_nothing_else_does(dev, finished_run, tmp_path, capsys):
    pairs = choose(ScoredPairs.of_run(finished_run))[:12]
    run = shutil.copytree(finished_run, tmp_path / "run")
    record = read_checked_json(run / "result.json") | {"dev": dev}
    write_checked_json(run / "result.json", record)
    rows = [("sentence1", "sentence2", "score"), *((*pair, i % 2) for i, pair in enumerate(pairs))]
    with (tmp_path / "graded.csv").open("w") as file:
        csv.writer(file).writerows(rows)
    before = (run / "report.html").read_text(encoding="utf-8")
    import_it = ["grade", str(run), "--n-pairs", "12", "--scale", "binary", "--import", str(tmp_path / "graded.csv")]
    assert main(import_it) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    if dev is not None:
        assert page == before and "The report keeps to its tests or dev set." in capsys.readouterr().out
        return
    assert "cards say it too" in capsys.readouterr().out
    assert "on the graded pairs the base model has" in page and "is unknown without labels" not in page
    assert "drawn where the models disagree" in page and "12 rows of <code><bdi>graded pairs" in page
    assert "roc_auc" in page, "measured as in the terminal"
    for path in ("bi-encoder", "cross-encoder"):
        card = (run / path / "README.md").read_text(encoding="utf-8")
        assert "on the graded pairs" in card and "Nothing was measured" not in card
        assert "contain sentences of the test sets" in card
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text(encoding="utf-8") == page
    graded = read_checked_json(run / "graded.json")
    write_checked_json(run / "graded.json", graded | {"sample": "of other models"})
    assert main(["report", str(run)]) == 0
    assert "on the graded pairs" not in (run / "report.html").read_text(encoding="utf-8")


def test_the_next_commands_run_after_a_run_of_preset_standard(tiny_method, tmp_path, capsys):
    """Its recipe says that the last checkpoint is kept, and the grades are to choose."""
    run = train(tiny_method(dev=None, preset="standard", same_form=True)).folder
    pairs = choose(ScoredPairs.of_run(run))[:12]
    with (tmp_path / "graded.csv").open("w") as file:
        csv.writer(file).writerows(
            [("sentence1", "sentence2", "score"), *((*pair, i % 6) for i, pair in enumerate(pairs))]
        )
    capsys.readouterr()
    assert main(["grade", str(run), "--n-pairs", "12", "--import", str(tmp_path / "graded.csv")]) == 0
    shown = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line) for line in shown if line.startswith("  transencoder recipes run")]
    assert len(commands) == 2
    for number, (_, *command) in enumerate(commands):
        new = str(tmp_path / str(number))
        assert main([new if word == "NEW_FOLDER" else word for word in command]) == 0, capsys.readouterr().err
        assert "held_out_rows" not in json.loads((tmp_path / new / "result.json").read_text())["data"]["pairs"]


def test_texts_only_are_shown_and_cannot_be_mistaken_for_each_other(tmp_path):
    pair = ("first\nline two\x1b[2J", "x" * 100_000)
    sheet = Sheet(pairs=[pair], scale=SCALES["graded"], output=tmp_path / "dev.csv", grades={})
    shown = sheet._shown([pair]).renderable.plain
    assert "\x1b" not in shown
    assert "  1  first\n     line two" in shown
    assert len(shown) < 3000
