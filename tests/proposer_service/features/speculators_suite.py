#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small random drafters with the speculators package and compares what we draft with what its models compute.

    speculators_suite.py DUMP_DRAFTER SCRATCH
"""
import json
import math
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig, core as peagle_core
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig, Qwen3Config

HIDDEN, VOCABULARY, DRAFT_VOCABULARY, LAYERS = 64, 1216, 200, [1, 3, 6]
CONTEXT = 20  # rows with features
GUESSES = 6  # of P-EAGLE

# Roundings to bf16 that the package, which runs in f32, does not have: some 15 of a relative 2^-9.
TOLERANCE = 15 * 2**-9


def block(kind, num_layers, window=None):
    sizes = dict(
        hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=num_layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=VOCABULARY, max_position_embeddings=512, rms_norm_eps=1e-5, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    if window is not None:
        types = ["full_attention"] * (num_layers - 1) + ["sliding_attention"]
        sizes |= dict(sliding_window=window, use_sliding_window=True, layer_types=types)
    return kind(**sizes)


TARGET = Path(sys.argv[2]) / "target"


def speculators_config(algorithm, tokens):
    return SpeculatorsConfig(
        algorithm=algorithm, proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=tokens)],
        default_proposal_method="greedy", verifier=VerifierConfig(name_or_path=str(TARGET), architectures=["LlamaForCausalLM"]))


def dflash(window=None, non_causal=False, draft_vocab=VOCABULARY):
    config = DFlashSpeculatorConfig(
        transformer_layer_config=block(Qwen3Config, 2, window), draft_vocab_size=draft_vocab, block_size=5,
        aux_hidden_state_layer_ids=LAYERS, mask_token_id=1202, sliding_window_non_causal=non_causal,
        speculators_config=speculators_config("dflash", 4))
    return DFlashDraftModel(config)


def dspark(head_type, window=None, draft_vocab=VOCABULARY):
    config = DSparkSpeculatorConfig(
        transformer_layer_config=block(Qwen3Config, 2, window), draft_vocab_size=draft_vocab, block_size=5,
        aux_hidden_state_layer_ids=LAYERS, mask_token_id=1202, sample_from_anchor=True, markov_rank=16,
        markov_head_type=head_type, speculators_config=speculators_config("dspark", 5))
    return DSparkDraftModel(config)


def eagle3(kind=LlamaConfig, window=None, **switches):
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=block(kind, 1, window), draft_vocab_size=DRAFT_VOCABULARY,
        eagle_aux_hidden_state_layer_ids=LAYERS, speculators_config=speculators_config("eagle3", 3), **switches)
    return Eagle3DraftModel(config)


def p_eagle(window=None, **switches):
    config = PEagleSpeculatorConfig(
        transformer_layer_config=block(Qwen3Config, 2, window), draft_vocab_size=DRAFT_VOCABULARY, mask_token_id=1202,
        eagle_aux_hidden_state_layer_ids=LAYERS, speculators_config=speculators_config("peagle", GUESSES), **switches)
    return PEagleDraftModel(config)


CASES = {
    "dflash": lambda: dflash(),
    "dflash with a part of the vocabulary": lambda: dflash(draft_vocab=DRAFT_VOCABULARY),
    "dflash with a window": lambda: dflash(window=6),
    "dflash with a window, not causal": lambda: dflash(window=6, non_causal=True),
    "dspark": lambda: dspark("vanilla"),
    "dspark, gated": lambda: dspark("gated", draft_vocab=DRAFT_VOCABULARY),
    "dspark, recurrent, with a window": lambda: dspark("rnn", window=7),
    "eagle3": lambda: eagle3(),
    "eagle3 of qwen3": lambda: eagle3(Qwen3Config, norm_before_residual=True),
    "eagle3 with every norm": lambda: eagle3(fc_norm=True, norm_output=True),
    "eagle3 with a norm before fc": lambda: eagle3(norm_before_fc=True),
    "eagle3 with a window": lambda: eagle3(Qwen3Config, window=6),
    "p-eagle": lambda: p_eagle(),
    "p-eagle with norms": lambda: p_eagle(fc_norm=True, norm_before_residual=True),
    "p-eagle with a window": lambda: p_eagle(window=9),
}


def randomise(model, target, generator):
    """Random weights that bf16 holds; what the file does not have comes from the target."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 1.5 / math.sqrt(weight.shape[-1]) if weight.dim() > 1 else 0.2
            value = torch.randn(weight.shape, generator=generator) * scale + (1 if name.endswith("norm.weight") else 0)
            weight.copy_(value.bfloat16())
        model.embed_tokens.weight.copy_(target["model.embed_tokens.weight"].float())
        if model.use_draft_vocab:
            ids = torch.arange(DRAFT_VOCABULARY) * 5
            marks = torch.zeros(VOCABULARY, dtype=torch.bool)
            marks[ids] = True
            model.load_vocab_mappings(marks, ids - torch.arange(DRAFT_VOCABULARY))
        else:
            model.lm_head.weight.copy_(target["lm_head.weight"].float())


def write(model, folder):
    """As save_pretrained does it: the package's own configuration, and the tensors that it keeps."""
    folder.mkdir()
    skipped = set(model._keys_to_ignore_on_save)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in skipped and tensor is not None}
    save_file({name: tensor.bfloat16().contiguous() if tensor.is_floating_point() else tensor.contiguous()
               for name, tensor in tensors.items()}, folder / "model.safetensors")
    model.config.save_pretrained(folder)


def block_logits(model, states, token_ids):
    """The logits of the block whose anchor is the token CONTEXT, row by row, given the tokens that follow."""
    loss_mask = torch.zeros(1, token_ids.shape[1])
    loss_mask[0, CONTEXT] = 1
    hidden, logits, _, _, indices = model._backbone_forward(
        states, token_ids, loss_mask, torch.zeros(1, token_ids.shape[1], HIDDEN), torch.zeros_like(token_ids), max_anchors=1)
    if not isinstance(model, DSparkDraftModel):
        return logits[0, 1:]
    head, tokens = model.markov_head, token_ids[:, indices]
    return logits[0] + head.block_bias(prev_token_ids=tokens, hidden_states=hidden)[0]


def eagle_logits(model, states, token_ids):
    """The logits of the rows with features, and of one row below the last, if the model has no window.

    In training a row below keeps the window of the row above; where it serves, it has a position of its own."""
    outputs = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
    # Row i has the token i + 1, and the state of position i.
    model(states[:, :CONTEXT + 1], token_ids[:, 1:CONTEXT + 2], torch.zeros(1, CONTEXT + 1, dtype=torch.long), ttt_steps=2)
    hook.remove()
    below = [] if model.uses_sliding_window_attn else [outputs[1][CONTEXT - 1:CONTEXT]]
    return torch.cat([outputs[0][:CONTEXT], *below])


def p_eagle_logits(model, states, token_ids):
    """The logits of the rows with features, and of the mask rows below the last."""
    outputs = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
    anchors = list(range(CONTEXT)) + [CONTEXT - 1] * (GUESSES - 1)
    depths = [0] * CONTEXT + list(range(1, GUESSES))
    peagle_core.compute_metrics = lambda **_: (None, None)  # the loss needs a GPU
    peagle_core.generate_cod_sample_indices = lambda **_: (torch.tensor(anchors), torch.tensor(depths))
    ids = token_ids[:, 1:]
    model(states[:, :ids.shape[1]], ids, torch.zeros_like(ids), verifier_last_hidden_states=torch.zeros(1, ids.shape[1], HIDDEN),
          num_depths=GUESSES)
    hook.remove()
    return outputs[0]


def drafted(program, method, folder, token_ids, features):
    case = json.dumps({"token_ids": token_ids, "features": features})
    run = subprocess.run([program, "logits", method, folder, TARGET], input=case, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)
    return torch.tensor([[float("-inf") if value is None else value for value in row] for row in rows])


def main():
    program, scratch = sys.argv[1], Path(sys.argv[2])
    subprocess.run([program, "target", TARGET], check=True)
    target = load_file(TARGET / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for number, (name, make) in enumerate(CASES.items()):
        model = make().float().eval()
        randomise(model, target, generator)
        folder = scratch / f"drafter-{number}"
        write(model, folder)
        states = torch.randn(1, CONTEXT + 8, len(LAYERS) * HIDDEN, generator=generator).bfloat16().float()
        token_ids = torch.randint(0, 1200, (1, CONTEXT + 8), generator=generator)
        is_eagle = isinstance(model, Eagle3DraftModel)
        is_p_eagle = isinstance(model, PEagleDraftModel)
        with torch.no_grad():
            compute = p_eagle_logits if is_p_eagle else eagle_logits if is_eagle else block_logits
            expected = compute(model, states, token_ids)
            inputs = states[0, :CONTEXT]
            if is_eagle and model.input_norm is not None:
                inputs = model.input_norm(inputs)
            if is_eagle and model.fc_norm is not None:
                parts = inputs.chunk(len(model.fc_norm), dim=-1)
                inputs = torch.cat([norm(part) for norm, part in zip(model.fc_norm, parts, strict=True)], dim=-1)
            features = model.fc(inputs)
        num_below = len(expected) - (CONTEXT if is_eagle else 1)
        chain = token_ids[0, 1:CONTEXT + 1 + num_below].tolist()


        def difference():
            got = drafted(program, "eagle3" if is_eagle else "dflash", folder, chain, features.tolist())
            got = got if is_eagle else got[CONTEXT - 1:]
            if model.use_draft_vocab:
                got = got[:, torch.arange(DRAFT_VOCABULARY) * 5]
            assert got.shape == expected.shape, (got.shape, expected.shape)
            return ((got - expected).abs().amax(1) / expected.abs().amax(1)).max().item()

        largest = difference()
        print(f"{name}: {len(expected)} rows differ by at most {largest:.4f} of the largest logit")
        assert largest < TOLERANCE
        if model.uses_sliding_window_attn:
            config = json.loads((folder / "config.json").read_text())
            config["transformer_layer_config"]["sliding_window"] += 1
            (folder / "config.json").write_text(json.dumps(config))
            other = difference()
            print(f"  with a window that is one too large, by {other:.4f}")
            assert other > 2 * TOLERANCE


if __name__ == "__main__":
    main()
