"""mteb measures what a run saves: a made-up task of its own kind, and the number that `evaluate` gives."""

import gc
import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None,
    reason="mteb, 270 MB with what it needs, is not installed: the extra `mteb`",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of another package's own
def test_mteb_runs_on_a_saved_bi_encoder(tiny_method, tiny_pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import mteb
    from datasets import DatasetDict
    from mteb.abstasks import AbsTaskSTS
    from sentence_transformers import SentenceTransformer

    from transencoder import train
    from transencoder.evaluation import evaluate
    from transencoder.scorers import BiScorer

    gc.freeze()  # mteb's objects, at which the tests after this one would look whenever they collect garbage
    scored = tiny_pairs.select(range(100, 160))

    class Planted(AbsTaskSTS):
        metadata = mteb.TaskMetadata(
            name="Planted",
            description="Made-up pairs that share topics.",
            dataset={"path": "made/up", "revision": "1"},
            type="STS",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )

        def load_data(self, *_, **__):
            self.dataset, self.data_loaded = DatasetDict(test=scored), True

    folder = train(tiny_method(output=str(tmp_path / "run"))).folder / "bi-encoder"
    model = SentenceTransformer(str(folder), device="cpu")
    found = mteb.evaluate(model, Planted(), cache=None, co2_tracker=False, show_progress_bar=False)
    (scores,) = found.task_results[0].scores["test"]
    expected = evaluate(BiScorer(model, precision="fp32"), scored)
    assert 100 * scores["cosine_spearman"] == pytest.approx(expected, abs=1e-3)
