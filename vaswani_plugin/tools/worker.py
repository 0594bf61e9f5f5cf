"""One process of a training: the toolkit's ``fairseq-train``, started by ``vaswani-train`` with the same options.

It ends when the process that started it is gone, so that no orphan writes into a folder in which the training has been
started again, and says in one line which checkpoint cannot be read or written.
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


def train() -> int:
    """Be ``fairseq-train`` with the words in ``sys.argv``; returns the exit status."""
    from fairseq_cli.train import cli_main

    from vaswani_plugin.toolkit import CheckpointError

    try:
        cli_main()
    except (CheckpointError, OSError) as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Train; the first argument is the parent's process id, the others are ``fairseq-train``'s."""
    die_with(int(sys.argv.pop(1)))
    return train()


if __name__ == "__main__":
    sys.exit(main())
