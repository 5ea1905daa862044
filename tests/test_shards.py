"""Parts of shards: equal whoever makes them, kept over an interruption, and joined only where all of them fit."""

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.shards import Parts, Shard, read_shard

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


@pytest.fixture
def parts(tmp_path):
    """Parts of ten rows whose numbers are theirs doubled; what `make` computes is counted."""

    def of(**changes):
        options = {
            "folder": tmp_path / "parts",
            "n_rows": len(ROWS),
            "rows": lambda rows: ROWS[rows].tobytes().hex(),
            "maker": {"models": ["a"], "max_length": None},
            "again": "type {shard}",
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


@pytest.mark.parametrize("text", ["3", "0/4", "5/4", "a/b", "1/2/3", "-1/4", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(InputError, match="such as 3/100"):
        read_shard(text)
    assert str(read_shard("3/100")) == "3/100"


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
    parts().remove()
    assert not parts().folder.exists()


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
        parts(rows=lambda rows: (ROWS + (ROWS > 18))[rows].tobytes().hex()).join()


def test_numbers_that_do_not_fit_are_refused(parts):
    with pytest.raises(InputError, match="11 shards of 10 rows would be empty"):
        parts().make(Shard(1, 11), doubled())
    parts().make(Shard(1, 2), doubled())
    parts().make(Shard(1, 3), doubled())
    with pytest.raises(InputError, match="has parts of 2 and of 3 shards"):
        parts().join()
