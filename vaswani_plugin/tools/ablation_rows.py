"""The rows of Table 3: what each changes in the base model, what the paper found, and the orderings that it drew.

Source: Vaswani et al. 2017, Table 3 and section 6.2: perplexity of a word piece and BLEU on newstest2013, en-de.

Shrunk by F, every width of a row is divided by F (d_model, d_ff, d_k, d_v) and the number of heads stays, so that the
proportions of all rows stay: h d_k = d_model, d_ff = 4 d_model, big twice as wide as base. F divides 16, the smallest
width in the table. Optionally the numbers of layers, which are all even, are halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.tools.cli import CommandError

SHRINKS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Row:
    """A row of Table 3.

    Attributes:
        arch: its architecture.
        change: what the paper's row says, at full size.
        ppl, bleu, millions: the paper's perplexity, BLEU and parameters; None where it gives none.
        smoothing: eps_ls.
        length: updates, in those of base.
    """

    arch: str
    change: str
    ppl: float
    bleu: float
    millions: Optional[int] = None
    smoothing: float = 0.1
    length: int = 1


ROWS: Dict[str, Row] = {
    "base": Row("vaswani_base", "", 4.92, 25.8, 65),
    "A-h1": Row("vaswani_a_h1", "h 1, d_k = d_v 512", 5.29, 24.9),
    "A-h4": Row("vaswani_a_h4", "h 4, d_k = d_v 128", 5.00, 25.5),
    "A-h16": Row("vaswani_a_h16", "h 16, d_k = d_v 32", 4.91, 25.8),
    "A-h32": Row("vaswani_a_h32", "h 32, d_k = d_v 16", 5.01, 25.4),
    "B-dk16": Row("vaswani_b_dk16", "d_k 16", 5.16, 25.1, 58),
    "B-dk32": Row("vaswani_b_dk32", "d_k 32", 5.01, 25.4, 60),
    "C-n2": Row("vaswani_c_n2", "N 2", 6.11, 23.7, 36),
    "C-n4": Row("vaswani_c_n4", "N 4", 5.19, 25.3, 50),
    "C-n8": Row("vaswani_c_n8", "N 8", 4.88, 25.5, 80),
    "C-d256": Row("vaswani_c_d256", "d_model 256, d_k = d_v 32", 5.75, 24.5, 28),
    "C-d1024": Row("vaswani_c_d1024", "d_model 1024, d_k = d_v 128", 4.66, 26.0, 168),
    "C-ff1024": Row("vaswani_c_ff1024", "d_ff 1024", 5.12, 25.4, 53),
    "C-ff4096": Row("vaswani_c_ff4096", "d_ff 4096", 4.75, 26.2, 90),
    "D-dropout0": Row("vaswani_d_dropout0", "P_drop 0.0", 5.77, 24.6),
    "D-dropout2": Row("vaswani_d_dropout2", "P_drop 0.2", 4.95, 25.5),
    "D-smoothing0": Row("vaswani_base", "eps_ls 0.0", 4.67, 25.3, smoothing=0.0),
    "D-smoothing2": Row("vaswani_base", "eps_ls 0.2", 5.47, 25.7, smoothing=0.2),
    "E-learned": Row("vaswani_e_learned", "learned positions", 4.92, 25.7),
    "big": Row("vaswani_big", "d_model 1024, d_ff 4096, h 16, P_drop 0.3", 4.33, 26.4, 213, length=3),
}


@dataclass(frozen=True)
class Ordering:
    """What section 6.2 says of two rows; ``better`` is None where they do the same.

    Attributes:
        claim: in words.
        better, worse: names of rows; where ``same``, the two that do the same.
        metric: "ppl", where less is better, or "bleu".
    """

    claim: str
    better: str
    worse: str
    metric: str
    same: bool = False


def _chain(claim: str, names: str, metrics: str = "ppl bleu") -> List[Ordering]:
    """Each of the names, the best first, is better than the next by every metric."""
    best_first = names.split()
    return [
        Ordering(claim, better, worse, metric)
        for metric in metrics.split()
        for better, worse in zip(best_first, best_first[1:])
    ]


ORDERINGS: List[Ordering] = [
    *_chain("A: one head is worse than eight", "base A-h1"),
    *_chain("A: quality drops with too many heads", "base A-h32"),
    *_chain("B: smaller keys hurt", "base B-dk32 B-dk16"),
    *_chain("C: more layers are better", "base C-n4 C-n2"),
    *_chain("C: more layers are better", "C-n8 base", "ppl"),
    *_chain("C: wider models are better", "C-d1024 base C-d256"),
    *_chain("C: wider feed-forward networks are better", "C-ff4096 base C-ff1024"),
    *_chain("D: dropout helps", "base D-dropout0"),
    *_chain("D: label smoothing hurts perplexity", "D-smoothing0 base D-smoothing2", "ppl"),
    *_chain("D: label smoothing helps BLEU", "base D-smoothing0", "bleu"),
    Ordering("E: learned positions do as well", "base", "E-learned", "ppl", same=True),
    Ordering("E: learned positions do as well", "base", "E-learned", "bleu", same=True),
    *_chain("big is best", "big base"),
]


def check_shrink(factor: int) -> None:
    """Refuse a factor that does not divide every width.

    Raises:
        CommandError: it does not.
    """
    if factor not in SHRINKS:
        raise CommandError(f"--shrink must be one of {', '.join(map(str, SHRINKS))}, but is {factor}")


def model_options(row: Row, factor: int, halve_layers: bool) -> Dict[str, Any]:
    """The options of a row's model that differ from its architecture's when it is shrunk."""
    options = ARCHITECTURES[row.arch]
    changed: Dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        if factor > 1:
            for name in ("embed_dim", "ffn_embed_dim"):
                changed[f"{side}_{name}"] = options[f"{side}_{name}"] // factor
        if halve_layers:
            changed[f"{side}_layers"] = options[f"{side}_layers"] // 2
    if factor > 1 and options.get("attention_key_dim"):
        changed["attention_key_dim"] = options["attention_key_dim"] // factor
    return changed


def sizes(row: Row, factor: int, halve_layers: bool) -> Dict[str, Any]:
    """A row's settings in the paper's symbols, as trained."""
    options = {**ARCHITECTURES[row.arch], **model_options(row, factor, halve_layers)}
    d_model, heads = options["encoder_embed_dim"], options["encoder_attention_heads"]
    return {
        "N": options["encoder_layers"],
        "d_model": d_model,
        "d_ff": options["encoder_ffn_embed_dim"],
        "h": heads,
        "d_k": options.get("attention_key_dim") or d_model // heads,
        "d_v": d_model // heads,
        "P_drop": options["dropout"],
        "eps_ls": row.smoothing,
    }


def chosen(names: Optional[List[str]]) -> Dict[str, Row]:
    """The named rows, or all, in the table's order; a letter stands for its whole block.

    Raises:
        CommandError: there is no such row.
    """
    if not names:
        return dict(ROWS)
    wanted: List[Tuple[str, ...]] = []
    for name in names:
        found = tuple(row for row in ROWS if row.lower() == name.lower() or row.split("-")[0].lower() == name.lower())
        if not found:
            raise CommandError(f"--rows {name}: no such row; they are {', '.join(ROWS)}, and A to E for whole blocks")
        wanted.append(found)
    return {name: row for name, row in ROWS.items() if any(name in found for found in wanted)}
