"""What people hold in Python becomes rows: lists, tuples, dicts, tables, generators, paths."""

from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from datasets import Dataset, DatasetDict, IterableDataset

import transencoder
from transencoder import InputError, Member, SimCSE, TransEncoder
from transencoder.in_memory import as_source

TEXTS = ["balo bama", "dalo", "gelo lelo"]
PAIRS = [("balo", "bama"), ("dalo", "gelo")]
TABLE = {"text": TEXTS}
ROWS = [{"text": text} for text in TEXTS]


@pytest.mark.parametrize(
    "held",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        ROWS,
        TABLE,
        pandas.Series(TEXTS, index=[5, 6, 7]),
        pandas.DataFrame(TABLE, index=[5, 6, 7]),
        polars.Series(TEXTS),
        polars.DataFrame(TABLE),
        pyarrow.table(TABLE),
        Dataset.from_dict(TABLE),
        DatasetDict(train=Dataset.from_dict(TABLE)),
        IterableDataset.from_generator(lambda: iter(ROWS)),
        (text for text in TEXTS),
    ],
    ids=lambda held: f"{type(held).__module__.partition('.')[0]}-{type(held).__name__}",
)
def test_texts_are_taken_as_people_hold_them(held):
    found = as_source(held)
    assert found.column_names == ["text"] and found["text"][:] == TEXTS


def test_tuples_are_pairs_and_a_third_item_is_the_score():
    assert as_source(PAIRS).to_dict() == {"sentence1": ["balo", "dalo"], "sentence2": ["bama", "gelo"]}
    assert as_source([(*pair, 0.5) for pair in PAIRS])["score"][:] == [0.5, 0.5]


def test_a_path_is_a_name():
    assert as_source(Path("data") / "pairs.tsv") == "data/pairs.tsv"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (3, "texts is of type int; give a path"),
        ({"a", "b"}, "of type set"),
        (b"balo", "of type bytes"),
        ([], "texts has no rows"),
        ([1, 2], "texts has 1 as its first row"),
        (["balo", 3], r"row 2 of texts is 3 \(int\), and the first is 'balo' \(str\)"),
        ([("balo", "bama"), ("dalo",)], r"row 2 of texts is \['dalo'\]; the first has 2 items"),
        ([("balo", "bama"), "balo"], "row 2 of texts is 'balo'"),
        ({"a": ["balo"], "b": ["balo", "bama"]}, "texts cannot be read as rows"),
        (
            DatasetDict(train=Dataset.from_dict(TABLE), test=Dataset.from_dict(TABLE)),
            r"the splits train, test; give one",
        ),
    ],
)
def test_anything_else_is_refused_by_its_name(held, message):
    with pytest.raises(InputError, match=message):
        as_source(held, "texts")


def test_a_missing_text_is_the_readers_to_refuse_with_its_row():
    with pytest.raises(InputError, match="<dataset>:2"):
        transencoder.read_sentences(["balo", None])
    for rows in ([("a", "b"), None], [{"sentence1": "a", "sentence2": "b"}, None]):
        with pytest.raises(InputError, match=r"row 2 of .* is None \(NoneType\), and the first is"):
            transencoder.read_pairs(rows)


# Configs


def test_a_config_takes_what_python_people_type():
    config = TransEncoder(
        sentences=TEXTS, start="minilm", bi={"epochs": 1}, output=Path("runs") / "mine", tests=["sts12", Path("t.tsv")]
    )
    assert config.members == (Member(start="minilm"),)
    assert (config.bi.epochs, config.output, config.tests) == (1, "runs/mine", ("sts12", "t.tsv"))
    assert config.sentences["text"][:] == TEXTS
    assert SimCSE(sentences=PAIRS, start="minilm", fit={"epochs": 2}).fit.batch_size == 64, "others keep their defaults"


@pytest.mark.parametrize(
    "given",
    [["minilm", {"start": "other", "weight": 2.0}], (Member(start="minilm"), Member(start="other", weight=2.0))],
)
def test_members_are_named_or_described(given):
    assert TransEncoder(pairs=PAIRS, members=given).members == (
        Member(start="minilm"),
        Member(start="other", weight=2.0),
    )


def test_the_base_model_has_a_default():
    assert TransEncoder(pairs=PAIRS).members == (Member(start="minilm"),)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": "a", "members": ["b"]}, "start is 'a' and members are given too"),
        ({"members": [3]}, "members.1 is 3; give a model"),
        ({"members": [{"start": "a", "wait": 2}]}, r"no setting members\.1\.wait; the nearest is members\.1\.weight"),
        ({"bi": {"epoch": 1}}, r"no setting bi\.epoch; the nearest is bi\.epochs"),
        ({"sentence": TEXTS}, "no setting sentence; the nearest is sentences"),
        ({"texts": TEXTS}, "no setting texts; the nearest is sentences"),
        ({"num_train_epochs": 1}, r'the nearest is bi=\{"epochs": \.\.\.\}'),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest(settings, message):
    with pytest.raises(InputError, match=message):
        transencoder.train(**({"pairs": PAIRS} | settings))


def test_what_pandas_writes_for_no_text_is_none():
    assert as_source(["a b", float("nan")])["text"][:] == ["a b", None]
