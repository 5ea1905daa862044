"""Evaluate both models of a cycle on dev, for every side with sentence-transformers' own evaluators in fp32."""

import argparse
import json
from pathlib import Path

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderCorrelationEvaluator
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator


def main() -> None:
    """Evaluate the two models and write the metrics, times 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder with bi-encoder and cross-encoder")
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with options.dev.open() as file:
        rows = [json.loads(line) for line in file]
    first, second, gold = ([row[name] for row in rows] for name in ("sentence1", "sentence2", "score"))
    bi = EmbeddingSimilarityEvaluator(first, second, gold, main_similarity="cosine")
    cross = CrossEncoderCorrelationEvaluator(list(zip(first, second, strict=True)), gold)
    metrics = {
        "cross": cross(CrossEncoder(str(options.models / "cross-encoder")))["spearman"],
        "bi": bi(SentenceTransformer(str(options.models / "bi-encoder")))["spearman_cosine"],
    }
    options.output.write_text(json.dumps({form: 100 * float(value) for form, value in metrics.items()}))


if __name__ == "__main__":
    main()
