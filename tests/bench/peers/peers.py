#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Foretoken beside llama.cpp and OpenVINO GenAI, on this machine's CPU.

    tests/bench/peers/peers.py [--layers=N] [--short] [--vocab=N] [--rounds=N] [--bits=16,8,4]
                               [--bin=FOLDER]

All engines run one model, a Llama of the 1B shape (model.py), with 2 threads, greedily, with the same prompt ids and
the same number of tokens. Its weights are random. Speed does not depend on them, so Foretoken runs without speculation
here: how many guesses are accepted would.

- decode 1: tokens per second of one sequence after a prompt of 16 tokens.
- decode 8: of 8 sequences together.
- prefill: tokens per second of a prompt of 512 tokens until its first token.

Engines of as many bits are loaded side by side and take turns, case by case, because a machine changes its speed while
one measures. The first round warms up and does not count. Numbers are medians of the rounds; a ratio is the median of
the ratios within each round.

w8a16 has weights of 8 bits and activations of 16, w4a8 weights of 4 bits and activations of 8; g32 is one scale for 32
weights. Foretoken's Q4_K_M serves llama.cpp's file. The embedding and the head, which are one matrix, have 8 bits in
every quantised mode, but 6 in llama.cpp's files of 4 bits. llama.cpp always rounds activations to 8 bits where weights
have 8 or 4, and OpenVINO does unless it is told not to. The K/V cache has 16 bits, but 32 in OpenVINO without AVX-512. "weights" is what a step
reads of Foretoken, and the file of a peer. "memory" is the most that the process has held, also while it loaded.

With few layers, as in --short, ratios are not those of a real model: the head takes a larger share of a step, and of a
prompt llama.cpp computes the last layer's MLP for the last token alone.

Needs PyPI, 1 GB of disk for the programs and 14 GB for the models of the default shape; both stay in build/peers.
"""
import argparse
import dataclasses
import os
import pathlib
import statistics
import sys

import cases
import install
import model
from foretoken_engine import Foretoken
from peer_engine import PeerEngine

HERE = pathlib.Path(__file__).resolve().parent
NUM_FIRST_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Row:
    """An engine in one mode. `options` are Foretoken's flags, or a peer's file and its properties."""
    bits: int
    engine: str
    mode: str
    options: tuple
    rivals: tuple = ()  # modes of peers with equal bits
    model: str = "checkpoint"  # that Foretoken serves

    @property
    def title(self):
        return f"{self.engine} {self.mode}"


def foretoken_row(mode, group, rivals):
    bits, activation_bits = (int(number) for number in mode[1:].split("a"))
    activation = "int8" if activation_bits == 8 else "none"
    flags = (f"--weight_quantization=int{bits}", f"--activation_quantization={activation}",
             f"--weight_group_size={group}", "--head_quantization=int8")
    return Row(bits, "foretoken", f"{mode} g{group}", flags, rivals)


A16 = "DYNAMIC_QUANTIZATION_GROUP_SIZE=0"
ROWS = (
    Row(16, "foretoken", "bf16", (), ("llama.cpp BF16", "openvino bf16")),
    Row(16, "llama.cpp", "BF16", ("bf16.gguf",)),
    Row(16, "openvino", "bf16", ("bf16",)),
    foretoken_row("w8a16", 32, ("openvino w8a16",)),
    foretoken_row("w8a8", 32, ("llama.cpp Q8_0", "openvino w8a8")),
    Row(8, "llama.cpp", "Q8_0", ("q8_0.gguf",)),
    Row(8, "openvino", "w8a8", ("int8",)),
    Row(8, "openvino", "w8a16", ("int8", A16)),
    foretoken_row("w4a16", 32, ("openvino w4a16 g32",)),
    foretoken_row("w4a8", 32, ("llama.cpp Q4_0", "llama.cpp Q4_K_M", "openvino w4a8 g32")),
    foretoken_row("w4a8", 128, ("openvino w4a8 g128",)),
    *(Row(4, "foretoken", f"Q4_K_M a{bits}", (f"--activation_quantization={activation}",), ("llama.cpp Q4_K_M",),
          "llama.cpp/q4_k_m.gguf") for bits, activation in ((16, "none"), (8, "int8"))),
    Row(4, "llama.cpp", "Q4_0", ("q4_0.gguf",)),
    Row(4, "llama.cpp", "Q4_K_M", ("q4_k_m.gguf",)),
    Row(4, "openvino", "w4a8 g32", ("int4_g32",)),
    Row(4, "openvino", "w4a8 g128", ("int4_g128",)),
    Row(4, "openvino", "w4a16 g32", ("int4_g32", A16)),
)


def start(row, args, models, logs):
    log = logs / f"{row.title.replace(' ', '-')}.log"
    if row.engine == "foretoken":
        return Foretoken(args.bin, models / row.model, row.options, log)
    script = HERE / {"llama.cpp": "llama_cpp_engine.py", "openvino": "openvino_engine.py"}[row.engine]
    file, *properties = row.options
    return PeerEngine([args.folder / "venv/bin/python", script, models / row.engine / file, *properties], log)


def start_all(rows, args, models):
    """The engines that start, by row."""
    logs = args.folder / "logs"
    logs.mkdir(exist_ok=True)
    engines = {}
    for row in rows:
        install.say(f"Starting {row.title}.")
        try:
            engines[row] = start(row, args, models, logs)
        except (RuntimeError, OSError) as error:
            if row.engine == "foretoken":
                close_all(engines)
                raise
            install.say(f"{row.title} is left out: {error}")
    return engines


def close_all(engines):
    for engine in engines.values():
        engine.close()


def measure_in_turns(engines, args):
    """Tokens per second by row and case, a list of rounds each."""
    speeds = {row: {case: [] for case in cases.CASES} for row in engines}
    for round_idx in range(args.rounds + 1):
        for case in cases.CASES:
            for row, engine in engines.items():
                speed = engine.measure(case, args.tokens)
                if round_idx > 0:
                    speeds[row][case].append(speed)
    return speeds


def print_agreement(engines):
    """Engines that run one model in 16 bits write the same first tokens, if no two tokens are almost as likely."""
    tokens = {row.title: engine.first_tokens(NUM_FIRST_TOKENS) for row, engine in engines.items()}
    print("First tokens in 16 bits: " + "; ".join(f"{title} {ids}" for title, ids in tokens.items()), flush=True)


def numbers(values, form):
    return "".join(f"{value:{form}}" for value in values)


def print_speeds(engines, speeds):
    for row, engine in engines.items():
        medians = [statistics.median(speeds[row][case]) for case in cases.CASES]
        print(f"{row.title:24}{engine.weight_bytes / 1e6:12.0f}{engine.memory_mib():12}{numbers(medians, '12.1f')}",
              flush=True)


def print_ratios(speeds):
    by_title = {row.title: row for row in speeds}
    for row in speeds:
        for rival in row.rivals:
            if rival not in by_title:
                continue
            ratios = [statistics.median(ours / theirs for ours, theirs in
                                        zip(speeds[row][case], speeds[by_title[rival]][case])) for case in cases.CASES]
            print(f"{row.title + ' / ' + rival:48}{numbers(ratios, '12.2f')}")


def measure_bits(bits, peers, args, models):
    rows = [row for row in ROWS if row.bits == bits and row.engine in ("foretoken", *peers)]
    engines = start_all(rows, args, models)
    try:
        if bits == 16:
            print_agreement(engines)
        speeds = measure_in_turns(engines, args)
        print(f"\n{f'{bits} bits':24}{'weights, MB':>12}{'memory, MiB':>12}{numbers(cases.CASES, '>12')}")
        print_speeds(engines, speeds)
        print_ratios(speeds)
    finally:
        close_all(engines)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, help="layers of the model; default: 16, with --short 4")
    parser.add_argument("--vocab", type=int, help="tokens of the vocabulary; default: 128256, with --short 32000")
    parser.add_argument("--rounds", type=int, help="rounds that count; default: 5, with --short 3")
    parser.add_argument("--short", action="store_true", help="a small model, few rounds and few tokens")
    parser.add_argument("--bits", default="16,8,4", help="bits of weights to measure; default: 16,8,4")
    parser.add_argument("--bin", type=pathlib.Path, default=model.ROOT / "build/release/bin",
                        help="folder of foretoken and foretoken_verifier")
    parser.add_argument("--folder", type=pathlib.Path, default=model.ROOT / "build/peers",
                        help="folder of the peers and the models")
    args = parser.parse_args(arguments)
    args.layers = args.layers or (4 if args.short else 16)
    args.vocab = args.vocab or (32000 if args.short else 128256)
    args.rounds = args.rounds or (3 if args.short else 5)
    args.tokens = 24 if args.short else 64
    return args


def main(arguments):
    args = parse(arguments)
    shape = model.Shape(layers=args.layers, vocab=args.vocab)
    models = args.folder / "models" / shape.name
    peers = install.prepare(shape, args.folder, models)
    if not peers:
        sys.exit("peers: no peer could be installed, so there is nothing to compare with")
    print(f"{shape.layers} layers, {shape.vocab} tokens, {cases.NUM_THREADS} threads, {args.rounds} rounds of "
          f"{args.tokens} tokens; load of the machine before: {os.getloadavg()[0]:.1f}. Tokens per second:", flush=True)
    for bits in args.bits.split(","):
        measure_bits(int(bits), peers, args, models)


if __name__ == "__main__":
    main(sys.argv[1:])
