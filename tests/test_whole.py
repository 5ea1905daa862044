"""Models that are damaged are refused before anything is trained or scored: by name, with the file and what to do."""

import json
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoTokenizer

from transencoder import Member
from transencoder.cli import main
from transencoder.encoders import fetch, load_cross
from transencoder.errors import InputError
from transencoder.training import plan


def _cut_short(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _change_config(**changes):
    def change(folder):
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | changes))

    return change


def _write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def _remove_tokenizer(folder):
    for path in folder.glob("*token*"):
        path.unlink()


def _keep_vocabulary_only(folder):
    vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
    _remove_tokenizer(folder)
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)))


DAMAGE = {
    "truncated weights": (_cut_short, r"model\.safetensors is no safetensors file.*not fully covered.*[Dd]ownload"),
    "garbage weights": (_write("model.safetensors", b"\xffgarbage" * 99), r"model\.safetensors is no safetensors file"),
    "invalid config": (
        _write("config.json", b"{'a"),
        r"config\.json is not JSON that can be used \(.*line 1.*\)\. Download",
    ),
    "unknown kind": (_change_config(model_type="none-such"), r"no tokenizer that can|cannot be loaded|by itself from"),
    "other width": (_change_config(hidden_size=64), r"do not fit \(.* is \(32,\) in the weights and \(64,\) by"),
    "other depth": (_change_config(num_hidden_layers=3), r"layer\.2\..* is not in the weights\)\. Download"),
    "invalid tokenizer": (_write("tokenizer.json", b'{"a'), r"tokenizer\.json is not JSON"),
    "empty tokenizer": (_write("tokenizer.json", b"{}"), r"no tokenizer that can be loaded from"),
    "no tokenizer": (_remove_tokenizer, r"has no tokenizer in .*every word would be unknown\. Put its tokenizer\.json"),
}


@pytest.fixture(params=["tiny_plm", "tiny_bi_encoder"])
def start(request) -> str:
    return request.getfixturevalue(request.param)


@pytest.fixture
def copied(start, tmp_path) -> Path:
    return Path(shutil.copytree(start, tmp_path / "model"))


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_with_the_file_and_what_to_do(
    copied, damage, message, tiny_method, tiny_files, tiny_bi_encoder, capsys
):
    damage(copied)
    members = (Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, cross_start=str(copied)))
    with pytest.raises(InputError, match=rf"^member 2: {copied} .*{message}"):
        plan(tiny_method(members=members))
    assert main(["evaluate", str(copied), "--pairs", str(tiny_files / "dev.tsv")]) == 2
    assert f"transencoder: {copied} " in capsys.readouterr().err


def test_a_missing_module_is_refused(tiny_bi_encoder, tmp_path):
    copied = shutil.copytree(tiny_bi_encoder, tmp_path / "model")
    shutil.rmtree(copied / "1_Pooling")
    with pytest.raises(InputError, match=rf"{copied} cannot be loaded from .*Pooling"):
        fetch(str(copied))
    (copied / "modules.json").write_text('[{"name": "0"}]')
    with pytest.raises(InputError, match=r"modules\.json is no list of modules \('path'\)"):
        fetch(str(copied))


def test_a_classifier_without_the_weights_of_its_head_is_refused(tiny_plm, tiny_bi_encoder, tmp_path):
    load_cross(Path(tiny_plm), device="cpu").save_pretrained(str(tmp_path))
    assert fetch(str(tmp_path)) == tmp_path
    shutil.copy(Path(tiny_bi_encoder, "model.safetensors"), tmp_path)
    with pytest.raises(InputError, match=r"classifier\.\w+ is not in the weights"):
        fetch(str(tmp_path))


def test_a_tokenizer_of_a_vocabulary_only_is_one(copied):
    _keep_vocabulary_only(copied)
    assert fetch(str(copied)) == copied


def test_a_model_without_a_transformer_is_whole_and_no_start(tiny_method, tiny_plm, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm).backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu").save(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    assert fetch(str(tmp_path)) == tmp_path
    with pytest.raises(InputError, match="is no model that transformers can make by itself"):
        plan(tiny_method(members=(Member(start=str(tmp_path)),)))


def test_a_missing_package_is_named(tiny_plm, tmp_path, monkeypatch):
    def need_sentencepiece(*_, **__):
        raise ImportError("\nThis tokenizer requires the SentencePiece library. Check out its site.")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", need_sentencepiece)
    with pytest.raises(InputError, match=r"requires the SentencePiece library.*\. Install what it needs$"):
        fetch(shutil.copytree(tiny_plm, tmp_path / "new"))
