# SPDX-License-Identifier: Apache-2.0
"""Measures Foretoken as its users meet it: a verifier serves, and `foretoken bench` sends requests without speculation.

The time of a step is the median time between two tokens of a stream, and the time of a prompt is that to its first
token. Both have the cost of gRPC in them, and the client runs on the same cores.
"""
import json
import pathlib
import subprocess
import tempfile
import time

import cases

PATIENCE_S = 600


class Foretoken:
    def __init__(self, bin_folder, checkpoint, flags, log):
        self._bin = pathlib.Path(bin_folder)
        with open(log, "w", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                [self._bin / "foretoken_verifier", f"--model={checkpoint}", "--listen=127.0.0.1:0",
                 f"--threads={cases.NUM_THREADS}", "--prefix_cache=false", *flags],
                stdout=output, stderr=subprocess.STDOUT)
        self._target = self._wait_for_address(pathlib.Path(log))
        self.weight_bytes = self._read_weight_bytes()

    def _wait_for_address(self, log):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self._process.poll() is None:
            text = log.read_text(encoding="utf-8")
            if "listening on " in text:
                return text.split("listening on ")[1].split()[0]
            time.sleep(0.1)
        self._process.kill()
        raise RuntimeError(f"foretoken_verifier does not listen, see {log}")

    def _client(self, *arguments):
        return subprocess.run([self._bin / "foretoken", *arguments, f"--target={self._target}"], check=True,
                              capture_output=True, text=True).stdout

    def _read_weight_bytes(self):
        line = next(line for line in self._client("info").splitlines() if line.startswith("read by each step"))
        number, unit = line.split()[-2:]
        return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]

    def first_tokens(self, num_tokens):
        """The first tokens that follow the short prompt. Makes sure that the prompt has the token ids of the peers."""
        prompt = cases.prompt_text(cases.SHORT_PROMPT)
        ids = json.loads(self._client("tokenize", "--json", prompt))["token_ids"]
        if ids != cases.prompt_ids(cases.SHORT_PROMPT):
            raise RuntimeError(f"expected a prompt of {cases.prompt_ids(cases.SHORT_PROMPT)}, got {ids}")
        reply = self._client("generate", "--json", "--speculation=off", "--temperature=0", "--ignore_eos",
                             f"--max_tokens={num_tokens}", prompt)
        return json.loads(reply)["samples"][0]["token_ids"]

    def _bench(self, num_sequences, prompt_length, num_tokens):
        with tempfile.NamedTemporaryFile("r") as result:
            self._client("bench", "--speculation=off", "--temperature=0", "--ignore_eos",
                         f"--max_tokens={num_tokens}", f"--clients={num_sequences}", f"--requests={num_sequences}",
                         f"--json_out={result.name}", cases.prompt_text(prompt_length))
            return json.load(result)

    def measure(self, case, num_tokens):
        if case == "prefill":
            result = self._bench(1, cases.LONG_PROMPT, 1)
            return 1000 * cases.LONG_PROMPT / result["time_to_first_token_ms"]["p50"]
        num_sequences = int(case.split()[1])
        result = self._bench(num_sequences, cases.SHORT_PROMPT, num_tokens)
        return cases.decode_speed(num_sequences, [result["inter_token_ms"]["p50"] / 1000])

    def memory_mib(self):
        return cases.memory_mib(self._process.pid)

    def close(self):
        self._process.terminate()
        self._process.wait()
