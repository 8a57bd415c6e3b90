# SPDX-License-Identifier: Apache-2.0
"""What is measured of every engine, and how an engine that runs in Python is measured.

`foretoken bench` takes a prompt as text and the peers take it as token ids, so a prompt is made of words that are one
token each in the demo model's tokenizer.
"""
import itertools
import json
import os
import statistics
import sys

NUM_THREADS = 2
WORDS = {" the": 305, " of": 369, " self": 300, " and": 387, " this": 607, " return": 329, " from": 511}
SHORT_PROMPT = 16
LONG_PROMPT = 512
CASES = ("decode 1", "decode 8", "prefill")
MAX_SEQUENCES = 8


def prompt_text(num_tokens):
    return "".join(itertools.islice(itertools.cycle(WORDS), num_tokens))


def prompt_ids(num_tokens):
    return list(itertools.islice(itertools.cycle(WORDS.values()), num_tokens))


def decode_speed(num_sequences, steps_s):
    """Tokens per second of all sequences together, by the median step."""
    return num_sequences / statistics.median(steps_s)


def memory_mib(pid):
    """The most memory that the process has held."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM:"))


def measure(engine, case, num_tokens):
    if case == "prefill":
        return {"tokens_per_s": LONG_PROMPT / engine.prefill()}
    num_sequences = int(case.split()[1])
    steps_s, tokens = engine.decode(num_sequences, num_tokens)
    return {"tokens_per_s": decode_speed(num_sequences, steps_s), "tokens": tokens}


def serve(engine):
    """Measures cases as they are read from standard input, one per line, with a line of JSON for each.

    `engine.decode(num_sequences, num_tokens)` returns the seconds of the steps after the prompt and the tokens of one
    sequence, and `engine.prefill()` the seconds of the long prompt. Libraries may print, so they get standard error to
    print to.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"weight_bytes": engine.weight_bytes}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(engine, *json.loads(line))), file=replies, flush=True)
