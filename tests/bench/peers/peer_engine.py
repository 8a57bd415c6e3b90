# SPDX-License-Identifier: Apache-2.0
"""A peer that runs in a process of its own, with the Python that has the peer installed."""
import json
import subprocess

import cases


class PeerEngine:
    def __init__(self, command, log):
        self._log = log
        with open(log, "w", encoding="utf-8") as errors:
            self._process = subprocess.Popen([str(part) for part in command], text=True, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=errors)
        self.weight_bytes = self._read_reply()["weight_bytes"]

    def _read_reply(self):
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"it ended, see {self._log}")
        return json.loads(line)

    def _ask(self, case, num_tokens):
        self._process.stdin.write(json.dumps([case, num_tokens]) + "\n")
        self._process.stdin.flush()
        return self._read_reply()

    def first_tokens(self, num_tokens):
        return self._ask("decode 1", num_tokens)["tokens"]

    def measure(self, case, num_tokens):
        return self._ask(case, num_tokens)["tokens_per_s"]

    def memory_mib(self):
        return cases.memory_mib(self._process.pid)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
