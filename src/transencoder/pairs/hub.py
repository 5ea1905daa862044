"""Data sets from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transencoder.wording import shorten

from ..errors import InputError
from .rows import warn_of_short_slice

if TYPE_CHECKING:
    from datasets import Dataset


def load_from_hub(
    hub_id: str,
    *,
    config: str | None,
    split: str | None,
    rows: tuple[int, int | None],
    revision: str | None,
    token: str | bool | None,
    cache_folder: Path | None,
    looked_in: str,
) -> tuple[str, Dataset]:
    """One split of a data set on the hub, and its name for messages.

    Args:
        hub_id: such as `mteb/sts12-sts`.
        config: the data set's configuration (`qnli` of `nyu-mll/glue`).
        split: such as `test`; may be left out when there is only one.
        rows: first row and the one after the last.
        revision: a commit, tag or branch.
        token: for private data sets; None takes the one that `hf auth login` stored.
        cache_folder: where downloads go; None is the hub's own cache.
        looked_in: where it was looked for before, for the message.

    Raises:
        InputError: the id cannot be loaded, or has several splits and none is stated.
    """
    import datasets

    try:
        loaded = datasets.load_dataset(
            hub_id,
            config,
            split=split,
            revision=revision,
            token=token,
            cache_dir=str(cache_folder / "hub") if cache_folder else None,
        )
    except Exception as error:  # load_dataset raises many kinds, most without the id
        asked = ", ".join(
            f"{key} {value}" for key, value in (("config", config), ("split", split), ("revision", revision)) if value
        )
        raise InputError(
            f"{hub_id}{f' ({asked})' if asked else ''} could not be loaded. Tried: a path of that name "
            f"(none), {looked_in}, the hub ({type(error).__name__}: {shorten(str(error), 300)}). Check the "
            "id and the network; a private one needs a token. Without the network, state a local file, or a "
            f"data folder that holds {hub_id}{f'/{config}' if config else ''}/{split or 'train'}.jsonl.gz "
            "(data_folder, --data-dir or TRANSENCODER_DATA)."
        ) from error
    if isinstance(loaded, datasets.DatasetDict):
        if len(loaded) != 1:
            raise InputError(
                f"{hub_id} has the splits {', '.join(loaded)} and none is stated. State one of them "
                "(split=..., --split)."
            )
        split, loaded = next(iter(loaded.items()))
    start, stop = rows
    end = len(loaded) if stop is None else min(stop, len(loaded))
    name = f"{hub_id}{f'/{config}' if config else ''}/{split}"
    warn_of_short_slice(name, max(0, end - start), rows)
    return name, loaded.select(range(min(start, end), end))
