"""Members of a run: fetch and check their base models, and collect their models and settings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from transencoder.configs import Member
from transencoder.context import Model, base_model
from transencoder.cycles import ContextMember
from transencoder.encoders import check_length, has_mean_pooling, is_cross, load_bi, weights_tokens
from transencoder.errors import InputError, plural
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.models import warn_of_unused_prompts
from transencoder.training.parts import fetched

logger = logging.getLogger(__name__)

_LESS_EVEN = -3.15
"""Uniformity above which a base model looks as if it was trained without labels. On the pairs of ten domains, two such
models had -1.9 to -3.1, and all-MiniLM-L6-v2 had -3.4 to -3.8 (LOG.md, 2026-11-25); on film reviews it had -3.2."""

_TEACHES_TO_COMPARE = 40_000
"""Number of pairs, each order counted, after which a cross-encoder of three layers had learned to compare two texts;
after 25,000 it had not (LOG.md, 2026-11-25)."""

Folders = tuple[Path, Path]
"""Folders of a member's base models: the bi-encoder's and the cross-encoder's."""


def fetch_bases(config: TransEncoder) -> list[Folders]:
    """Return the folders of each member's base models; download those that are not local.

    Raises:
        InputError: A model cannot be loaded; the message has its member's number if there are several.
    """
    folders = []
    for number, member in enumerate(config.members, 1):
        with _numbered(number, config):
            bi = cross = fetched(config, member.start, "bi", member.revision)
            if member.cross_start is not None:
                cross = fetched(config, member.cross_start, "cross", member.cross_revision)
        folders.append((bi, cross))
        warn_of_unused_prompts(bi, member.start, member.prompts)
    return folders


def members_of(config: TransEncoder, folders: Sequence[Folders]) -> tuple[ContextMember, ...]:
    """Return the models and settings that each member takes part with.

    Args:
        config: Config with every field filled in.
        folders: Folders of each member's base models.

    Raises:
        InputError: A base model reads fewer tokens than the config asks for.
    """
    members = []
    for position, (member, (bi, cross)) in enumerate(zip(config.members, folders, strict=True)):
        with _numbered(position + 1, config):
            _check_lengths(member, bi, cross, config)
        prefix = f"member-{position + 1}/" if len(config.members) > 1 else ""
        start = base_model(bi, f"{prefix}start", pooling=member.pooling, prompts=member.prompts, member=position)
        cross_start = base_model(cross, f"{prefix}cross-start", form="cross", member=position)
        members.append(ContextMember(prefix=prefix, bi=start, cross=cross_start, config=member))
    if not config.same_form:
        _tell_of_pretrained(members)
    return tuple(members)


def can_be_weighted(base: Model) -> bool:
    """Return whether a base model averages its tokens without weights."""
    if weights_tokens(base.folder):
        return False
    return has_mean_pooling(load_bi(base.folder, pooling=base.pooling, device="cpu"))


def warn_of_untaught(config: TransEncoder, members: Iterable[ContextMember], n_pairs: int) -> None:
    """Warn if a cross-encoder's base model is no cross-encoder, and the pairs are too few to teach it to compare.

    Args:
        config: Config with every field filled in.
        members: Members of the run.
        n_pairs: Number of pairs that each member trains on; both orders count as one.
    """
    if config.same_form:
        return
    for member in members:
        own, epochs = member.config, config.fit_of(member.config, "cross").epochs or 1
        n_read = n_pairs * epochs * (2 if config.is_symmetric else 1)
        if n_read < _TEACHES_TO_COMPARE and not is_cross(member.cross.folder):
            logger.warning(
                "the cross-encoder starts from %s, which is no cross-encoder, and reads %s; small models needed some "
                "%s to learn to compare two texts. Train one on general text first, `transencoder train --recipe "
                "trans-encoder/minilm-general --sentences FILE --start %s --output RUN`, and give --cross-start RUN",
                *(own.cross_start or own.start, plural(n_read, "pair"), f"{_TEACHES_TO_COMPARE:,}", own.start),
            )


def looks_unlabelled(criteria: Mapping[str, float | None]) -> bool | None:
    """Return whether a base model looks as if it was trained without labels; None: its uniformity is unknown.

    Args:
        criteria: Its criteria, computed on held-out pairs without labels.
    """
    evenness = criteria.get("uniformity")
    return None if evenness is None else -evenness > _LESS_EVEN


@contextmanager
def _numbered(number: int, config: TransEncoder) -> Iterator[None]:
    """Add the member's number to the message of an error, if there are several members."""
    try:
        yield
    except InputError as error:
        raise InputError(f"member {number}: {error}" if len(config.members) > 1 else str(error)) from error


def _check_lengths(member: Member, start: Path, cross_start: Path, config: TransEncoder) -> None:
    check_length(start, config.bi.max_length, "bi.max_length", member.start)
    if not config.same_form:
        typed = member.cross_start or member.start
        check_length(cross_start, config.cross.max_length, "cross.max_length", typed)
        check_length(cross_start, config.cross_test_length, "cross_test_length", typed)


def _tell_of_pretrained(members: Iterable[ContextMember]) -> None:
    """Log the model that a base model was made from, if its card names one that the cross-encoder could start from."""
    for member in members:
        named = member.bi.card.get("base_model")
        if member.config.cross_start is None and isinstance(named, str):
            logger.info(
                "the cross-encoder starts from %s too; --cross-start %s, which its card names as its base model, would "
                "be the paper's way",
                member.config.start,
                named,
            )
