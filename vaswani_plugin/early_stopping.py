"""The count of ``--patience`` over restarts.

Differs from: the toolkit, which keeps the best loss and the number of validations without a better one as attributes of
a function, so that each restart counts anew and a run that is often interrupted never ends early. Until the toolkit
writes them into its checkpoints.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Optional

import fairseq.trainer

from .toolkit import replace_once

#: Where it lies in a checkpoint: ``extra_state[KEY]``.
KEY = "early_stopping"


def _counter() -> Optional[Any]:
    """The toolkit's function that holds the count; the module that has it may be the program itself."""
    for name in ("__main__", "fairseq_cli.train"):
        found = getattr(sys.modules.get(name), "should_stop_early", None)
        if found is not None:
            return found
    return None


def _save(original: Callable[..., Any], trainer: Any, filename: str, extra_state: Dict[str, Any]) -> Any:
    counted = vars(_counter()) if _counter() is not None else {}
    count = {name: counted[name] for name in ("best", "num_runs") if name in counted}
    return original(trainer, filename, {**extra_state, KEY: count} if count else extra_state)


def _load(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    extra_state = original(trainer, *args, **options)
    checkpoint, counter = trainer.cfg.checkpoint, _counter()
    anew = checkpoint.reset_meters or checkpoint.reset_optimizer  # where the toolkit forgets the best loss, too
    if extra_state is not None and counter is not None and not anew:
        vars(counter).update(extra_state.get(KEY, {}))
    return extra_state


def install() -> None:
    """Puts this in place in the toolkit's trainer; doing so twice changes nothing."""
    replace_once(fairseq.trainer.Trainer, "save_checkpoint", _save)
    replace_once(fairseq.trainer.Trainer, "load_checkpoint", _load)
