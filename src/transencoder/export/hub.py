"""A trained model to the hub."""

import logging
from pathlib import Path

from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from transencoder.encoders import load_trained
from transencoder.errors import InputError

logger = logging.getLogger(__name__)

_CARD = "README.md"


def push(
    folder: Path,
    repo_id: str,
    *,
    is_private: bool = True,
    is_update: bool = False,
    branch: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model's folder as it is, its card included, by sentence-transformers' `push_to_hub`.

    Args:
        folder: A bi-encoder or a cross-encoder.
        repo_id: `name` or `owner/name`.
        is_private: Make the repository private, where it is new.
        is_update: Add a commit to a repository that is there; else it must be new.
        branch: Branch to push to; None: the main one.
        token: Hub token; None: the one you are logged in with.

    Returns:
        The commit's address.

    Raises:
        InputError: The folder holds no such model, the id is none, or the hub refuses.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"{repo_id!r} is no id of a repository: {error} Give name or owner/name") from error
    if not (folder / "modules.json").exists() and not (folder / "config_sentence_transformers.json").exists():
        raise InputError(f"{folder} is no sentence-transformers model; give a bi-encoder or a cross-encoder")
    if not (folder / _CARD).exists():
        logger.warning("%s has no model card (%s); the repository will have none", folder, _CARD)
    model = load_trained(folder, "cpu")
    try:
        return model.push_to_hub(
            repo_id, token=token, private=is_private, exist_ok=is_update, revision=branch, local_model_path=str(folder)
        )
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(
            f"{repo_id} could not be pushed ({reason}). Check the token, that it may write, and the network; where the "
            "repository is there already, say that it is an update (is_update, --update)"
        ) from error
