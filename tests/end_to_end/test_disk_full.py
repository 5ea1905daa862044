"""A disk that is full while a checkpoint or a model is written: the message says so, and the same command goes on."""

import errno
from pathlib import Path

import pytest
import safetensors.torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from transencoder import checkpoints, train
from transencoder.errors import RunError
from transencoder.fit import trainers
from transencoder.tokens import TokenCache
from transencoder.training import result


def weights(folder):
    return {form: (Path(folder) / form / "model.safetensors").read_bytes() for form in ("bi-encoder", "cross-encoder")}


@pytest.fixture(scope="module")
def whole(tiny_method):
    """The models of a run that always had space."""
    return weights(train(tiny_method()).folder)


def full(real, nth, partly=None):
    """A function that works until its n-th call, where it writes a part and finds the disk full."""
    calls = []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == nth:
            if partly is not None:
                partly(*arguments)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    return call


def half_a_model(model, folder, *_):
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "model.safetensors").write_bytes(b"half")
    (Path(folder) / "config.json").write_text("{")


def half_of_its_weights(_, path):
    Path(path).write_bytes(b"half")


WRITES = {
    "the best weights of a checkpoint": (checkpoints, "save_file", 2, None),
    "a checkpoint reaching the disk": (checkpoints, "sync_files", 2, None),
    "the marker of a checkpoint": (checkpoints, "write_checked_json", 1, None),
    "the student of a checkpoint": (trainers, "save_model", 2, half_of_its_weights),
    "the model of a stage": (SentenceTransformer, "save_pretrained", 1, half_a_model),
    "the model for the user": (result.shutil, "copytree", 2, None),
    "the checksums of a model": (result, "write_checksums", 1, None),
    "the report": (result, "write_report", 1, None),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_is_said_and_the_same_command_goes_on(what, whole, tiny_method, monkeypatch):
    owner, name, nth, partly = WRITES[what]
    config = tiny_method()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full(getattr(owner, name), nth, partly))
        with pytest.raises(RunError, match=r"no space is left for .* run the same command again: it goes on"):
            train(config)
    assert weights(train(config).folder) == whole


def test_the_words_of_safetensors_are_understood(whole, tiny_method, monkeypatch):
    config = tiny_method()

    def refuse(*_, **__):
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", refuse)
        with pytest.raises(RunError, match="no space is left"):
            train(config)
    assert weights(train(config).folder) == whole


def test_a_small_file_system_at_several_sizes(small_disk, whole, tiny_method):
    config = tiny_method(output=str(small_disk / "run"))
    filler = small_disk / "filler"
    n_refused = 0
    for kib in (3900, 3500, 3100, 2700, 2300):
        filler.write_bytes(bytes(kib * 1024))
        try:
            train(config)
        except RunError as error:
            assert "no space is left" in str(error), error
            n_refused += 1
        filler.unlink()
    assert n_refused >= 3
    assert weights(train(config).folder) == whole


def test_a_full_disk_does_not_kill_the_process_through_a_mapped_file(small_disk, bi):
    """A write to a mapped page without space would be a SIGBUS: space is taken when an array is made."""
    pairs = Dataset.from_dict({f"sentence{side}": [f"{side} {row}" for row in range(60_000)] for side in (1, 2)})
    (small_disk / "filler").write_bytes(bytes(3900 * 1024))
    with pytest.raises(OSError, match="No space left on device"):
        TokenCache(small_disk / "tokens").sentences(bi, pairs)
    assert list((small_disk / "tokens").iterdir()) == []
