"""DeCLUTR: a span of a document must find the mean of spans near it, and guess its own masked words."""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transencoder.losses.features import embed, join
from transencoder.losses.gathering import gathered
from transencoder.losses.masking import mask_tokens
from transencoder.losses.nt_xent import nt_xent


class DeCLUTRLoss(nn.Module):
    """DeCLUTR's loss for `SentenceTransformerTrainer`, ours and the plain one, on columns of spans.

    `nt_xent` between anchors and the means of their positives, plus the cross-entropy of the anchors' masked tokens,
    with equal weights (Giorgi et al., ACL 2021, equations 2 to 4). The anchors are embedded with their masks. A row is
    a document: an anchor and its positives, then the next anchor and its positives. Under several processes the spans
    of all of them are candidates.

    Args:
        model: The bi-encoder to train.
        n_positives: Spans that follow each anchor; DeCLUTR: 2.
        temperature: Above 0; DeCLUTR: 0.05.
        head: A masked language model whose encoder hands `inputs_embeds` on, so that it maps the model's token
            embeddings to logits; None: no masks.
        mask_token_id: The vocabulary's mask; needed with a head.
        special_ids: Tokens that are never masked.
        mask_ratio: Share of the anchors' tokens to guess; DeCLUTR: 0.15.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        n_positives: int = 2,
        temperature: float = 0.05,
        *,
        head: nn.Module | None = None,
        mask_token_id: int | None = None,
        special_ids: Iterable[int] = (),
        mask_ratio: float = 0.15,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0, DeCLUTR's is 0.05")
        if (head is None) != (mask_token_id is None):
            raise ValueError("head and mask_token_id belong together; give both, or neither")
        self.model = model
        self.n_positives = n_positives
        self.temperature = temperature
        self.head = head
        self.mask_token_id = mask_token_id
        self.special_ids = list(special_ids)
        self.mask_ratio = mask_ratio

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of each anchor and its positives, one column after the other.
            labels: Not used.
        """
        columns, group = list(sentence_features), 1 + self.n_positives
        anchors = join(columns[::group])
        positives = join([column for i, column in enumerate(columns) if i % group])
        n_documents = len(columns[0]["input_ids"])
        spans = embed(self.model, positives)
        means = spans.view(-1, self.n_positives, n_documents, spans.shape[1]).mean(1).flatten(0, 1)
        if self.head is None:
            return self._contrast(embed(self.model, anchors), means)
        embeddings, guess = self._guess(anchors)
        return self._contrast(embeddings, means) + guess

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        ratio = {} if self.head is None else {"mask_ratio": self.mask_ratio}
        return {"n_positives": self.n_positives, "temperature": self.temperature} | ratio

    def _contrast(self, anchors: Tensor, means: Tensor) -> Tensor:
        return nt_xent(gathered(anchors)[0], gathered(means)[0], self.temperature)

    def _guess(self, anchors: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The masked anchors' embeddings, and the mean cross-entropy of what is masked; 0 where nothing is."""
        assert self.head is not None and self.mask_token_id is not None
        ids = anchors["input_ids"]
        masked, is_chosen, _ = mask_tokens(
            ids,
            anchors["attention_mask"],
            self.mask_ratio,
            mask_token_id=self.mask_token_id,
            special_ids=self.special_ids,
            n_vocabulary=self.head.config.vocab_size,  # type: ignore[union-attr, arg-type]
        )
        output = self.model(anchors | {"input_ids": masked})
        logits = self.head(inputs_embeds=output["token_embeddings"][is_chosen][None]).logits[0]
        guess = cross_entropy(logits.float(), ids[is_chosen], reduction="sum") / max(1, len(logits))
        return output["sentence_embedding"], guess
