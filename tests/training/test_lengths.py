"""What training does not read of the texts is said, and `max_length` sets all lengths at once."""

from pathlib import Path

import pytest
from datasets import Dataset

from transencoder import MLM, InputError, SimCSE, plan, train
from transencoder.models import Prompts
from transencoder.training.lengths import Lengths

LONG = " ".join(["balo"] * 100)


def test_lengths_are_those_of_the_models_own_tokens(bi, tiny_bi_encoder):
    texts = ["balo", "balo bama", LONG]
    own = [len(ids) for ids in bi.tokenizer(texts)["input_ids"]]
    found = Lengths.of(Path(tiny_bi_encoder), Dataset.from_dict({"text": texts}))
    assert found.texts.tolist() == own
    assert found.pairs.tolist() == [own[0] + own[2], own[1] + own[0], own[2] + own[1]], "of neighbours"
    paired = Lengths.of(Path(tiny_bi_encoder), Dataset.from_dict({"sentence1": texts, "sentence2": texts[::-1]}))
    assert (len(paired.texts), paired.pairs.tolist()) == (6, [own[0] + own[2], 2 * own[1], own[2] + own[0]])
    documents = Lengths.of(
        Path(tiny_bi_encoder), Dataset.from_dict({"text": texts}), Dataset.from_dict({"text": [LONG]})
    )
    assert documents.pairs.tolist() == [own[0] + own[2]], "a query with a document"


def test_prompts_are_read_too(bi, tiny_bi_encoder):
    texts, prompt = ["balo", LONG], "dalo bama kama: "
    rows = Dataset.from_dict({"sentence1": texts, "sentence2": texts[::-1]})
    own, with_prompt = (
        [len(ids) for ids in bi.tokenizer(each)["input_ids"]] for each in (texts, [prompt + t for t in texts])
    )
    found = Lengths.of(Path(tiny_bi_encoder), rows, prompts=Prompts(prompt))
    assert found.texts.tolist() == [*with_prompt, *with_prompt[::-1]] and found.pairs.tolist() == [sum(own)] * 2
    found = Lengths.of(Path(tiny_bi_encoder), rows, prompts=Prompts(prompt, ""))
    assert found.texts.tolist() == [*with_prompt, *own[::-1]], "a query with a prompt, a document without"


def test_auto_reads_more_than_the_prompt(tiny_method, tiny_bi_encoder):
    members = [{"start": tiny_bi_encoder, "prompt": each} for each in ("dalo " * 8, None)]
    prompted, bare = (plan(tiny_method(members=(each,), max_length="auto")).config for each in members)
    assert prompted.bi.max_length > 8 + 4 and bare.bi.max_length < prompted.bi.max_length
    assert prompted.cross.max_length == bare.cross.max_length


def test_few_long_texts_are_told_in_the_plan_and_many_are_a_warning(tiny_bi_encoder, tmp_path, caplog):
    def planned(n_long, **settings):
        caplog.clear()
        texts = [f"balo bama {i}" for i in range(100 - n_long)] + [f"{LONG} {i}" for i in range(n_long)]
        found = plan(SimCSE(sentences=texts, start=tiny_bi_encoder, output=str(tmp_path / "run"), **settings))
        return found, caplog.text

    few, said = planned(3)
    assert "3 % of the texts are longer than the 32 tokens that training reads" in str(few) and "cut off" not in said
    many, said = planned(10)
    assert "10 % of the texts" in str(many) and "--max-length auto reads 98 of 100 whole" in said
    auto, said = planned(10, max_length="auto")
    assert auto.config.fit.max_length == 64, "what the base model reads"
    assert "10 % of the texts are longer than the 64 tokens" in str(auto) and "cut off" in said


def test_a_run_learns_and_records_the_length_that_auto_comes_to(tiny_method, tmp_path):
    trained = train(tiny_method(max_length="auto", output=str(tmp_path / "run")))
    config = trained.result["config"]
    assert config["max_length"] == "auto" and 1 < config["bi"]["max_length"] < config["cross"]["max_length"] <= 64
    again = train(tiny_method(max_length="auto", output=str(tmp_path / "run")))
    assert all(stage["reused"] for stage in again.result["stages"])


def test_a_number_is_for_texts_and_twice_as_many_for_pairs(tiny_method, tmp_path):
    found = plan(tiny_method(max_length=20, output=str(tmp_path / "run"))).config
    assert (found.bi.max_length, found.cross.max_length) == (20, 40)
    with pytest.raises(InputError, match="cross.max_length is 200, but .* reads at most 128"):
        plan(tiny_method(max_length=100, output=str(tmp_path / "run")))
    with pytest.raises(InputError, match="max_length is 0; it must be at least 1"):
        tiny_method(max_length=0)
    with pytest.raises(InputError, match="reads parts of texts; give fit.max_length"):
        MLM(sentences=["balo"], from_scratch=True, max_length="auto")
