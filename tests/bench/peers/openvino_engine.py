# SPDX-License-Identifier: Apache-2.0
"""Measures OpenVINO GenAI through its ContinuousBatchingPipeline: one step for all sequences together.

    openvino_engine.py FOLDER [NAME=VALUE...]

NAME=VALUE are properties of OpenVINO. Its K/V cache has 16 bits, as the others' have. (Its default is 8.)
"""
import os
import sys
import time

import numpy as np
import openvino
import openvino_genai

import cases


def kv_cache_precision():
    """16 bits, where OpenVINO has them: without AVX-512 its attention takes f32 alone."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return "bf16" if "avx512f" in file.read() else "f32"


class OpenVino:
    def __init__(self, folder, properties):
        self.weight_bytes = os.path.getsize(os.path.join(folder, "openvino_model.bin"))
        self._num_requests = 0
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB
        scheduler.max_num_batched_tokens = cases.LONG_PROMPT
        scheduler.enable_prefix_caching = False
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": cases.NUM_THREADS, "PERFORMANCE_HINT": "LATENCY",
                                       "KV_CACHE_PRECISION": kv_cache_precision(), **properties})

    def _run(self, num_sequences, prompt_length, num_tokens):
        """The seconds of each step, and the tokens of the first sequence."""
        config = openvino_genai.GenerationConfig(max_new_tokens=num_tokens, ignore_eos=True, do_sample=False)
        prompt = openvino.Tensor(np.array([cases.prompt_ids(prompt_length)], np.int64))
        began = time.perf_counter()
        requests = []
        for _ in range(num_sequences):
            self._num_requests += 1
            requests.append(self._pipeline.add_request(self._num_requests, prompt, config))
        steps_s = []
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            now = time.perf_counter()
            steps_s.append(now - began)
            began = now
        outputs = [request.read_all()[0].generated_ids for request in requests]
        if len(steps_s) != num_tokens or any(len(output) != num_tokens for output in outputs):
            raise RuntimeError(f"expected {num_tokens} tokens in as many steps, got {len(steps_s)} steps")
        return steps_s, list(outputs[0])

    def decode(self, num_sequences, num_tokens):
        steps_s, tokens = self._run(num_sequences, cases.SHORT_PROMPT, num_tokens)
        return steps_s[1:], tokens

    def prefill(self):
        steps_s, _ = self._run(1, cases.LONG_PROMPT, 1)
        return sum(steps_s)


if __name__ == "__main__":
    cases.serve(OpenVino(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])))
