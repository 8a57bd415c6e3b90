# SPDX-License-Identifier: Apache-2.0
"""Measures llama.cpp through its low-level functions: one llama_decode per step, for all sequences together.

    llama_cpp_engine.py FILE

The prompt is given as one batch. Each step reads the logits of every sequence and takes the most likely token.
"""
import os
import sys
import time

import llama_cpp
import numpy as np

import cases


class LlamaCpp:
    def __init__(self, path):
        self.weight_bytes = os.path.getsize(path)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 1024 * cases.MAX_SEQUENCES
        params.n_batch = params.n_ubatch = cases.LONG_PROMPT
        params.n_seq_max = cases.MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = cases.NUM_THREADS
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._num_tokens = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(cases.LONG_PROMPT, 0, 1)

    def _run(self, rows):
        """One forward pass of rows of token, position, sequence and whether its logits are wanted."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants_logits) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, wants_logits
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        return [self._likeliest(i) for i, row in enumerate(rows) if row[3]]

    def _likeliest(self, row):
        logits = llama_cpp.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, (self._num_tokens,)).argmax())

    def _start(self, num_sequences, length):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        return self._run([(token, position, sequence, position == length - 1) for sequence in range(num_sequences)
                          for position, token in enumerate(cases.prompt_ids(length))])

    def decode(self, num_sequences, num_tokens):
        tokens = self._start(num_sequences, cases.SHORT_PROMPT)
        steps_s, first = [], [tokens[0]]
        for position in range(cases.SHORT_PROMPT, cases.SHORT_PROMPT + num_tokens - 1):
            began = time.perf_counter()
            tokens = self._run([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
            steps_s.append(time.perf_counter() - began)
            first.append(tokens[0])
        return steps_s, first

    def prefill(self):
        began = time.perf_counter()
        self._start(1, cases.LONG_PROMPT)
        return time.perf_counter() - began


if __name__ == "__main__":
    cases.serve(LlamaCpp(sys.argv[1]))
