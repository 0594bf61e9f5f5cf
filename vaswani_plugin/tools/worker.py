"""One process of a training: the toolkit's ``fairseq-train``, started by ``vaswani-train`` with the same options.

It ends when the process that started it is gone, so that no orphan writes into a folder in which the training has been
started again, and says in one line which checkpoint cannot be read or written, or which option has a wrong value.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, where there is such a kernel (Linux).

    Args:
        parent: the parent's process id; when it is not the parent any more, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the process that started this worker is gone")


def _is_refusal(error: BaseException) -> bool:
    """Whether a value or a file is refused: by our own code, or by the toolkit, which raises plain exceptions then.

    Anything else keeps its traceback, since it may be a bug.
    """
    if type(error) is Exception:
        return True
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    raised_in = frame.tb_frame.f_globals.get("__name__", "") if frame is not None else ""
    return isinstance(error, ValueError) and raised_in.startswith("vaswani_plugin.")


def train() -> int:
    """Be ``fairseq-train`` with the words in ``sys.argv``; returns the exit status."""
    from fairseq_cli.train import cli_main

    from vaswani_plugin.toolkit import CheckpointError

    try:
        cli_main()
    except Exception as error:
        if not (isinstance(error, (CheckpointError, OSError)) or _is_refusal(error)):
            raise
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Train; the first argument is the parent's process id, the others are ``fairseq-train``'s."""
    die_with(int(sys.argv.pop(1)))
    sys.argv[0] = "fairseq-train"  # as which its parser complains
    return train()


if __name__ == "__main__":
    sys.exit(main())
