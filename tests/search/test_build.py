"""An index is whole or not there; a build that was interrupted goes on, and ends with the same bytes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from transencoder.errors import InputError, RunError
from transencoder.runs.files import read_checked_json, sync_files, write_checked_json
from transencoder.runs.folder import take_lock
from transencoder.search import build, build_index, embed_shard, load_embedder, open_index
from transencoder.search.build import _write_documents
from transencoder.search.embedder import Embedder
from transencoder.search.vectors import make_vectors
from transencoder.shards import Shard


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def content(folder):
    return {name: (folder / name).read_bytes() for name in names(folder)}


@pytest.fixture
def interrupted(corpus, embedder, tmp_path, monkeypatch):
    """A folder whose build was stopped after the second of its six shards."""
    monkeypatch.setattr(build, "_SHARD_ROWS", 16)
    own, n_calls = Embedder.documents, []

    def documents(self, texts):
        n_calls.append(len(texts))
        if len(n_calls) == 3:
            raise KeyboardInterrupt
        return own(self, texts)

    monkeypatch.setattr(Embedder, "documents", documents)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, embedder, tmp_path / "index")
    n_calls[:] = [0] * 3  # from now on it counts only
    yield tmp_path / "index", n_calls
    assert embedder


def test_an_interrupted_build_goes_on_and_ends_with_the_same_bytes(interrupted, corpus, embedder, tmp_path):
    path, calls = interrupted
    with pytest.raises(InputError, match=r"has no index.json. It was begun and not finished: run its `search build`"):
        open_index(path)
    build_index(corpus, embedder, path)
    assert calls[3:] == [16] * 4, "two of six shards were done"
    build_index(corpus, embedder, tmp_path / "at-once")
    assert content(path) == content(tmp_path / "at-once")
    assert names(path) == ["documents.arrow", "index.json", "vectors.faiss"]


def test_a_build_that_was_stopped_at_its_very_end_embeds_nothing_again(corpus, embedder, tmp_path, monkeypatch, folder):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "write_record", stop)
        build_index(corpus, embedder, tmp_path / "index")
    assert ".building" in names(tmp_path / "index")
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "documents", None)
        build_index(corpus, embedder, tmp_path / "index")
    assert content(tmp_path / "index") == content(folder)


def test_a_large_index_stays_on_disk_and_is_not_read_through_at_opening(corpus, embedder, tmp_path, monkeypatch):
    """Was: opening took as long, and as much memory, as the index is large."""
    monkeypatch.setattr("transencoder.search.vectors.EXACT_UP_TO", 50)
    monkeypatch.setattr("transencoder.search.vectors._SAMPLED_QUERIES", 50)
    path = tmp_path / "index"
    build_index(corpus, embedder, path)
    assert names(path) == ["documents.arrow", "index.json", "vectors.faiss", "vectors.lists"]
    build_index(corpus, embedder, tmp_path / "again")
    assert content(path) == content(tmp_path / "again")
    shutil.move(path, tmp_path / "moved")
    (hits,) = open_index(tmp_path / "moved").search([corpus["text"][7]], 3)
    assert hits[0].row == 7
    lists = tmp_path / "moved" / "vectors.lists"
    lists.write_bytes(bytes([lists.read_bytes()[0] ^ 1]) + lists.read_bytes()[1:])
    with pytest.raises(InputError, match=r"vectors.lists has changed.* Build it again"):
        open_index(tmp_path / "moved")
    monkeypatch.setattr("transencoder.search.record.QUICK_BYTES", 0)
    monkeypatch.setattr("transencoder.search.index.QUICK_BYTES", 0)
    open_index(tmp_path / "moved")
    with pytest.raises(InputError, match="vectors.lists has changed"):
        build_index(corpus, embedder, tmp_path / "moved")
    changed(tmp_path / "again", format=2)
    with pytest.raises(InputError, match=r"is of format 2, .* reads 3. Build it again"):
        open_index(tmp_path / "again")


def test_an_index_keeps_its_pooling(corpus, tiny_bi_encoder, tmp_path):
    build_index(corpus, load_embedder(tiny_bi_encoder, pooling="cls"), tmp_path / "index")
    assert open_index(tmp_path / "index").embedder.model[1].pooling_mode == "cls"


def test_a_damaged_part_is_made_again(interrupted, corpus, embedder, tmp_path, caplog):
    path, calls = interrupted
    (part,) = path.glob(".building/2-of-6.safetensors")
    part.write_bytes(part.read_bytes()[:-1])
    build_index(corpus, embedder, path)
    assert calls[3:] == [16] * 5
    assert "2-of-6.safetensors cannot be read" in caplog.text
    build_index(corpus, embedder, tmp_path / "at-once")
    assert content(path) == content(tmp_path / "at-once")


def test_shards_may_be_embedded_anywhere(corpus, embedder, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_SHARD_ROWS", 32)
    index = tmp_path / "index"
    for number in (3, 1):
        embed_shard(corpus, embedder, index, Shard(number, 3))
    with pytest.raises(InputError, match=r"2-of-3.safetensors is missing: run the same command with --shard 2/3$"):
        build_index(corpus, embedder, index, merge=True)
    with pytest.raises(InputError, match=r"1-of-3.safetensors is of other document_prompt: run .* --shard 1/3; "):
        build_index(corpus, replace(embedder, document_prompt="a "), index, merge=True)
    with pytest.raises(InputError, match="1 ids are of several documents"):
        embed_shard(Dataset.from_dict({"id": ["a", "a"], "text": ["x", "y"]}), embedder, index, Shard(1, 2))
    embed_shard(corpus, embedder, index, Shard(2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "documents", None)
        build_index(corpus, embedder, index, merge=True)
        embed_shard(corpus, embedder, index, Shard(2, 3))
    build_index(corpus, embedder, tmp_path / "at-once")
    assert content(index) == content(tmp_path / "at-once")
    with pytest.raises(InputError, match="is an index with another corpus"):
        embed_shard(corpus.select(range(50)), embedder, index, Shard(2, 3))


def test_what_another_corpus_left_is_not_used(interrupted, corpus, embedder):
    path, calls = interrupted
    other = corpus.select(range(95))
    build_index(other, embedder, path)
    assert sorted(calls[3:]) == [15] + [16] * 5
    assert open_index(path).record.n_documents == 95


def test_a_list_is_a_corpus_and_what_is_no_query_or_scorer_is_refused(embedder, tmp_path):
    texts = ["balo", "dama kama", "gelo"]
    build_index(texts, embedder, tmp_path / "list")
    build_index(Dataset.from_dict({"text": texts}), embedder, tmp_path / "rows")
    assert content(tmp_path / "list") == content(tmp_path / "rows")
    index = open_index(tmp_path / "list")
    with pytest.raises(InputError, match="queries is the text 'balo'; give a list"):
        index.search("balo")
    with pytest.raises(InputError, match="reranker is 'cross'; give a scorer"):
        index.search(["balo"], reranker="cross")
    with pytest.raises(InputError, match="precision is 'uint8'; give one of float32, int8, binary"):
        build_index(texts, embedder, tmp_path / "other", precision="uint8")


def test_the_same_index_is_not_built_again_and_another_not_over_it(folder, corpus, embedder, monkeypatch):
    before = content(folder)
    monkeypatch.setattr(Embedder, "documents", None)
    build_index(corpus, embedder, folder)
    with pytest.raises(InputError, match="is an index with another dimensions and precision"):
        build_index(corpus, replace(embedder, dimensions=8), folder, precision="int8")
    with pytest.raises(InputError, match="is an index with another corpus"):
        build_index(corpus.select(range(5)), embedder, folder)
    assert content(folder) == before


def test_documents_that_are_longer_than_the_model_reads_are_told_of(embedder, tiny_bi_encoder, tmp_path, caplog):
    corpus = Dataset.from_dict({"text": ["a short one", "is it a long one " * 3, "another", "the last"]})
    build_index(corpus, embedder, tmp_path / "whole")
    assert "longer" not in caplog.text
    build_index(corpus, load_embedder(tiny_bi_encoder, max_length=12), tmp_path / "cut")
    assert "reads the first 12 tokens of a text, and 25 % of the first 4 documents are longer" in caplog.text


def test_other_things_are_left_alone(corpus, embedder, tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match=r"holds other things, such as thesis.txt"):
        build_index(corpus, embedder, tmp_path)
    with pytest.raises(InputError, match="is a file, and an index is a folder"):
        build_index(corpus, embedder, tmp_path / "thesis.txt")
    assert names(tmp_path) == ["thesis.txt"]


def test_one_process_at_a_time(corpus, embedder, tmp_path):
    (tmp_path / "index").mkdir()
    take_lock(tmp_path / "index")
    with pytest.raises(RunError, match="is in use by process"):
        build_index(corpus, embedder, tmp_path / "index")


def test_ids_are_one_documents_each(embedder, tmp_path):
    twice = Dataset.from_dict({"id": ["a", "b", "a"], "text": ["x", "y", "z"]})
    with pytest.raises(InputError, match="1 ids are of several documents, the first 'a'"):
        build_index(twice, embedder, tmp_path / "index")
    with pytest.raises(InputError, match="the corpus has no documents"):
        build_index(twice.select([]), embedder, tmp_path / "index")


@pytest.fixture
def copy(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: damage(path / "vectors.faiss"), r"vectors.faiss has changed: its sha256"),
        (lambda path: damage(path / "documents.arrow"), r"documents.arrow has changed: its sha256"),
        (lambda path: (path / "vectors.faiss").write_bytes(b"x"), r"vectors.faiss has 1 bytes instead of \d+"),
        (lambda path: (path / "documents.arrow").unlink(), r"documents.arrow is missing. Build it again"),
        (lambda path: (path / "index.json").write_text("{"), r"index.json cannot be read"),
        (lambda path: (path / "index.json").write_text("[]"), r"index.json is \[\], and should be dict"),
        (lambda path: damage(path / "index.json"), r"index.json (has changed|cannot be read)"),
        (lambda path: changed(path, kind="other"), r"index.json is not of an index that transencoder made"),
        (lambda path: changed(path, format=4), r"is of format 4, and this version of transencoder reads 3"),
        (lambda path: changed(path, files={}), r"index.json is damaged \(KeyError\('vectors.faiss'\)\)"),
        (
            lambda path: rewritten(path, corpus={"id": ["a"], "text": ["b"]}),
            "documents.arrow does not hold 96 documents as id and text",
        ),
        (
            lambda path: rewritten(path, corpus={"id": ["a"] * 96, "text": [None, *"b" * 95]}),
            "documents.arrow does not hold 96 documents",
        ),
        (lambda path: rewritten(path, documents=b"ARROW1" * 99), "documents.arrow cannot be read"),
        (
            lambda path: rewritten(path, embeddings=(95, 32)),
            r"vectors.faiss does not hold 96 embeddings of 32 numbers in float32",
        ),
        (lambda path: rewritten(path, embeddings=(192, 16)), r"vectors.faiss has embeddings 192 instead of 96"),
        (
            lambda path: rewritten(path, embeddings=(96, 32), precision="int8"),
            r"vectors.faiss does not hold 96 embeddings",
        ),
        (lambda path: rewritten(path, head=8), r"vectors.faiss (cannot be read|has )"),
        (lambda path: changed(path, n_documents="96"), r"index.json is damaged \(TypeError\(.n_documents is '96'"),
        (lambda path: changed(path, model="nowhere/x"), r"was built with nowhere/x: .*Say where that model is now"),
        (lambda path: shutil.rmtree(path), r"is no index: it has no index.json. `transencoder search build` makes one"),
    ],
)
def test_damaged_and_foreign_folders_are_refused(harm, message, copy):
    harm(copy)
    with pytest.raises(InputError, match=message):
        open_index(copy)


def rewritten(path, corpus=None, documents=None, embeddings=None, precision="float32", head=None):
    """Something else behind the hashes of index.json, as another program or a hostile one writes it."""
    if corpus:
        _write_documents(Dataset.from_dict(corpus), path / "documents.arrow")
    if documents:
        (path / "documents.arrow").write_bytes(documents)
    if embeddings:
        make_vectors(np.ones(embeddings, np.float32), precision).save(path / "vectors.faiss")
    if head:  # the number of embeddings, which faiss would make room for
        content = (path / "vectors.faiss").read_bytes()
        (path / "vectors.faiss").write_bytes(content[:head] + (1 << 39).to_bytes(8, "little") + content[head + 8 :])
    changed(path, files=sync_files(path, ("vectors.faiss", "documents.arrow")))


def changed(path, **fields):
    write_checked_json(path / "index.json", read_checked_json(path / "index.json") | fields)


def test_another_model_is_refused_and_a_moved_one_found(copy, tiny_bi_encoder, tmp_path):
    shutil.copytree(tiny_bi_encoder, tmp_path / "moved")
    changed(copy, model=str(tmp_path / "gone"))
    with pytest.raises(InputError, match="Say where that model is now"):
        open_index(copy)
    assert next(open_index(copy, model=str(tmp_path / "moved")).search(["balo"]))
    config = tmp_path / "moved" / "config_sentence_transformers.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"prompts": {"query": "x "}}))
    with pytest.raises(InputError, match=r"was built with .*gone of fingerprint [0-9a-f]{12}, but .*moved has"):
        open_index(copy, model=str(tmp_path / "moved"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": 33}, "dimensions is 33, but the embeddings of .* have 32; give 1 to 32"),
        ({"dimensions": 0}, "dimensions is 0"),
        ({"query_prompt_name": "qury"}, "the model has no prompt 'qury'"),
        ({"query_prompt": "q: ", "query_prompt_name": "qury"}, "given as the text 'q: ' and by the name 'qury'"),
        ({"device": "abacus"}, "device is 'abacus'"),
        ({"max_length": 4000}, "max_length is 4000"),
    ],
)
def test_what_the_model_does_not_have_is_refused(options, message, tiny_bi_encoder):
    with pytest.raises(InputError, match=message):
        load_embedder(tiny_bi_encoder, **options)
