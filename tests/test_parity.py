"""The toolkit's own Transformer and ours on the same weights: logits, attention, loss, gradients and translations.

Both models are built in this process and ours takes over the toolkit's weights, so what is compared is the computation.
Sources are padded on the left and targets on the right, as the toolkit's translation task does.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.sequence_generator import SequenceGenerator
from toolkit_runner import PLUGIN, CopyTask, run
from torch import Tensor

from vaswani_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.transformer import VaswaniTransformer

PAD, EOS, FIRST_WORD = 1, 2, 4
TIES = {
    "all": {"share_all_embeddings": True, "share_decoder_input_output_embed": True},
    "decoder": {"share_decoder_input_output_embed": True, "decoder_embed_dim": 24},
    "none": {"decoder_embed_dim": 24},
}
CASES: Dict[str, Tuple[str, Dict[str, Any]]] = {
    f"{tie}-{norm}": (tie, {f"{side}_normalize_before": norm == "pre" for side in ("encoder", "decoder")})
    for tie in TIES
    for norm in ("post", "pre")
}
CASES["learned-positions"] = ("all", {"encoder_learned_pos": True, "decoder_learned_pos": True})
CASES["one-side-each"] = ("none", {"encoder_normalize_before": True, "decoder_learned_pos": True})
CASES["odd-width"] = ("all", {"encoder_embed_dim": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5})
ACTIVATIONS = ("gelu", "gelu_accurate", "gelu_fast", "tanh", "linear")


class Pair:
    """The toolkit's model and ours with the same weights, their dictionaries, and a batch.

    The sides differ in depth and heads, and in width and dictionary where the ties allow it.

    Args:
        case: a key of ``CASES``, or an activation.
    """

    def __init__(self, case: str) -> None:
        tie, changes = CASES.get(case, ("all", {"activation_fn": case}))
        options: Dict[str, Any] = {
            "encoder_embed_dim": 16,
            "encoder_ffn_embed_dim": 28,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_ffn_embed_dim": 20,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "dropout": 0.0,
            "max_source_positions": 50,
            "max_target_positions": 40,
            **TIES[tie],
            **changes,
        }
        options.setdefault("decoder_embed_dim", options["encoder_embed_dim"])
        self.source_dictionary = self._dictionary(37)
        self.target_dictionary = self.source_dictionary if tie == "all" else self._dictionary(29)
        torch.manual_seed(3)
        self.theirs = TransformerModel.build_model(argparse.Namespace(**options), self)
        with torch.no_grad():
            for parameter in self.theirs.parameters():  # biases start at 0 and norms at 1, which would hide mistakes
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        ours = {**options, "tie_embeddings": tie, "positional_layout": "concatenated"}
        self.ours = VaswaniTransformer.build_model(argparse.Namespace(**ours), self)
        self.copy_weights()
        self.sample = self._sample()

    def copy_weights(self) -> None:
        """Ours takes over the toolkit's weights, every one that it has."""
        weights = self.theirs.state_dict()
        assert self.ours.state_dict().keys() <= weights.keys()
        self.ours.load_state_dict({name: weights[name] for name in self.ours.state_dict()})

    @staticmethod
    def _dictionary(n_words: int) -> Dictionary:
        made = Dictionary()
        for i in range(n_words):
            made.add_symbol(f"w{i}")
        return made

    def _sample(self) -> Dict[str, Any]:
        """Sources of 9, 4 and 1 words, padded on the left; targets of 2, 7 and 5, padded on the right."""
        generator = torch.Generator().manual_seed(5)
        sources = torch.full((3, 10), PAD)
        targets, inputs = torch.full((3, 8), PAD), torch.full((3, 8), PAD)
        for row, (n_source, n_target) in enumerate(((9, 2), (4, 7), (1, 5))):
            words = torch.randint(FIRST_WORD, len(self.source_dictionary), (n_source,), generator=generator)
            sources[row, 9 - n_source :] = torch.cat((words, torch.tensor([EOS])))
            words = torch.randint(FIRST_WORD, len(self.target_dictionary), (n_target,), generator=generator)
            targets[row, : n_target + 1] = torch.cat((words, torch.tensor([EOS])))
            inputs[row, : n_target + 1] = torch.cat((torch.tensor([EOS]), words))
        net_input = {"src_tokens": sources, "src_lengths": sources.ne(PAD).sum(1), "prev_output_tokens": inputs}
        return {"net_input": net_input, "target": targets, "ntokens": int(targets.ne(PAD).sum()), "id": torch.arange(3)}

    def both(self) -> Tuple[Any, Any]:
        return self.theirs, self.ours

    @property
    def real(self) -> Tensor:
        """Where the target has a token: what a model computes at padding is nobody's business."""
        return self.sample["target"].ne(PAD)


@pytest.fixture(params=list(CASES))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.mark.parametrize("pair", [*CASES, *ACTIVATIONS], indirect=True)
@pytest.mark.parametrize("training", [True, False])
def test_logits(pair: Pair, training: bool) -> None:
    theirs, ours = (model.train(training)(**pair.sample["net_input"])[0][pair.real] for model in pair.both())
    assert theirs.abs().max() > 1.0
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("where", [{}, {"alignment_layer": 0, "alignment_heads": 2}])
def test_attention_over_the_source(pair: Pair, where: Dict[str, int]) -> None:
    theirs, ours = (model.eval()(**pair.sample["net_input"], **where)[1]["attn"][0] for model in pair.both())
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours[pair.real], theirs[pair.real], rtol=0, atol=1e-5)


def losses(pair: Pair, plain: bool) -> Tuple[Any, Any]:
    """Both criteria's answers, ours either chunked or plain."""
    task = SimpleNamespace(target_dictionary=pair.target_dictionary)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    our_criterion = VaswaniLabelSmoothedCrossEntropy(task, False, 0.1, report_accuracy=plain)
    return criterion(pair.theirs.train(), pair.sample), our_criterion(pair.ours.train(), pair.sample)


@pytest.mark.parametrize("pair", [*CASES, *ACTIVATIONS], indirect=True)
@pytest.mark.parametrize("plain", [False, True])
def test_loss_and_every_gradient(pair: Pair, plain: bool) -> None:
    """Gradients are compared by the largest difference over the largest entry of that gradient.

    Those of the keys' biases are nothing but rounding, because softmax does not see what is added to all scores of a
    query: they are compared over the largest entry of all gradients.
    """
    (theirs, size, log), (ours, our_size, our_log) = losses(pair, plain)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert our_log["nll_loss"].item() == pytest.approx(log["nll_loss"].item(), rel=1e-5)
    assert (our_size, our_log["ntokens"]) == (size, log["ntokens"]) == (17, 17)
    theirs.backward()
    ours.backward()
    gradients = {name: parameter.grad for name, parameter in pair.theirs.named_parameters()}
    our_gradients = {name: parameter.grad for name, parameter in pair.ours.named_parameters()}
    assert our_gradients.keys() <= gradients.keys()
    largest = max(gradient.abs().max() for gradient in our_gradients.values())
    for name, gradient in our_gradients.items():
        scale = largest if name.endswith("k_proj.bias") else gradients[name].abs().max()
        assert scale > 0, name
        assert (gradient - gradients[name]).abs().max() / scale <= 1e-5, name


@functools.cache
def learned(case: str) -> Pair:
    """Both models after the toolkit's has learned the batch a little, so that its translations end by themselves."""
    pair = Pair(case)
    optimizer = torch.optim.Adam(pair.theirs.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        losses(pair, plain=False)[0][0].backward()
        optimizer.step()
    pair.copy_weights()
    return pair


def hypotheses(pair: Pair, model: Any, beam: int) -> List[List[Dict[str, Any]]]:
    search = SequenceGenerator([model], pair.target_dictionary, beam_size=beam, max_len_a=1, max_len_b=6)
    found: List[List[Dict[str, Any]]] = search.generate([model], pair.sample)
    return found


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("case", list(CASES))
def test_translations_by_the_toolkits_search(case: str, beam: int) -> None:
    pair = learned(case)
    theirs, ours = (hypotheses(pair, model.eval(), beam) for model in pair.both())
    assert len(ours) == len(theirs) == 3
    assert len({len(sentence[0]["tokens"]) for sentence in ours}) > 1
    for sentence, our_sentence in zip(theirs, ours):
        assert len(our_sentence) == len(sentence) >= 1
        for hypothesis, our_hypothesis in zip(sentence, our_sentence):
            assert our_hypothesis["tokens"].tolist() == hypothesis["tokens"].tolist()
            for what in ("score", "positional_scores", "attention"):
                torch.testing.assert_close(our_hypothesis[what], hypothesis[what], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_decoding_step_by_step(pair: Pair) -> None:
    net_input = pair.sample["net_input"]
    expected, extra = pair.theirs.eval()(**net_input)
    ours = pair.ours.eval()
    encoder_out = ours.encoder(net_input["src_tokens"], net_input["src_lengths"])
    state: Dict[str, Any] = {}
    for end in range(1, net_input["prev_output_tokens"].size(1) + 1):
        so_far = net_input["prev_output_tokens"][:, :end]
        step, step_extra = ours.decoder(so_far, encoder_out, state)
        whole, whole_extra = ours.decoder(so_far, encoder_out)
        real = pair.real[:, end - 1]
        assert step.shape == (3, 1, len(pair.target_dictionary))
        torch.testing.assert_close(step[real, 0], whole[real, -1], rtol=0, atol=1e-5)
        torch.testing.assert_close(step[real, 0], expected[real, end - 1], rtol=0, atol=1e-5)
        weights = step_extra["attn"][0][real, 0]
        torch.testing.assert_close(weights, whole_extra["attn"][0][real, -1], rtol=0, atol=1e-5)
        torch.testing.assert_close(weights, extra["attn"][0][real, end - 1], rtol=0, atol=1e-5)


def lines_of(path: Path, data: Path, *more: str) -> List[str]:
    options = ["--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", path, "--cpu", "--num-workers", 0]
    lines = run("fairseq-generate", data, *options, *more).ok().lines("H-")
    assert len(lines) == 13
    return sorted(lines)


@pytest.fixture(scope="module")
def untouched(copy_task: CopyTask, tiny_checkpoint: Path) -> List[str]:
    return lines_of(tiny_checkpoint, copy_task.bin)


@pytest.mark.parametrize("change", ["no positions", "a buffer of old", "longer positions"])
def test_position_buffers_in_checkpoints(
    copy_task: CopyTask, tiny_checkpoint: Path, untouched: List[str], tmp_path: Path, change: str
) -> None:
    """Case M7: however the fixed positions were stored, the file loads and translates as before."""
    state = load_checkpoint(tiny_checkpoint)
    more = []
    if change == "no positions":
        state["model"] = {name: tensor for name, tensor in state["model"].items() if "embed_positions" not in name}
    elif change == "a buffer of old":
        state["model"]["encoder.embed_positions._float_tensor"] = torch.tensor([0.0])
    else:
        more = ["--model-overrides", "{'max_source_positions': 2048, 'max_target_positions': 2048}"]
    path = tmp_path / "changed.pt"
    torch.save(state, str(path))
    assert lines_of(path, copy_task.bin, *more) == untouched
