import re
from dataclasses import fields, is_dataclass, replace

import pytest
from datasets import Dataset

from transencoder import train
from transencoder.configs import FitConfig, Member
from transencoder.configs.encoder import EncoderConfig
from transencoder.errors import InputError
from transencoder.methods import MLM, DvBERT, TransEncoder
from transencoder.pairs import fingerprint
from transencoder.recipes import find_recipe, list_recipes, load_recipe, read_recipe, variants
from transencoder.settings import method_name, settings_of
from transencoder.tasks import SUITES, TASKS

MINIMAL = 'method = "trans-encoder"\npairs = "a.tsv"\noutput = "run"\n[[members]]\nstart = "x"\n'
NO_TEXT = 'method = "declutr"\nstart = "minilm"\n'
MISSPELT = MINIMAL.replace("trans-encoder", "trans-encodr")


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[bi]\nepoch = 3", r"recipe\.toml: bi\.epoch is not a setting; the nearest is bi\.epochs"),
        ("[by]\nepochs = 3", r"by is not a setting; the nearest is bi"),
        ("[[members]]\nstrat = 'x'", r"members\.2\.strat is not a setting; the nearest is members\.1\.start"),
        ("[bi]\nepochs = 'three'", r"bi\.epochs is 'three'\. It must be a whole number"),
        ("[bi]\nepochs = 3.0", r"bi\.epochs is 3\.0\. It must be a whole number"),
        ("[bi]\nepochs = true", r"bi\.epochs is True\. It must be a whole number"),
        ("[bi]\nlearning_rate = '1e-4'", r"bi\.learning_rate is '1e-4'\. It must be a number"),
        ("[bi]\ngradient_checkpointing = 1", r"It must be true or false"),
        ("[bi]\nepochs = 0", r"recipe\.toml: bi\.epochs is 0; it must be at least 1"),
        ("[bi]\nwarmup_ratio = 2", r"recipe\.toml: bi\.warmup_ratio is 2\.0; it is a share"),
        ("[[members]]\npooling = 'cls'", r"members\.2\.start is not set\. It must be a text"),
        (
            "[[members]]\nstart = 'y'\npooling = 'clss'",
            r"members\.2\.pooling is 'clss'.*one of: mean, cls, max, pooler; the nearest is cls",
        ),
        ("[dev]\nx = 1", r"dev is \{'x': 1\}\. It must be a text"),
        ("tests = 'sts'", r"tests is 'sts'\. It must be a list, each a text"),
        ("tests = ['sts', 1]", r"tests\.2 is 1\. It must be a list, each a text"),
        ("bi = 3", r"bi is 3\. It must be a table"),
        ("label_policy = 'row'", r"label_policy is 'row'.*one of: clip, affine, quantile, raw; the nearest is raw"),
        (f"seed = {'1' * 400}", r"seed is 1{80}\.\.\.\. A whole number has at most 64 bits"),
        (f"start_weight = {'1' * 400}", r"start_weight is 1{80}\.\.\.\. A whole number has at most 64 bits"),
        (f"seed = 0x{'f' * 5000}", r"seed is <int>\. A whole number"),
        (f"seed = {'1' * 5000}", r"recipe\.toml: not TOML: .*digits"),
        (f"seed = {'[' * 5000}", r"recipe\.toml: not TOML: .*nested too deeply"),
        (f"seed = {'{a=' * 5000}", r"recipe\.toml: not TOML: .*nested too deeply"),
        (f"label_policy = '{'x' * 100_000}'", r"label_policy is 'x{79}\.\.\.\. It must be one of"),
        (f"{'x' * 100_000} = 1", r"recipe\.toml: x{1000,1200} \.\.\. x+ is not a setting; the nearest is"),
        ("vary = {seed = [1979-05-27]}\nseed = 'x'", r"seed is 'x'"),
        ("start_weight = 1", r"recipe\.toml: start_weight is 1\.0; it is a share of the teachers"),
        ("seed = 1\nseed = 2", r"recipe\.toml: not TOML: .*line"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_dotted_name(lines, message, recipe):
    recipe.write_text(MINIMAL + lines if lines.startswith("[") else f"{lines}\n{MINIMAL}")
    with pytest.raises(InputError, match=message):
        load_recipe(recipe)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (NO_TEXT.encode(), r"recipe\.toml: documents is not set\. It must be a text: Unlabelled documents"),
        (MISSPELT.encode(), r"method is 'trans-encodr'.*one of: .*the nearest is trans-encoder"),
        (b'pairs = "a.tsv"', r"method is not set"),
        (b"method = {}", r"method is \{\}\. It must be one of"),
        (b"\xff\xfe", r"not TOML"),
        (None, r"recipe\.toml: the recipe cannot be read"),
    ],
)
def test_a_missing_field_a_missing_file_and_a_wrong_method_are_refused(content, message, tmp_path):
    if content is not None:
        (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_recipe(tmp_path / "recipe.toml")


def test_overrides_win_and_are_read_by_the_type_of_their_field(recipe):
    overrides = [
        "bi.epochs=3",
        "cross.learning_rate=1",
        "label_policy=raw",
        "is_symmetric=false",
        'tests="sts12"',
        "columns=['a', 'b']",
        "members.1.pooling=cls",
        "output=2021",
        'device="cpu"',
        "dev=a=b",
        "pairs = 'a b.tsv'",
    ]
    assert load_recipe(recipe, overrides) == TransEncoder(
        pairs="a b.tsv",
        members=(Member(start="x", pooling="cls"),),
        output="2021",
        dev="a=b",
        device="cpu",
        label_policy="raw",
        is_symmetric=False,
        tests=("sts12",),
        columns=("a", "b"),
        bi=FitConfig(epochs=3),
        cross=FitConfig(learning_rate=1.0),
    )


@pytest.mark.parametrize("override", ["tests=none", "tests=", "tests=[]"])
def test_none_empties_a_list(recipe, override):
    """Was: a data set called none."""
    recipe.write_text('tests = ["sts"]\n' + MINIMAL)
    assert load_recipe(recipe).tests == ("sts",)
    assert load_recipe(recipe, [override]).tests == ()


def test_none_unsets_an_override(recipe):
    recipe.write_text(MINIMAL.replace("pairs", 'dev = "stsb"\npairs') + "[bi]\nepochs = 3")
    config = load_recipe(recipe, ["dev=none", "bi.epochs=none"])
    assert config.dev is None and config.bi.epochs is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("bi.epochs", r"--set bi\.epochs: there is no '='"),
        ("bi.epoch=3", r"bi\.epoch: there is no such setting; the nearest is bi\.epochs"),
        ("epochs=3", r"the nearest is (bi|cross)\.epochs"),
        ("bi=3", r"bi: there is no such setting"),
        ("bi.epochs=x", r"bi\.epochs is 'x'\. It must be a whole number"),
        ("is_symmetric=yes", r"is_symmetric is 'yes'\. It must be true or false"),
        ("members.3.start=y", r"members\.3\.start: 3 given where 1 .*from 1 to 2"),
        ("members.start=y", r"members\.start: no number given"),
        ("members.1.strat=y", r"members\.1\.strat: there is no such setting; the nearest is members\.1\.start"),
        ("label_policy=row", r"the nearest is raw"),
        ("pairs=['a']", r"pairs is \['a'\]\. It must be a text"),
        (f"members.1.weight={'1' * 5000}", r"--set members\.1\.weight: Exceeds the limit \(4300 digits\)"),
        (f"members.{'1' * 5000}.start=x", r"from 1 to 2"),
        (f"tests={'[' * 5000}", r"--set tests: arrays or tables are nested too deeply"),
        (f"bi.epochs={'x' * 100_000}", r"bi\.epochs is 'x{79}\.\.\.\. It must be a whole number"),
        (f"{'x' * 100_000}", r"^--set x{1190,1200} \.\.\. x+: there is no '='"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(override, message, recipe):
    with pytest.raises(InputError, match=message):
        load_recipe(recipe, [override])


def test_an_override_into_a_value_that_is_no_table_is_refused(recipe):
    recipe.write_text("bi = 3\n" + MINIMAL)
    with pytest.raises(InputError, match=r"the recipe's bi is 3, not a table"):
        load_recipe(recipe, ["bi.epochs=3"])


HELD_OUT = 32
MODELS = ("start", "generator", "complement", "teacher")


@pytest.mark.parametrize("name", list_recipes())
def test_each_recipe_parses_and_is_named_by_method_and_row(name):
    path = list_recipes()[name]
    config, recipe = load_recipe(path), read_recipe(path)
    assert name == f"{method_name(type(config))}/{path.stem}"
    assert config.output == f"runs/{name}"
    assert path.read_text("utf-8").startswith("# ")
    for setting, value in recipe.parity.items():
        assert load_recipe(path, [f"{setting}={value}"]) != config, f"{setting} is as it is without parity"
    parity = [f"{setting}={value}" for setting, value in recipe.parity.items()]
    for overrides in variants(recipe.vary).values():
        load_recipe(path, [*parity, *overrides])
        load_recipe(path, overrides)
    members = getattr(config, "members", ())
    names = [name for member in members for name in (member.start, member.cross_start)]
    named = [getattr(config, field, None) for field in (*MODELS, "sentences", "documents", "views", "labelled")]
    names += [name for value in named for name in (value if isinstance(value, tuple) else (value,))]
    assert not [name for name in names if name and name[0] in "/~"]


@pytest.mark.parametrize("name", list_recipes())
def test_each_recipe_runs_two_steps_of_a_tiny_model(name, small, chosen, tmp_path):
    """Of recipes with the same settings, one; so that each setting of each recipe is trained with."""
    if name not in chosen:
        return
    config = small(name)
    result = train(replace(config, output=str(tmp_path / "run"))).result
    if isinstance(config, MLM):
        assert result["pretraining"]["steps"] >= 2
        return
    steps = {form: part["curve"][-1][0] for form, part in result["cycles"][0].items() if form != "cycle"}
    assert set(steps.values()) == {2}
    assert all(value is not None for value in result["dev"].values())


@pytest.fixture(scope="module")
def small(tiny_plm, tiny_bi_encoder, tiny_files, tiny_sentences, tiny_pairs, synonyms):
    """Make a recipe's config with 64 rows and tiny models: all its settings, but for sizes and what is measured."""

    def make(name):
        config = load_recipe(list_recipes()[name])
        more = {"output": "", "dev": str(tiny_files / "dev.tsv"), "tests": (), "device": "cpu"}
        more |= {"exclude_test_sentences": False, "test_every_eval": False}
        if config.task_kind == "binary":
            more["dev"] = tiny_pairs.select(range(100, 140)).map(lambda row: {"score": float(row["score"] > 2)})
        if isinstance(config, TransEncoder):
            tiny = {"start": tiny_bi_encoder, "cross_start": tiny_plm, "pooling": None, "bi_epochs": None}
            tiny |= {"cross_epochs": None}
            small = {"epochs": 1, "max_length": 32}
            more |= {
                "pairs": tiny_pairs.select(range(64)),
                "members": tuple(replace(member, **tiny) for member in config.members),
                "cycles": len(config.members) if config.alternate_members else 1,
                "n_pairs": 40 if config.extra_pairs else None,
                "extra_pairs": tiny_pairs.select(range(64, 96)) if config.extra_pairs else None,
                "n_extra_pairs": 24 if config.extra_pairs else None,
                "bi": replace(config.bi, batch_size=32, selection="auto", **small),
                "cross": replace(config.cross, batch_size=64 if config.is_symmetric else 32, selection="auto", **small),
            }
            if config.sentences:
                more |= {"pairs": None, "sentences": tiny_sentences.select(range(64)), "n_sentences": 48, "n_pairs": 64}
            if config.labelled:
                rows = {"pairs": tiny_pairs.select(range(48)), "labelled": tiny_pairs.select(range(48, 64))}
                more |= rows | {"n_labelled": None, "score_range": (0.0, 5.0)}
            if config.pretraining.epochs:
                more["pretraining"] = replace(config.pretraining, epochs=1)
        elif isinstance(config, MLM):
            more |= {
                "sentences": tiny_sentences.select(range(64)),
                "start": tiny_plm if config.start else None,
                "dev": None,
                "vocabulary": 200 if config.from_scratch else config.vocabulary,
                "fit": replace(config.fit, epochs=1, batch_size=16, max_length=16),
            }
        else:
            more |= {"test_length": None} | of_start(config, tiny_plm, tiny_bi_encoder, synonyms)
            more |= text_of(config, tiny_sentences, tiny_pairs)
        return replace(config, **more)

    return make


@pytest.fixture(scope="module")
def chosen(small):
    """Names of few recipes that together have every setting of all."""
    left = {name: kinds(replace(small(name), seed=0, reuse_from=())) for name in list_recipes()}
    names = set()
    while any(left.values()):
        name = max(left, key=lambda each: len(left[each]))
        names.add(name)
        left = {each: settings - left[name] for each, settings in left.items()}
    return names


@pytest.fixture(scope="module")
def synonyms(tmp_path_factory):
    path = tmp_path_factory.mktemp("synonyms") / "synonyms.tsv"
    path.write_text("balo\tdalo\n")
    return str(path)


def kinds(value, name=""):
    """The method's name with each setting, by its name; of numbers only whether they are 0, 1 or neither."""
    if is_dataclass(value):
        inner = (
            kinds(getattr(value, each.name), f"{name or type(value).__name__}.{each.name}") for each in fields(value)
        )
        return set().union(*inner)
    if isinstance(value, tuple):
        return {f"{name}: {len(value)}"}.union(*(kinds(each, name) for each in value))
    if isinstance(value, Dataset):
        return {f"{name}: {fingerprint(value)}"}
    is_number = isinstance(value, int | float) and value not in (0, 1)
    return {f"{name}: a number" if is_number else f"{name}: {value!r}"}


def test_kinds_differ_in_what_decides_a_branch():
    member, bi = Member(start="x"), FitConfig(learning_rate=0.5)
    config = TransEncoder(pairs="a", members=(member,), output="", start_weight=0.5, bi=bi)
    other_rate = replace(config, bi=replace(config.bi, learning_rate=0.25))
    assert kinds(other_rate) == kinds(config)
    for changed in (replace(config, cycles=1), replace(config, start_weight=0.0), replace(config, cross_loss="mse")):
        assert not kinds(changed) <= kinds(config)


def of_start(config: EncoderConfig, plm: str, bi_encoder: str, synonyms: str) -> dict[str, object]:
    """A tiny model in the place of each of the recipe's, a small queue, two steps."""
    names = settings_of(type(config))
    models = {"generator": plm, "mlm": plm, "complement": bi_encoder, "teacher": bi_encoder, "synonyms": synonyms}
    changes = {name: path for name, path in models.items() if name in names and getattr(config, name) is not None}
    if isinstance(config, DvBERT):
        cross = replace(config.cross, epochs=1, batch_size=32, max_length=32)
        changes = {"teacher": (plm,) * len(config.teacher), "cross": cross}
    if getattr(config, "queue_size", None):
        changes["queue_size"] = HELD_OUT if method_name(type(config)) == "congen" else 64
    fit = replace(config.fit, epochs=1, batch_size=32, max_length=32)
    return changes | {"start": plm, "student_layers": config.student_layers and (0,), "fit": fit}


def n_texts(config: EncoderConfig) -> int:
    """So many that 64 rows are trained on; on what fills ConGen's queue, nothing is."""
    n_held_out = HELD_OUT if method_name(type(config)) == "congen" else 0
    return 64 // config.rows.per_text + n_held_out


def text_of(config: EncoderConfig, sentences: Dataset, pairs: Dataset) -> dict[str, object]:
    """Sentences, documents or views in the place of the recipe's."""
    if "documents" in settings_of(type(config)):
        texts = sentences.select(range(n_texts(config)))
        return {"documents": texts.map(lambda row: {"text": f"{row['text']} " * 300})}
    if isinstance(config, DvBERT):
        rows = pairs.select(range(64))
        if config.label_kind == "classes":
            rows = rows.add_column("label", [row % len(config.class_names) for row in range(64)])
        score_range = (0.0, 5.0) if config.label_kind == "scores" else (0.0, 1.0)
        return {"labelled": rows, "more_labelled": (), "split": None, "score_range": score_range}
    views = getattr(config, "views", None)
    if len(config.columns) == 1:
        sentences = sentences.rename_column("text", config.columns[0])
    rows = pairs if views or len(config.columns) == 2 else sentences
    return {"n_sentences": None, "views" if views else "sentences": rows.select(range(n_texts(config)))}


TWINS = ("demo", "minilm", "plm-mini", "twin")

PAPER = [
    name for name in list_recipes() if name.startswith("trans-encoder/") and not name.split("/")[1].startswith(TWINS)
]
"""Recipes of the paper's rows."""

TABLE_17 = {
    "princeton-nlp/unsup-simcse-bert-base-uncased": "bert-base-uncased",
    "princeton-nlp/unsup-simcse-roberta-base": "roberta-base",
    "princeton-nlp/unsup-simcse-bert-large-uncased": "bert-large-uncased",
    "princeton-nlp/unsup-simcse-roberta-large": "roberta-large",
    "cambridgeltl/mirror-roberta-base-sentence": "roberta-base",
    "cambridgeltl/mirror-roberta-base-sentence-drophead": "roberta-base",
    "Contrastive-Tension/BERT-Base-CT": "bert-base-uncased",
    "johngiorgi/declutr-base": "roberta-base",
}


BERT_ADAM = {"fit.optimizer": "bert_adam", "fit.adam_epsilon": "1e-06"}
DCLR_VALUES = {
    (False, False): (0.9, 1.0),
    (True, False): (0.85, 2.5),
    (False, True): (0.9, 3.0),
}
"""(Of RoBERTa, large) -> threshold and noise ratio of the released code."""
RANDOM_BATCHES = {"fit.bucket_batches": "1"}
POOLED = {"complement_pooling": "pooler", "on_pooler": "true", "loss_form": "elementwise"}
OWN_ROWS = [
    name
    for name in list_recipes()
    if name.startswith(
        tuple(f"{method}/{model}" for method in ("simcse", "diffcse", "dclr") for model in ("bert", "rob"))
    )
    or name.startswith(("sct/bert", "congen/bert", "ckd/bert"))
]


@pytest.mark.parametrize("name", OWN_ROWS)
def test_rows_of_other_papers_have_what_their_released_codes_have(name):
    """Test length, early stopping, and what `--parity` adds (docs/papers.md)."""
    config, parity = load_recipe(find_recipe(name)), read_recipe(find_recipe(name)).parity
    method, _, row = name.partition("/")
    if method in ("simcse", "diffcse", "dclr"):
        assert (config.fit.max_length, config.test_length) == (32, 512)
    if method == "simcse":
        assert parity == {}
    elif method == "diffcse":
        assert parity == {"counts_padding": "true"}
    elif method == "dclr":
        assert parity == {key: value for key, value in POOLED.items() if "roberta" not in row or key != "on_pooler"}
        assert f"{'roberta' if 'roberta' in row else 'bert'}-base" in config.complement, "base for BERT-large too"
        assert config.projector == ("large" not in row)
        assert (config.threshold, config.noise_ratio) == DCLR_VALUES["roberta" in row, "large" in row]
    elif method == "ckd":
        assert (config.fit.patience_epochs, config.fit.max_length, config.test_length) == (3, 64, None)
        pooled = {"teacher_pooling": "pooler"} | ({} if "after-sct" in row else {"pooling": "pooler"})
        assert parity == pooled | {"fit.optimizer": "adamw_hf"} | RANDOM_BATCHES
    else:
        has_code = method == "congen" or "two-step" in row
        assert (config.fit.epochs, config.fit.patience_epochs) == ((20, 7) if has_code else (10, None)), (
            "the paper's 10"
        )
        pooled = {} if config.teacher is None else {"teacher_pooling": "mean"}
        stopping = {} if has_code else {"fit.epochs": "20", "fit.patience_epochs": "7"}
        assert parity == pooled | BERT_ADAM | RANDOM_BATCHES | stopping


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in list_recipes()
        if name.startswith(("declutr/", "mirror-bert/")) and "minilm" not in name and "-on-" not in name
    ],
)
def test_declutrs_optimiser_and_mirror_berts_mask_are_the_released_ones_by_parity(name):
    parity = read_recipe(find_recipe(name)).parity
    if name.startswith("declutr"):
        assert parity == BERT_ADAM
    else:
        assert parity == ({"mask_token": "[MASK]"} if "roberta" in name else {})


@pytest.mark.parametrize("name", [each for each in list_recipes() if re.fullmatch(r"(sct|congen|ckd)/bert-.*", each)])
def test_rows_of_scts_tables_have_three_seeds(name):
    assert [len(values) for field, values in read_recipe(find_recipe(name)).vary.items() if field == "seed"] == [3]


SIMCSE_ROWS = [f"simcse-{model}-{size}" for model in ("bert", "roberta") for size in ("base", "large")]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_rows_have_the_models_of_table_17_and_the_settings_of_table_16(name):
    config = load_recipe(find_recipe(name))
    is_binary, is_large = config.task_kind == "binary", "large" in name
    assert config.cycles == (5 if is_binary else 3)
    assert config.cross == FitConfig(learning_rate=2e-5, batch_size=32, epochs=3 if is_binary else 1, max_length=64)
    batch_size, epochs = 64 if is_large else 128, 15 if is_binary else 10
    assert config.bi == FitConfig(learning_rate=5e-5, batch_size=batch_size, epochs=epochs, max_length=32)
    for member in config.members:
        assert TABLE_17[member.start.partition("@")[0]] == member.cross_start
        assert is_large == ("large" in member.start)
        assert member.pooling == ("mean" if "CT" in member.start or "declutr" in member.start else "cls")
    unreleased = ("loss-", "same-form", "alternating")
    parity = {"label_policy": "raw", "cross_test_length": "512"}
    for form in ("bi", "cross"):
        parity |= {f"{form}.optimizer": "adamw_hf", f"{form}.adam_epsilon": "1e-06", f"{form}.bucket_batches": "1"}
    parity |= {"ensemble_metric": "released"} if len(config.members) > 1 else {}
    assert read_recipe(find_recipe(name)).parity == ({} if any(part in name for part in unreleased) else parity)
    task = config.pairs
    assert config.is_symmetric == (task == "sts" or TASKS[task].symmetric)
    assert config.dev == ("stsb" if task == "sts" else task)
    table_12 = [f"trans-encoder/{row}" for row in ("mutual-base", "mutual-large", *SIMCSE_ROWS)]
    assert config.tests == (("sts", "binary") if name in table_12 else (task,))
    assert is_binary == (task in SUITES["binary"])
    assert config.output == f"runs/{name}"


def test_mutual_and_side_by_side_rows_have_the_members_of_the_single_rows():
    for size in ("base", "large"):
        singles = [load_recipe(find_recipe(f"trans-encoder/simcse-{name}-{size}")) for name in ("bert", "roberta")]
        for task in ("", "-qqp", "-qnli", "-mrpc"):
            for kind, is_shared in (("mutual", True), ("self", False)):
                config = load_recipe(find_recipe(f"trans-encoder/{kind}-{size}{task}"))
                assert config.members == tuple(single.members[0] for single in singles)
                assert config.share_labels == is_shared


def test_recipes_are_found_by_name_row_or_path(tmp_path, recipe):
    assert (
        find_recipe("minilm-sts")
        == find_recipe("trans-encoder/minilm-sts")
        == list_recipes()["trans-encoder/minilm-sts"]
    )
    assert find_recipe(str(recipe)) == recipe
    with pytest.raises(InputError, match=r"trans-encoder/minilm-st is neither.*trans-encoder/minilm-sts"):
        find_recipe("trans-encoder/minilm-st")
    with pytest.raises(
        InputError, match=r"bert-base is the name of several recipes: .*dclr/bert-base, .*simcse/bert-base"
    ):
        find_recipe("bert-base")


SIZES = {
    "nreimers/BERT-Tiny_L-2_H-128_A-2": "tiny",
    "nreimers/BERT-Mini_L-4_H-256_A-4": "mini",
    "nreimers/BERT-Small-L-4_H-512_A-8": "small",
    "bert-base-uncased": "base",
    "bert-large-uncased": "large",
}
"""The SCT paper's five encoders, as its released scripts name them."""

SCT_TABLE_1 = {  # learning rate, queue, temperature of the references, of the encoder
    "tiny": (5e-4, 131072, 0.03, 0.04),
    "mini": (3e-4, 131072, 0.01, 0.03),
    "small": (3e-4, 65536, 0.02, 0.03),
    "base": (5e-4, 65536, 0.04, 0.05),
    "large": (5e-4, 16384, 0.04, 0.05),
}
SCT_RELEASED = {  # of its distillation
    "tiny": (5e-4, 131072, 0.03, 0.04),
    "mini": (1e-4, 65536, 0.04, 0.05),
    "small": (1e-4, 131072, 0.04, 0.05),
    "base": (1e-4, 65536, 0.04, 0.05),
}
CONGEN_RELEASED = {  # learning rate, queue, temperature of the teacher, of the student
    "tiny": (5e-4, 16384, 0.05, 0.05),
    "mini": (3e-4, 16384, 0.05, 0.07),
    "small": (3e-4, 65536, 0.05, 0.07),
    "base": (5e-5, 65536, 0.05, 0.07),
}


@pytest.mark.parametrize("name", [name for name in list_recipes() if name.split("/")[1].startswith("bert-")])
def test_recipes_of_five_berts_start_from_the_one_they_are_named_after(name):
    config = load_recipe(find_recipe(name))
    start = getattr(config, "start", None)
    if start is None or start.startswith(("runs/", "princeton-nlp/")):
        return
    assert SIZES[start.partition("@")[0]] == name.split("/bert-")[1].split("-")[0]
    assert ("@refs/pr/" in start) == ("Tiny" in start or "Small" in start)  # their main has pickles alone


@pytest.mark.parametrize("size", SCT_TABLE_1)
def test_scts_rows_have_the_settings_of_its_table_1(size):
    config = load_recipe(find_recipe(f"sct/bert-{size}"))
    found = (config.fit.learning_rate, config.queue_size, config.reference_temperature, config.temperature)
    assert found == SCT_TABLE_1[size]
    assert (config.fit.batch_size, config.fit.epochs, config.fit.eval_steps) == (128, 10, 64)


@pytest.mark.parametrize("size", SCT_RELEASED)
def test_distilled_rows_have_the_released_settings(size):
    sct, congen = (load_recipe(find_recipe(name)) for name in (f"sct/bert-{size}-two-step", f"congen/bert-{size}"))
    found = (sct.fit.learning_rate, sct.queue_size, sct.reference_temperature, sct.temperature)
    assert found == SCT_RELEASED[size]
    found = (congen.fit.learning_rate, congen.queue_size, congen.teacher_temperature, congen.temperature)
    assert found == CONGEN_RELEASED[size]
    assert {each.teacher for each in (sct, congen)} == {"princeton-nlp/unsup-simcse-bert-large-uncased@refs/pr/3"}
