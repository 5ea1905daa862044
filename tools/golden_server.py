"""The process in which `golden.py` runs a side's commands: libraries are imported once, and each command is a fork.

For each line of JSON on its input, `{"argv": [...], "folder": "..."}`, it prints one line:
`{"code": 0, "stdout": "...", "stderr": "..."}`.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, Any

import datasets  # noqa: F401
import matplotlib.figure  # noqa: F401
import scipy.stats  # noqa: F401
import sentence_transformers.cross_encoder.trainer
import sentence_transformers.sentence_transformer.trainer  # noqa: F401


def main() -> None:
    """Answer each line of the standard input."""
    for line in sys.stdin:
        print(json.dumps(_answer(**json.loads(line))), flush=True)


def _answer(argv: list[str], folder: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        process = os.fork()
        if process == 0:
            _become(argv, folder, printed, said)
        _, status = os.waitpid(process, 0)
        texts = [_text(file) for file in (printed, said)]
    return {"code": os.waitstatus_to_exitcode(status), "stdout": texts[0], "stderr": texts[1]}


def _become(argv: list[str], folder: str, printed: IO[bytes], said: IO[bytes]) -> None:
    """Run the command in its folder, then exit; never return."""
    code = 1
    try:
        for number, file in enumerate((open(os.devnull, "rb"), printed, said)):
            os.dup2(file.fileno(), number)
        os.chdir(folder)
        sys.argv = ["transencoder", *argv]
        from transencoder.cli import main as run_command

        code = run_command(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")


if __name__ == "__main__":
    checked = Path(sys.argv[1]).resolve()  # the requested code, not an installed package
    import transencoder

    if not Path(transencoder.__file__).resolve().is_relative_to(checked):
        sys.exit(f"{transencoder.__file__} is not below {checked}")
    main()
