"""Label-free training of sentence-pair models: bi-encoders and cross-encoders that teach each other."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transencoder.configs import FitConfig as FitConfig
    from transencoder.configs import Member as Member
    from transencoder.configs import OtherTeacher as OtherTeacher
    from transencoder.configs import PretrainingConfig as PretrainingConfig
    from transencoder.errors import InputError as InputError
    from transencoder.errors import RunError as RunError
    from transencoder.errors import TransencoderError as TransencoderError
    from transencoder.inference import evaluate as evaluate
    from transencoder.inference import load_scorer as load_scorer
    from transencoder.inference import score as score
    from transencoder.methods import *  # noqa: F403
    from transencoder.mining import Mined as Mined
    from transencoder.mining import mine as mine
    from transencoder.pairs import read_pairs as read_pairs
    from transencoder.pairs import read_sentences as read_sentences
    from transencoder.scorers import BiScorer as BiScorer
    from transencoder.scorers import CrossScorer as CrossScorer
    from transencoder.scorers import MeanScorer as MeanScorer
    from transencoder.training import Plan as Plan
    from transencoder.training import Trained as Trained
    from transencoder.training import plan as plan
    from transencoder.training import train as train

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "configs": ("FitConfig", "Member", "OtherTeacher", "PretrainingConfig"),
        "errors": ("InputError", "RunError", "TransencoderError"),
        "inference": ("evaluate", "load_scorer", "score"),
        "mining": ("Mined", "mine"),
        "pairs": ("read_pairs", "read_sentences"),
        "scorers": ("BiScorer", "CrossScorer", "MeanScorer"),
        "training": ("Plan", "Trained", "plan", "train"),
    }.items()
    for name in names
}
"""Module of each public name; all other names are in `methods`."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because importing sentence-transformers takes seconds."""
    home = import_module(f"transencoder.{_HOMES.get(name, 'methods')}")
    if name not in _HOMES:
        methods = ["METHODS", *(method.__name__ for method in home.METHODS.values())]
        if name == "__all__":
            return [*_HOMES, *methods]
        if name not in methods:
            raise AttributeError(f"module 'transencoder' has no attribute {name!r}")
    return getattr(home, name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(["__version__", *__getattr__("__all__")])
