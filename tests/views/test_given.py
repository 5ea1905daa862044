"""Back-translations that stand in a file."""

import random

import pytest
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.views import GivenTranslations, TwoViews, as_is, read_translations, translation


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(translation, "_BLOCK_ROWS", 3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "german.tsv"
    path.write_text("text\ttranslation\n" + "".join(f"a text {i}\tback {i}\n" for i in range(10)))
    return path


def randoms(n):
    return [random.Random(i) for i in range(n)]


def test_texts_are_looked_up_wherever_they_stand(file):
    view = read_translations(file)
    assert view(["a text 7", "a text 0", "a text 7"], randoms(3)) == ["back 7", "back 0", "back 7"]


def test_one_of_several_is_drawn(file):
    with file.open("a") as more:
        more.write("a text 3\tanother 3\n")
    assert set(read_translations(file)(["a text 3"] * 30, randoms(30))) == {"back 3", "another 3"}


def test_a_text_that_is_not_there_is_named(file):
    with pytest.raises(InputError, match=r"german.tsv has no back-translation of 'A text 7'. It must have one"):
        read_translations(file)(["a text 7", "A text 7"], randoms(2))


def test_a_bad_line_is_named(file):
    with file.open("a") as more:
        more.write("alone\n")
    with pytest.raises(InputError, match=r"german.tsv:12: "):
        read_translations(file)


def test_it_goes_to_other_processes_and_is_known_by_its_content(file, tmp_path):
    view = read_translations(file)
    sentences = Dataset.from_dict({"text": [f"a text {i}" for i in range(10)]})
    made = TwoViews(first=as_is, second=view)(sentences, tmp_path / "views", 1, n_processes=2)
    assert made["sentence2"][:] == [f"back {i}" for i in range(10)]
    renamed = file.rename(tmp_path / "other.tsv")
    assert repr(read_translations(renamed)) == repr(view)
    assert repr(view) != repr(GivenTranslations(made.select(range(9)), "views"))
