"""Fingerprints, duplicates, a text in numbers, and memory."""

import gzip
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, Value, concatenate_datasets

from transencoder.errors import InputError
from transencoder.pairs import drop_duplicates, find_duplicates, fingerprint, text_statistics

SRC = Path(__file__).parents[2] / "src"


def made(n_rows, seed=0):
    source = random.Random(seed)
    return Dataset.from_dict(
        {
            "sentence1": ["é" * source.randrange(9) + str(source.random()) for _ in range(n_rows)],
            "sentence2": [str(source.random()) for _ in range(n_rows)],
            "score": [source.random() for _ in range(n_rows)],
        }
    )


def test_fingerprint_does_not_depend_on_chunks_order_of_columns_or_arrow_types():
    whole = made(9000)
    expected = fingerprint(whole)
    assert fingerprint(concatenate_datasets([whole.select(range(13)), whole.select(range(13, 9000))])) == expected
    assert fingerprint(whole.select_columns(["score", "sentence2", "sentence1"])) == expected
    assert fingerprint(whole.select(range(8999, -1, -1)).select(range(8999, -1, -1))) == expected
    assert fingerprint(whole.cast_column("sentence1", Value("large_string"))) == expected
    encoded = whole.data.table.set_column(0, "sentence1", whole.data.table.column(0).dictionary_encode())
    assert fingerprint(Dataset(encoded.cast(encoded.schema))) == expected


def test_numbers_are_the_same_as_whole_numbers():
    assert fingerprint(Dataset.from_dict({"score": [1, 0]})) == fingerprint(Dataset.from_dict({"score": [1.0, -0.0]}))


CHANGES = {
    "a text": {"sentence1": ["ab", "d"], "sentence2": ["b", "d"]},
    "a boundary between columns": {"sentence1": ["ab", "c"], "sentence2": ["", "d"]},
    "a boundary between rows": {"sentence1": ["ac", ""], "sentence2": ["b", "d"]},
    "the order of rows": {"sentence1": ["c", "a"], "sentence2": ["d", "b"]},
    "the sides": {"sentence1": ["b", "d"], "sentence2": ["a", "c"]},
    "fewer rows": {"sentence1": ["a"], "sentence2": ["b"]},
    "a name": {"sentence1": ["a", "c"], "text": ["b", "d"]},
    "one more column": {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "score": [1.0, 2.0]},
    "a number for a text": {"sentence1": ["a", "c"], "sentence2": [0.0, 0.0]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_fingerprint_changes_with_the_content(change):
    base = Dataset.from_dict({"sentence1": ["a", "c"], "sentence2": ["b", "d"]})
    assert fingerprint(Dataset.from_dict(CHANGES[change])) != fingerprint(base)


def test_fingerprint_is_stable_over_versions():
    """Run folders hold fingerprints: another definition makes all their stages stale, so none by chance."""
    dataset = Dataset.from_dict({"sentence1": ["a", "é"], "sentence2": ["b", "d"], "score": [1.0, 0.5]})
    assert fingerprint(dataset) == "e0b8c29532af07904e13e0bcf9abda2873275a9bf57c6d08161193f22d035532"


def test_fingerprint_refuses_what_it_cannot_tell_apart():
    with pytest.raises(InputError, match="column 'text' has nulls"):
        fingerprint(Dataset.from_dict({"text": ["a", None]}))
    with pytest.raises(InputError, match="column 'ids' is of type list"):
        fingerprint(Dataset.from_dict({"ids": [[1, 2]]}))


def test_drop_duplicates_keeps_the_first_and_the_order():
    source = random.Random(1)
    pairs = [(str(source.randrange(60)), str(source.randrange(60))) for _ in range(9000)]
    sides = {"sentence1": [a for a, _ in pairs], "sentence2": [b for _, b in pairs]}
    dataset = Dataset.from_dict(sides | {"score": [float(i) for i in range(9000)]})
    kept = drop_duplicates(dataset)
    assert kept["score"][:] == [row for row, pair in enumerate(pairs) if pairs.index(pair) == row]
    assert drop_duplicates(kept) is kept
    assert len(drop_duplicates(dataset.select([]))) == 0


def test_pairs_with_sides_swapped_or_shifted_are_not_duplicates():
    dataset = Dataset.from_dict({"sentence1": ["a", "b", "a b", "a"], "sentence2": ["b", "a", "c", "b c"]})
    assert drop_duplicates(dataset) is dataset


@pytest.mark.parametrize("n_hashes", [1, 2, 50])
def test_rows_of_one_hash_are_compared(n_hashes):
    """With a hash this bad nearly all rows collide; the answer must stay exact."""
    source = random.Random(2)
    texts = [str(source.randrange(40)) for _ in range(500)]
    hashes = np.array([int(text) % n_hashes for text in texts], dtype=np.uint64)
    rows, firsts = find_duplicates(Dataset.from_dict({"text": texts}), ["text"], hashes)
    assert rows.tolist() == [row for row, text in enumerate(texts) if texts.index(text) < row]
    assert firsts.tolist() == [texts.index(texts[row]) for row in rows]


def test_a_chunked_table_with_offsets_is_hashed_by_its_rows():
    table = pa.table({"text": ["x", "one", "two", "y"]}).slice(1, 2)
    assert fingerprint(Dataset(table)) == fingerprint(Dataset.from_dict({"text": ["one", "two"]}))


def test_pairs_are_counted_text_by_text():
    sides = {"sentence1": ["a b", "a b", "ab", "x"], "sentence2": ["c", "c", "ab", "a b"]}
    found = text_statistics(Dataset.from_dict(sides | {"label": [0.1, 0.2, 0.3, 0.4]}))
    assert (found["rows"], found["texts"], found["distinct_texts"]) == (4, 8, 4)
    assert (found["most_repeated"], found["repeated_rows"], found["same_text_rows"]) == (3, 1, 1)
    assert (found["characters"], found["longest"], found["median_length"]) == (16, 3, 2.0)
    assert found["letters"] == {"Latin": 13}


def test_pairs_in_the_other_order_are_no_repetition():
    assert text_statistics(Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["b", "a"]}))["repeated_rows"] == 0


def test_scripts_are_those_of_unicode():
    found = text_statistics(Dataset.from_dict({"text": ["Γειά 123", "שלום", "क़ा", "東京タワー", "naïve 👋"]}))
    assert found["letters"] == {"Latin": 5, "Greek": 4, "Hebrew": 4, "Devanagari": 3, "Han": 2, "Katakana": 2}


def test_every_text_is_in_the_histogram():
    lengths = [*range(1, 300), 5000, 100_000]
    found = text_statistics(Dataset.from_dict({"text": ["x" * length for length in lengths]}))
    assert sum(found["length_counts"]) == len(lengths)
    assert len(found["length_edges"]) == len(found["length_counts"]) + 1
    assert found["longest"] == 100_000
    assert found["length_counts"][-1] == 2  # the last one has all longer texts


def test_no_text_at_all():
    found = text_statistics(Dataset.from_dict({"text": []}))
    assert found["texts"] == found["longest"] == sum(found["length_counts"]) == 0


MEMORY_SCRIPT = """
import sys, threading, time
import datasets, pyarrow.parquet
from transencoder.pairs import fingerprint, read_pairs

def anonymous_kb():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))

peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.01):
        peak = max(peak, anonymous_kb())

before = anonymous_kb()
thread = threading.Thread(target=watch)
thread.start()
dataset = read_pairs(sys.argv[1])
fingerprint(dataset)
done.set()
thread.join()
print(len(dataset), (peak - before) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="anonymous memory is read from Linux's /proc")
@pytest.mark.parametrize("name", ["f.tsv", "f.jsonl.gz", "f.parquet"])
def test_memory_does_not_grow_with_the_texts(name, tmp_path):
    """200,000 pairs of 600 characters (120 MB): at most 16 bytes a sentence and 50 MB of anonymous memory."""
    n_rows, path, filler = 200_000, tmp_path / name, "x" * 290
    if name == "f.parquet":
        sides = {side: [f"{row} {side} {filler}" for row in range(n_rows)] for side in ("sentence1", "sentence2")}
        Dataset.from_dict(sides).to_parquet(path)
    elif name == "f.tsv":
        path.write_text("".join(f"{row} a {filler}\t{row} b {filler}\n" for row in range(n_rows)))
    else:
        line = '{{"sentence1": "{0} a {1}", "sentence2": "{0} b {1}"}}\n'
        with gzip.open(path, "wt", compresslevel=1) as file:
            file.writelines(line.format(row, filler) for row in range(n_rows))
    script = [sys.executable, "-c", MEMORY_SCRIPT, str(path)]
    environment = {
        "PYTHONPATH": str(SRC),
        "TRANSENCODER_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    printed = subprocess.run(script, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
    rows, grown = map(int, printed.split())
    assert rows == n_rows
    assert grown <= 2 * n_rows * 16 + 50e6
