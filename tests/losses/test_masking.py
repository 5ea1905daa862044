"""Masks at random: which tokens are chosen, and what becomes of them."""

import pytest
import torch

from transencoder.losses.masked_words import mask_tokens

N_VOCABULARY, MASK, SPECIAL = 1000, 4, [0, 1, 2, 3, 4]


def masked(mask_ratio: float, n_rows: int = 400):
    torch.manual_seed(0)
    ids = torch.randint(5, N_VOCABULARY, (n_rows, 30))
    ids[:, 0], ids[:, 20] = 2, 3
    attention = (torch.arange(30) <= 20).long().repeat(n_rows, 1)
    return (
        ids,
        attention,
        *mask_tokens(ids, attention, mask_ratio, mask_token_id=MASK, special_ids=SPECIAL, n_vocabulary=N_VOCABULARY),
    )


def test_of_the_chosen_four_fifths_are_masked_and_a_tenth_replaced():
    ids, _, out, is_chosen, _ = masked(0.5)
    chosen, before = out[is_chosen], ids[is_chosen]
    assert (chosen == MASK).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (chosen == before).float().mean().item() == pytest.approx(0.1, abs=0.015)
    assert ((chosen != MASK) & (chosen != before)).float().mean().item() == pytest.approx(0.1, abs=0.015)
    assert torch.equal(out[~is_chosen], ids[~is_chosen])


@pytest.mark.parametrize("mask_ratio", [0.0, 0.15, 0.3, 1.0])
def test_so_many_words_are_chosen_and_never_special_tokens_or_padding(mask_ratio):
    ids, attention, _, is_chosen, is_text = masked(mask_ratio)
    assert torch.equal(is_text, attention.bool() & (ids > 4))
    assert not (is_chosen & ~is_text).any()
    assert is_chosen[is_text].float().mean().item() == pytest.approx(mask_ratio, abs=0.015)
