"""The named architectures: base, big, every row of Table 3 and the parsing model of Vaswani et al. 2017.

Row D's label smoothing is an option of the criterion (``--label-smoothing``), not an architecture.
"""

from functools import partial
from typing import Any, Dict

from fairseq.models import register_model_architecture

from .config import BASE, fill_missing


def _sides(**changes: Any) -> Dict[str, Any]:
    """The same changes on the encoder's and the decoder's side."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in changes.items()}


_BIG: Dict[str, Any] = {**_sides(embed_dim=1024, ffn_embed_dim=4096, attention_heads=16), "dropout": 0.3}

#: What each architecture changes in the base model.
CHANGES: Dict[str, Dict[str, Any]] = {
    "vaswani_tiny": {  # not the paper's: for small corpora and CPUs
        **_sides(embed_dim=128, ffn_embed_dim=256, layers=4, attention_heads=4),
        "dropout": 0.3,
    },
    "vaswani_base": {},
    "vaswani_big": _BIG,
    "vaswani_big_en_fr": {**_BIG, "dropout": 0.1},
    "vaswani_parsing": {**_BIG, **_sides(layers=4)},  # section 6.3 gives 4 layers of width 1024; the rest as in big
    "vaswani_a_h1": _sides(attention_heads=1),
    "vaswani_a_h4": _sides(attention_heads=4),
    "vaswani_a_h16": _sides(attention_heads=16),
    "vaswani_a_h32": _sides(attention_heads=32),
    "vaswani_b_dk16": {"attention_key_dim": 16},
    "vaswani_b_dk32": {"attention_key_dim": 32},
    "vaswani_c_n2": _sides(layers=2),
    "vaswani_c_n4": _sides(layers=4),
    "vaswani_c_n8": _sides(layers=8),
    "vaswani_c_d256": _sides(embed_dim=256),
    "vaswani_c_d1024": _sides(embed_dim=1024),
    "vaswani_c_ff1024": _sides(ffn_embed_dim=1024),
    "vaswani_c_ff4096": _sides(ffn_embed_dim=4096),
    "vaswani_d_dropout0": {"dropout": 0.0},
    "vaswani_d_dropout2": {"dropout": 0.2},
    "vaswani_e_learned": _sides(learned_pos=True),
}

#: Every option of every architecture.
ARCHITECTURES: Dict[str, Dict[str, Any]] = {name: {**BASE, **changes} for name, changes in CHANGES.items()}


def register_architecture(name: str, preset: Dict[str, Any]) -> None:
    """Let ``--arch name`` stand for the options of a preset; options given on the command line win.

    Args:
        preset: options of ``VaswaniConfig``; those left out are the base model's.

    Raises:
        ValueError: the name is taken.
    """
    register_model_architecture("vaswani_transformer", name)(partial(fill_missing, preset={**BASE, **preset}))


for _name, _preset in ARCHITECTURES.items():
    register_architecture(_name, _preset)
