"""Every row once an epoch, in an order that seed and epoch decide, with less padding; collators give the model's features."""

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset

from transencoder.batching import BiCollator, CrossCollator, LengthBucketSampler
from transencoder.tokens import TokenCache

SENTENCE1 = ["balo bama", "dalo dama felo fema kama", "balo bama", "kama"]
SENTENCE2 = ["dalo", "balo bama", "gelo lelo memo dioma tiolo", "x"]


@pytest.fixture(scope="module")
def pairs():
    return Dataset.from_dict({"sentence1": SENTENCE1, "sentence2": SENTENCE2})


@pytest.fixture(params=["right", "left"])
def side(request):
    return request.param


def skewed_lengths(n: int) -> np.ndarray:
    return np.random.default_rng(0).geometric(0.06, n).clip(4, 128).astype(np.uint16)


def padded_tokens(lengths: np.ndarray, batches: list[list[int]]) -> int:
    return sum(len(rows) * int(lengths[rows].max()) for rows in batches)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("window_batches", [1, 4, 64])
def test_every_row_is_met_once_an_epoch(n, window_batches):
    sampler = LengthBucketSampler(skewed_lengths(n), 32, window_batches, seed=0)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler) == -(-n // 32)
        assert sorted(row for rows in batches for row in rows) == list(range(n))
        assert sum(len(rows) < 32 for rows in batches) == (n % 32 > 0)


@pytest.mark.parametrize(("n", "n_processes"), [(104, 2), (100, 2), (92, 2), (5, 4), (1000, 3)])
def test_processes_share_full_batches_equally_and_meet_every_row(n, n_processes):
    sampler = LengthBucketSampler(skewed_lengths(n), 8, 4, seed=0, n_processes=n_processes)
    shares = [list(BatchSamplerShard(sampler, n_processes, rank, even_batches=False)) for rank in range(n_processes)]
    n_steps = -(-n // (8 * n_processes))
    assert [len(share) for share in shares] == [n_steps] * n_processes
    batches = [rows for share in shares for rows in share]
    assert {len(rows) for rows in batches} == {8}
    assert {row for rows in batches for row in rows} == set(range(n))
    assert len(sampler) == n_steps * n_processes


def test_seed_and_epoch_decide_the_batches():
    def batches(seed: int, epoch: int) -> list[list[int]]:
        sampler = LengthBucketSampler(skewed_lengths(300), 16, 8, seed)
        sampler.set_epoch(epoch)
        np.random.seed(epoch + 17)  # noqa: NPY002 - other code's draws must not matter
        assert list(sampler) == (found := list(sampler)), "a second pass of one epoch, as after a resume"
        return found

    assert batches(0, 0) == batches(0, 0)
    assert batches(0, 1) == batches(0, 1)
    different = [batches(0, 0), batches(0, 1), batches(1, 0), batches(1, 1)]
    assert len({str(found) for found in different}) == 4


def test_window_of_one_batch_is_a_plain_shuffle():
    lengths = skewed_lengths(300)
    flat = [row for rows in LengthBucketSampler(lengths, 16, 1, 3) for row in rows]
    assert flat != list(range(300))
    assert flat == [row for rows in LengthBucketSampler(lengths[::-1], 16, 1, 3) for row in rows], (
        "lengths play no part"
    )


def test_buckets_need_fewer_tokens_than_random_batches():
    lengths = skewed_lengths(4096)
    plain = padded_tokens(lengths, list(LengthBucketSampler(lengths, 32, 1, 0)))
    bucketed = padded_tokens(lengths, list(LengthBucketSampler(lengths, 32, 64, 0)))
    assert int(lengths.sum()) <= bucketed < 0.5 * plain


def test_rows_of_a_batch_come_from_one_window():
    lengths = skewed_lengths(512)
    order = np.arange(512, dtype=np.int32)
    np.random.default_rng((5, 0)).shuffle(order)
    for number, rows in enumerate(LengthBucketSampler(lengths, 8, 4, 5)):
        window = order[number // 4 * 32 :][:32]
        assert set(rows) <= set(window.tolist())
        ordered = np.sort(lengths[window])
        assert lengths[rows].tolist() in ordered.reshape(4, 8).tolist()


def test_batches_are_not_met_from_short_to_long():
    lengths = skewed_lengths(2048)
    means = [lengths[rows].mean() for rows in LengthBucketSampler(lengths, 32, 64, 0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5


def test_rows_of_a_group_come_together():
    groups = np.random.default_rng(3).integers(0, 250, 1000)
    lengths = (8 + groups % 2).astype(np.uint16)
    samplers = [LengthBucketSampler(lengths, 32, 64, 0, groups=each) for each in (None, groups)]
    alone, together = (list(sampler) for sampler in samplers)
    assert sorted(row for rows in together for row in rows) == list(range(1000))
    assert padded_tokens(lengths, together) == padded_tokens(lengths, alone)

    def kinds(batches: list[list[int]]) -> list[frozenset[int]]:
        return [frozenset(groups[rows].tolist()) for rows in batches]

    assert sum(map(len, kinds(together))) <= 250 + 31 < 0.4 * sum(map(len, kinds(alone)))
    assert together == list(samplers[1])
    samplers[1].set_epoch(1)
    assert not set(kinds(together)) & set(kinds(list(samplers[1]))), "other groups meet in each epoch"


def test_groups_larger_than_a_window_and_of_several_windows_are_met_once():
    groups = np.repeat([0, 1, 2], [70, 1, 29])
    sampler = LengthBucketSampler(np.full(100, 8, np.uint16), 8, 4, seed=0, groups=groups)
    batches = list(sampler)
    assert sorted(row for rows in batches for row in rows) == list(range(100))
    assert len(batches) == len(sampler) == 13
    assert sum(len(set(groups[rows].tolist())) > 1 for rows in batches) <= 4, "only batches at the ends of groups"
    assert not list(LengthBucketSampler(np.empty(0, np.uint16), 8, 4, 0, groups=np.empty(0, np.int32)))


def test_random_batches_know_no_groups():
    lengths, groups = skewed_lengths(300), np.arange(300) // 10
    assert list(LengthBucketSampler(lengths, 16, 1, 3, groups=groups)) == list(LengthBucketSampler(lengths, 16, 1, 3))


def test_bi_features_are_what_preprocess_makes(bi, pairs, tmp_path, side):
    bi.tokenizer.padding_side = side
    collate = BiCollator([TokenCache(tmp_path).sentences(bi, pairs, "balo: ")])
    rows = [2, 0, 3]
    batch = collate([{"row": row, "label": row / 10} for row in rows])
    torch.testing.assert_close(batch.pop("label"), torch.tensor([0.2, 0.0, 0.3]))
    both = bi.preprocess([texts[row] for texts in (SENTENCE1, SENTENCE2) for row in rows], prompt="balo: ")
    expected = {
        f"sentence{i + 1}_{name}": values.chunk(2)[i] if isinstance(values, torch.Tensor) else values
        for name, values in both.items()
        for i in (0, 1)
    }
    assert set(batch) == set(expected)
    for name, values in expected.items():
        assert torch.equal(batch[name], values) if isinstance(values, torch.Tensor) else batch[name] == values


def test_a_teachers_embeddings_are_labels_as_sentence_transformers_takes_them(bi, pairs, tmp_path):
    """(batch, sides, dim), and (batch, dim) of single sentences."""
    cache, rows = TokenCache(tmp_path), [{"row": 2}, {"row": 0}]
    both = cache.sentences(bi, pairs)
    teacher_embeddings = np.arange(2.0 * len(both.tokens), dtype=np.float32).reshape(-1, 2)
    batch = BiCollator([both], teacher_embeddings)(rows)
    torch.testing.assert_close(batch["label"], torch.from_numpy(teacher_embeddings[both.index[[2, 0]]]))
    assert batch["label"].shape == (2, 2, 2)
    one = cache.sentences(bi, pairs.select_columns("sentence1"))
    batch = BiCollator([one], teacher_embeddings)(rows)
    torch.testing.assert_close(batch["label"], torch.from_numpy(teacher_embeddings[one.index[[2, 0], 0]]))
    assert not [name for name in batch if name.startswith("sentence2")]


@pytest.mark.parametrize("rows", [[0, 1], [4, 6], [3, 6, 1, 4, 0], [5, 2]])
def test_cross_features_are_what_preprocess_makes(cross, pairs, tmp_path, side, rows):
    """Rows from 4 on are the pairs turned round; they stand beside the others in one batch."""
    cross.tokenizer.padding_side = side
    cross.tokenizer.pad_token = "[MASK]"  # an id that is not 0
    cache = TokenCache(tmp_path)
    tables = [cache.pairs(cross, pairs, swapped) for swapped in ([False, True] if max(rows) > 3 else [False])]
    batch = CrossCollator(tables)([{"row": row, "label": 0.5} for row in rows])
    assert torch.equal(batch.pop("label"), torch.full((len(rows),), 0.5))
    texts = [(SENTENCE1[row], SENTENCE2[row]) if row < 4 else (SENTENCE2[row - 4], SENTENCE1[row - 4]) for row in rows]
    expected = {f"pair_{name}": values for name, values in cross.preprocess(texts).items()}
    assert set(batch) == set(expected)
    for name, values in expected.items():
        assert torch.equal(batch[name], values) if isinstance(values, torch.Tensor) else batch[name] == values
