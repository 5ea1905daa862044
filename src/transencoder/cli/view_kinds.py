"""The kinds of views that can be typed, and what each is told."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.errors import InputError

if TYPE_CHECKING:
    from transencoder.views import View

AS_IS = "as-is"
_BACK = "back-translation"
_OPTIONS = {
    AS_IS: (),
    "span-mask": ("mask_token",),
    "word-deletion": ("share",),
    "synonyms": ("synonyms",),
    "mlm": ("mlm", "share"),
    _BACK: ("translations", "translate", "translate_back", "beams"),
}
"""Kind -> the options that it reads."""

KINDS = tuple(_OPTIONS)


def add_kind_options(parser: argparse.ArgumentParser) -> None:
    """What the views are made with."""
    group = parser.add_argument_group("views", "what they are made with")
    group.add_argument("--mask-token", metavar="TEXT", help="span-mask: what stands for the span (default: [MASK])")
    group.add_argument(
        "--share",
        type=float,
        metavar="X",
        help="share of the words that go, in word-deletion (default: 0.2) and mlm (default: 0.15)",
    )
    group.add_argument(
        "--synonyms", metavar="PATH", help="synonyms: file of lines word<TAB>synonym, or folder of WordNet's data files"
    )
    group.add_argument("--mlm", metavar="MODEL", help="mlm: masked language model, a folder or hub id")
    both = "; two: of --first and of --second"
    group.add_argument(
        "--translations",
        nargs="+",
        metavar="FILE",
        help=f"back-translation: file of texts and their back-translations{both}",
    )
    group.add_argument(
        "--translate",
        nargs="+",
        metavar="MODEL",
        help=f"back-translation: translation model, a folder or hub id{both}",
    )
    group.add_argument("--translate-back", nargs="+", metavar="MODEL", help=f"back-translation: its way back{both}")
    group.add_argument("--beams", type=int, metavar="N", help="back-translation: beams of the models (default: 1)")
    group.add_argument("--device", help="such as cpu or cuda:0, for all models (default: the best there is)")


def check_kinds(first: str, seconds: list[str], args: argparse.Namespace) -> None:
    """Refuse options that no view reads.

    Raises:
        InputError: There is one, or two values where one side alone is a back-translation.
    """
    read = {option for kind in (first, *seconds) for option in _OPTIONS[kind]}
    for option in sorted({option for options in _OPTIONS.values() for option in options} - read):
        if getattr(args, option) is not None:
            kinds = " and ".join(kind for kind, options in _OPTIONS.items() if option in options)
            raise InputError(f"{_flag(option)} is for {kinds}, which is not among the views. Leave it out.")
    n_allowed = 2 if first == _BACK and _BACK in seconds else 1
    for option in ("translations", "translate", "translate_back"):
        if len(given := getattr(args, option) or []) > n_allowed:
            raise InputError(
                f"{_flag(option)} has {len(given)} values for {n_allowed} of the sides --first and --second. Give one "
                "for both, or one for each that is a back-translation."
            )


def make_view(kind: str, side: int, args: argparse.Namespace) -> View:
    """A view from the options.

    Args:
        kind: One of `KINDS`.
        side: 0 for `--first`, -1 for `--second`.
        args: The options.

    Raises:
        InputError: An option is missing or cannot be used.
    """
    return _MAKERS[kind](side, args)


def _as_is(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import as_is

    return as_is


def _span_mask(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import SpanMask

    return SpanMask(mask_token="[MASK]" if args.mask_token is None else args.mask_token)


def _word_deletion(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import WordDeletion

    return WordDeletion(**_given(share=args.share))


def _synonyms(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import Synonyms, read_synonyms

    return Synonyms(table=read_synonyms(_required("synonyms", "synonyms", args)))


def _mlm(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import MaskedWords

    folder = _model(_required("mlm", "mlm", args), args)
    return MaskedWords(folder=folder, device=args.device, **_given(share=args.share))


def _back_translation(side: int, args: argparse.Namespace) -> View:
    from transencoder.views import BackTranslation, Translator, read_translations

    names = [args.translate, args.translate_back]
    if bool(args.translations) == any(names) or any(names) != all(names):
        raise InputError(
            "back-translation needs either --translations, a file, or --translate and --translate-back, two models. "
            "Give one of these."
        )
    if args.translations:
        return read_translations(args.translations[side], cache_folder=args.cache_dir)
    folders = [_model(models[side], args) for models in names]
    beams = _given(n_beams=args.beams)
    return BackTranslation(steps=tuple(Translator(folder=folder, device=args.device, **beams) for folder in folders))


_MAKERS: dict[str, Callable[[int, argparse.Namespace], View]] = {
    AS_IS: _as_is,
    "span-mask": _span_mask,
    "word-deletion": _word_deletion,
    "synonyms": _synonyms,
    "mlm": _mlm,
    _BACK: _back_translation,
}


def _given(**options: Any) -> dict[str, Any]:
    """Those that were typed; the others keep the view's default."""
    return {name: value for name, value in options.items() if value is not None}


def _required(option: str, kind: str, args: argparse.Namespace) -> str:
    value: str | None = getattr(args, option)
    if value is None:
        raise InputError(f"the view {kind} needs {_flag(option)}. `transencoder views --help` says what it is.")
    return value


def _model(name: str, args: argparse.Namespace) -> Path:
    from transencoder.encoders import fetch

    return fetch(name, token=args.token, cache_folder=args.cache_dir)


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
