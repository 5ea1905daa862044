"""Parts of shards: equal whoever makes them, kept over an interruption, and joined only where all of them fit."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from transencoder.errors import InputError
from transencoder.shards import Parts, Shard, UnfitError

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


@pytest.fixture
def parts(tmp_path):
    """Parts of ten rows whose numbers are theirs doubled; what `make` computes is counted."""

    def of(**changes):
        options = {
            "folder": tmp_path / "parts",
            "n_rows": len(ROWS),
            "rows_hash": lambda rows: ROWS[rows].tobytes().hex(),
            "maker": {"models": ["a"], "max_length": None},
            "remedy": "type {shard}",
        }
        return Parts(**options | changes)

    return of


def doubled(seen=None):
    def compute(rows):
        if seen is not None:
            seen.append((rows.start, rows.stop))
        return {"values": 2 * ROWS[rows], "row": np.arange(10, dtype=np.int32)[rows]}

    return compute


def assert_joined(arrays):
    np.testing.assert_array_equal(arrays["values"], 2 * ROWS)
    np.testing.assert_array_equal(arrays["row"], range(10))


@pytest.mark.parametrize(("n_rows", "n"), [(10, 1), (10, 3), (10, 10), (1000, 7)])
def test_shards_are_all_rows_once_and_nearly_equal(n_rows, n):
    slices = [Shard(number, n).rows(n_rows) for number in range(1, n + 1)]
    assert [row for rows in slices for row in range(n_rows)[rows]] == list(range(n_rows))
    sizes = [rows.stop - rows.start for rows in slices]
    assert max(sizes) - min(sizes) <= 1


def test_parts_are_joined_whoever_made_them_and_made_once(parts):
    for shard in (Shard(3, 3), Shard(1, 3)):
        parts().make(shard, doubled())
    seen = []
    parts().make_all(doubled(seen))
    assert seen == [(3, 6)], "the folder says how many shards there are"
    assert_joined(parts().join())
    alone = parts(folder=parts().folder.parent / "alone")
    alone.make(Shard(1, 3), doubled())
    alone.make_all(doubled())
    assert [path.read_bytes() for path in sorted(alone.folder.iterdir())] == [
        path.read_bytes() for path in sorted(parts().folder.iterdir())
    ]


@pytest.mark.parametrize(("n_rows", "n_shards"), [(1, 1), (257, 2), (50_000, 16), (1_000_000, 16), (1_100_000, 32)])
@pytest.mark.parametrize("n_processes", [1, 2, 3])
def test_shards_do_not_depend_on_how_many_processes_there_are(parts, monkeypatch, n_rows, n_shards, n_processes):
    monkeypatch.setattr("transencoder.distributed.world_size", lambda: n_processes)
    assert len(parts(n_rows=n_rows, shard_rows=1 << 16).shards()) == n_shards


@pytest.mark.parametrize(("n_rows", "n_shards"), [(1, 1), (1000, 3), (100_000, 3), (200_000, 6)])
def test_shards_may_be_as_many_as_processes(parts, n_rows, n_shards):
    assert len(parts(n_rows=n_rows, shard_rows=1 << 16, fewest=3).shards()) == n_shards


def test_an_interruption_loses_one_part(parts):
    seen = []

    def stopped(rows):
        if len(seen) == 2:
            raise KeyboardInterrupt
        return doubled(seen)(rows)

    with pytest.raises(KeyboardInterrupt):
        parts(shard_rows=4).make_all(stopped)
    parts().make_all(doubled(seen))
    assert seen == [(0, 3), (3, 6), (6, 10)]


def test_what_is_missing_foreign_or_damaged_is_named(parts, caplog):
    for number in (2, 3, 4):
        maker = {"models": ["b"], "max_length": 64} if number == 2 else parts().maker
        parts(maker=maker).make(Shard(number, 5), doubled())
    path = parts().folder / "3-of-5.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    (parts().folder / "5-of-5.safetensors").write_text("no part")
    (parts().folder / "0-of-5.safetensors").mkdir()  # none of theirs, as is what has more shards than rows
    (parts().folder / "1-of-3000000.safetensors").touch()
    with pytest.raises(InputError) as refused:
        parts().join()
    first, second, third, fifth = str(refused.value).split("; ")
    assert first.endswith("1-of-5.safetensors is missing: type 1/5")
    assert second.endswith("2-of-5.safetensors is of other max_length and models: type 2/5")
    assert third.endswith("3-of-5.safetensors has changed, its sha256 is not the recorded one: type 3/5")
    assert "5-of-5.safetensors cannot be read (" in fifth
    parts().make_all(doubled())
    assert "2-of-5.safetensors is of other max_length and models; it is made anew" in caplog.text
    assert_joined(parts().join(parts().folder))


def test_other_rows_make_another_part(parts):
    parts().make(Shard(1, 2), doubled())
    parts().make_all(doubled())
    with pytest.raises(InputError, match=r"2-of-2.safetensors is of other rows: type 2/2$"):
        parts(rows_hash=lambda rows: (ROWS + (ROWS > 18))[rows].tobytes().hex()).join()


def test_numbers_that_do_not_fit_are_refused(parts):
    with pytest.raises(InputError, match="11 shards of 10 rows would be empty"):
        parts().make(Shard(1, 11), doubled())
    parts().make(Shard(1, 2), doubled())
    parts().make(Shard(1, 3), doubled())
    with pytest.raises(InputError, match="has parts of 2 and of 3 shards; .* such as 1-of-2.safetensors"):
        parts().join()
    with pytest.raises(InputError, match="none has no parts: type I/N"):
        parts(folder=parts().folder / "none").join()


@pytest.mark.parametrize("metadata", ["[1]", "[" * 100_000, "{", '"a"'])
def test_a_hostile_record_is_refused_in_words(parts, metadata):
    parts().make(Shard(1, 1), doubled())
    save_file({"values": ROWS}, parts().folder / "1-of-1.safetensors", {"part": metadata})
    with pytest.raises(InputError, match=r"1-of-1.safetensors cannot be read \(.*\): type 1/1"):
        parts().join()


@pytest.mark.parametrize(
    "arrays", [{"../escaped": ROWS}, {"values": ROWS[:3]}, {"other": ROWS}, {"values": ROWS > 0}, {}]
)
def test_parts_of_other_arrays_are_refused(parts, arrays, tmp_path):
    whole = parts(shard_rows=5)
    whole.make_all(doubled())
    whole.folder.joinpath("2-of-2.safetensors").unlink()
    whole.make(Shard(2, 2), lambda rows: {name: each[: rows.stop - rows.start] for name, each in arrays.items()})
    with pytest.raises(InputError, match="2-of-2.safetensors (holds other arrays|cannot be read|has changed)"):
        whole.join(tmp_path)
    assert not (tmp_path.parent / "escaped.npy").exists()


def test_a_part_is_read_alone(parts):
    parts().make(Shard(2, 2), doubled())
    np.testing.assert_array_equal(parts().read(Shard(2, 2))[0]["values"], 2 * ROWS[5:])
    with pytest.raises(UnfitError, match="1-of-2.safetensors is missing$"):
        parts().read(Shard(1, 2))


def test_what_parts_were_computed_in_may_differ_and_is_told(parts, caplog):
    for number, kind in ((1, "bf16"), (2, "fp32")):
        parts(computed_in=kind).make(Shard(number, 2), doubled())
    assert_joined(parts().join())
    assert "parts were computed in bf16 and fp32; they differ in their last digits" in caplog.text


def test_bad_rows_are_named_by_the_first_of_their_shard(parts):
    def refuse(rows):
        raise InputError("row 1 is bad")

    with pytest.raises(InputError, match="^shard 2/2, rows counted from 5: row 1 is bad"):
        parts().make(Shard(2, 2), refuse)
    with pytest.raises(InputError, match="^row 1 is bad"):
        parts().make(Shard(1, 1), refuse)
