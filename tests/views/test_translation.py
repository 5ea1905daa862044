"""Back-translation by callables, by translation models, and from a file."""

import pickle
import random
import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transencoder.errors import InputError
from transencoder.views import (
    BackTranslation,
    GivenTranslations,
    Translator,
    TwoViews,
    as_is,
    read_translations,
)

TEXTS = ["balo bama", "balo", "dalo kama gelo lelo mema", "bama " * 9, "kama dalo"]


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    return _save(tmp_path_factory.mktemp("t5"), _t5(), seed=3)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return _save(tmp_path_factory.mktemp("marian"), _marian(), seed=0)


def _t5():
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.5}
    return T5ForConditionalGeneration, T5Config(
        vocab_size=40, **size, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, initializer_factor=5.0
    )


def _marian():
    from transformers import MarianConfig, MarianMTModel

    size = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 16))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return MarianMTModel, MarianConfig(
        vocab_size=40,
        d_model=16,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        init_std=0.5,
        **size,
        **heads,
    )


def _save(folder, made, seed):
    """A random model and a tokenizer of words, which ends texts as translation models do."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    model_class, config = made
    words = ["balo", "bama", "dalo", "kama", "gelo", "lelo", "mema"]
    vocabulary = ["<pad>", "</s>", "<unk>", *words, *(f"wort{i}" for i in range(30))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, model_max_length=64).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model_class(config).save_pretrained(folder)
    return Path(folder)


def oracle(folder, text, n_beams, max_length):
    """One text alone, by the model's own generation."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    written = model.generate(input_ids=ids, num_beams=n_beams, do_sample=False, max_new_tokens=max_length)
    return tokenizer.decode(written[0], skip_special_tokens=True) or text


@pytest.mark.parametrize("n_beams", [1, 3])
@pytest.mark.parametrize("kind", ["t5", "marian"])
def test_each_text_is_translated_as_it_is_alone(kind, n_beams, request):
    folder = request.getfixturevalue(kind)
    translate = Translator(folder=folder, n_beams=n_beams, max_length=12, batch_size=2, device="cpu")
    made = translate(TEXTS)
    assert made == [oracle(folder, text, n_beams, 12) for text in TEXTS]
    assert len(set(made)) > 2
    assert translate(TEXTS[::-1]) == made[::-1]


def test_two_models_translate_there_and_back(t5, marian):
    steps = tuple(Translator(folder=folder, max_length=8, device="cpu") for folder in (t5, marian))
    view = BackTranslation(steps=steps)
    randoms = [random.Random(0)] * len(TEXTS)
    assert view(TEXTS, randoms) == steps[1](steps[0](TEXTS)) != steps[0](TEXTS)
    assert re.fullmatch(r"BackTranslation\((Translator\(\w{16}, 1, 8\)(, )?){2}\)", repr(view))
    assert repr(steps[0]) != repr(steps[1])


def upper(texts):
    return [text.upper() for text in texts]


def test_any_callable_is_a_step():
    view = BackTranslation(steps=(upper, lambda texts: [text[::-1] for text in texts]))
    assert view(["ab", "c"], []) == ["BA", "C"]
    assert BackTranslation(steps=(upper,))(["ab"], []) == ["AB"]
    assert repr(BackTranslation(steps=(upper,))) == "BackTranslation(upper)"


def test_a_translation_is_one_line_and_never_nothing(monkeypatch):
    monkeypatch.setattr(Translator, "_translate", lambda self, texts: [" a\tb \n" if "x" in t else " " for t in texts])
    assert Translator(folder=Path("none"))(["x", "second"]) == ["a b", "second"]


def test_what_is_cut_is_said(t5, caplog):
    Translator(folder=t5, max_length=4, device="cpu")(TEXTS)
    assert re.search(r": 2 texts reach 4 tokens and \d translations 4; what comes after is lost", caplog.text)


def test_it_goes_to_another_process_without_its_model(t5):
    translate = Translator(folder=t5, max_length=8, device="cpu")
    made = translate(TEXTS)
    assert len(pickle.dumps(translate)) < 1000
    assert pickle.loads(pickle.dumps(translate))(TEXTS) == made


def test_what_is_no_translation_model_is_refused(tiny_plm, t5, monkeypatch):
    with pytest.raises(InputError, match="is no translation model .*Give a sequence-to-sequence one"):
        Translator(folder=Path(tiny_plm), device="cpu")(TEXTS)
    for bad in ("n_beams", "max_length", "batch_size"):
        with pytest.raises(InputError, match=f"{bad} is 0; it must be at least 1"):
            Translator(folder=t5, **{bad: 0})

    def no_package(folder):
        raise ImportError("MarianTokenizer requires the SentencePiece library")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", no_package)
    with pytest.raises(InputError, match="requires the SentencePiece library.*pip install sentencepiece"):
        Translator(folder=t5, device="cpu")(TEXTS)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Ten texts and their back-translations."""
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
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
