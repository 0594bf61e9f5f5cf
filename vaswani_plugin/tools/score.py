"""``vaswani-score``: BLEU and chrF of translations against the raw reference, each with what it was made by.

The numbers to quote are sacreBLEU's, with the signature. The paper's own (Table 2) are older: BLEU of tokenised text in
which hyphenated compounds are split. ``--tokenised`` and ``--compound-split`` give that one, as an extra, for German:
both sides get the Moses tokens and then ``s/(\\S)-(\\S)/\\1 ##AT##-##AT## \\2/g``, as in the script published with
tensor2tensor. Differs from it in that the reference is tokenised here, from the raw file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from vaswani_plugin.tools.bpe import detokenise, has_joiner, join_merges, warn_of_language
from vaswani_plugin.tools.cli import (
    CommandError,
    atomic_path,
    help_texts,
    plural,
    read_lines,
    refuse_overwriting,
    run_command,
)
from vaswani_plugin.tools.generation_log import read_log

WORD_MARK = "\u2581"  # what SentencePiece puts before a word
_COMPOUND = re.compile(r"(\S)-(\S)")


def join_pieces(text: str) -> str:
    """Return the text of SentencePiece pieces that are separated by blanks, as the model's own decoder would."""
    return text.replace(" ", "").replace(WORD_MARK, " ").strip(" ")


def split_compounds(tokens: str) -> str:
    """Split hyphenated compounds: ``Science-Fiction`` becomes ``Science ##AT##-##AT## Fiction``.

    Matches do not overlap, as in the published script: ``a-b-c`` is split once.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def moses_tokens(lines: Sequence[str], language: str, compound_split: bool) -> List[str]:
    """Return each line as Moses tokens separated by blanks, compounds split on request."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    tokenised = [tokenizer.tokenize(line, return_str=True) for line in lines]
    return [split_compounds(line) for line in tokenised] if compound_split else tokenised


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Dict[str, Any]:
    """Return sacreBLEU and chrF with their signatures, and how many sentences they cover."""
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return {
        "sentences": len(hypotheses),
        "bleu": {"score": bleu_score.score, "text": str(bleu_score), "signature": str(bleu.get_signature())},
        "chrf": {"score": chrf_score.score, "text": str(chrf_score), "signature": str(chrf.get_signature())},
    }


def tokenised_score(
    hypotheses: Sequence[str], references: Sequence[str], language: str, compound_split: bool
) -> Dict[str, Any]:
    """Return the BLEU of Moses tokens, with a signature that says how the tokens were made."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(tokenize="none", force=True)
    result = bleu.corpus_score(
        moses_tokens(hypotheses, language, compound_split), [moses_tokens(references, language, compound_split)]
    )
    tokens = f"tokens:moses-{language}" + ("+compound-split" if compound_split else "")
    return {"score": result.score, "text": str(result), "signature": f"{bleu.get_signature()}|{tokens}"}


def read_hypotheses(args: argparse.Namespace) -> Dict[str, List[Optional[str]]]:
    """Return the hypotheses and, as far as they are known, the sources, in the order of the data."""
    if args.log is not None:
        sentences = read_log(args.log, args.nbest)
        hypotheses: List[Optional[str]] = [sentence.best() for sentence in sentences]
        sources = [sentence.source for sentence in sentences]
    else:
        hypotheses = list(read_lines(args.hyp))
        sources = [None] * len(hypotheses)
    if args.src is not None:
        sources = list(read_lines(args.src))
        check_counts(args.src, len(sources), str(args.log or args.hyp), len(hypotheses))
    if args.sentencepiece:
        hypotheses = [join_pieces(text or "") for text in hypotheses]
        if args.src is None:
            sources = [None if text is None else join_pieces(text) for text in sources]
    if args.subword_nmt:
        hypotheses = [detokenise(join_merges(text or ""), args.lang) for text in hypotheses]
        if args.src is None:
            sources = [None if text is None else join_merges(text) for text in sources]
    return {"hypotheses": hypotheses, "sources": sources}


def check_counts(first: Any, first_count: int, second: Any, second_count: int) -> None:
    """Refuse two files of different lengths."""
    if first_count != second_count:
        raise CommandError(
            f"{first} has {plural(first_count, 'line')} but {second} has {plural(second_count, 'sentence')}"
        )


def warn_of_pieces(path: Any, lines: Sequence[str], advice: str) -> None:
    """Say on stderr where text is in pieces, since every score of it is then meaningless."""
    marked = sum(WORD_MARK in line or has_joiner(line) for line in lines)
    if marked:
        text = f"{path}: {plural(marked, 'line')} with the marks of pieces, {WORD_MARK} or @@; {advice}"
        print(f"warning: {text}", file=sys.stderr)


def print_samples(texts: Dict[str, List[Optional[str]]], references: Sequence[str], count: int) -> None:
    """Print translations, spread evenly over the data, each under its source and above its reference."""
    hypotheses, sources = texts["hypotheses"], texts["sources"]
    count = min(count, len(hypotheses))
    for number in range(count):
        index = number * len(hypotheses) // count
        print(f"[{index}]")
        if sources[index] is not None:
            print(f"  source:      {sources[index]}")
        print(f"  translation: {hypotheses[index]}")
        print(f"  reference:   {references[index]}")


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(prog="vaswani-score", description=help_texts(__doc__)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--log", type=Path, metavar="FILE", help="standard output of fairseq-generate")
    what.add_argument("--hyp", type=Path, metavar="FILE", help="translations, one a line")
    parser.add_argument("--ref", type=Path, required=True, metavar="FILE", help="the raw reference, one a line")
    parser.add_argument("--src", type=Path, metavar="FILE", help="the raw source, for --samples")
    parser.add_argument("--nbest", type=int, metavar="N", help="with --log: the size of its n-best lists")
    pieces = parser.add_mutually_exclusive_group()
    pieces.add_argument("--sentencepiece", action="store_true", help="join SentencePiece pieces to text first")
    pieces.add_argument(
        "--subword-nmt", action="store_true", help="join pieces that end in @@ and undo the Moses tokens (--lang) first"
    )
    parser.add_argument("--tokenised", action="store_true", help="also give the BLEU of Moses tokens")
    parser.add_argument("--lang", default="de", metavar="LANG", help="language of the Moses tokens (default: de)")
    parser.add_argument("--compound-split", action="store_true", help="also split compounds in the Moses tokens (de)")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="print N translations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    return parser


def run(args: argparse.Namespace) -> None:
    """Score, print, and write the JSON file."""
    if args.json is not None:
        refuse_overwriting(args.json, [path for path in (args.log, args.hyp, args.ref, args.src) if path is not None])
    texts, references = read_hypotheses(args), list(read_lines(args.ref))
    check_counts(args.ref, len(references), str(args.log or args.hyp), len(texts["hypotheses"]))
    if not references:
        raise CommandError(f"{args.ref}: empty file")
    hypotheses = [text or "" for text in texts["hypotheses"]]
    warn_of_pieces(args.log or args.hyp, hypotheses, "--sentencepiece or --subword-nmt joins them")
    warn_of_pieces(args.ref, references, "the reference is to be the raw text")
    if args.tokenised or args.subword_nmt:
        warn_of_language(args.lang, "--lang")
    result = score(hypotheses, references)
    if args.tokenised:
        result["tokenised_bleu"] = tokenised_score(hypotheses, references, args.lang, compound_split=False)
    if args.compound_split:
        result["compound_split_bleu"] = tokenised_score(hypotheses, references, args.lang, compound_split=True)
    if args.samples > 0:
        print_samples(texts, references, args.samples)
    for name, entry in result.items():
        if isinstance(entry, dict):
            print(f"{name}: {entry['text']}\n  {entry['signature']}")
    if args.json is not None:
        with atomic_path(args.json) as partial:
            partial.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.compound_split and args.lang != "de":
        parser.error(f"--compound-split is defined for German only, not for --lang {args.lang}")
    if args.nbest is not None and (args.log is None or args.nbest < 1):
        parser.error("--nbest N goes with --log and is at least 1")
    if args.samples < 0:
        parser.error(f"--samples must be at least 0, not {args.samples}")
    return run_command("vaswani-score", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
