# SPDX-License-Identifier: Apache-2.0
"""Our services and the SMG gateway as processes of a test, on free ports of this machine."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import openai

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "bin"
MODEL = "target"
PATIENCE = 60  # seconds; only a failing test waits this long


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} s for: {what}")


class Process:
    """A program whose output goes to a file, so that it never waits for a reader."""

    def __init__(self, command):
        self._file = tempfile.NamedTemporaryFile("r")
        self._process = subprocess.Popen([str(part) for part in command], stdout=self._file.fileno(),
                                         stderr=subprocess.STDOUT)

    def log(self):
        return pathlib.Path(self._file.name).read_text(errors="replace")

    def is_running(self):
        return self._process.poll() is None

    def kill(self):
        self._process.kill()
        self._process.wait()


class Service(Process):
    """A proposer or a verifier. It listens when this returns."""

    def __init__(self, program, *flags):
        super().__init__([BIN / program, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", *flags])
        wait_for(lambda: "listening on " in self.log() or not self.is_running(), f"{program} to listen")
        assert self.is_running(), self.log()
        self.address = self.log().split("listening on ")[1].split()[0]
        self._metrics = self.log().split("metrics on port ")[1].split()[0]

    def metric(self, name):
        """The sum of a metric over the label sets that contain `name`'s labels, which are written as on the page."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics").read().decode()
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))


class Verifier(Service):
    def __init__(self, *flags):
        super().__init__("foretoken_verifier", f"--model={ROOT}/deploy/demo/target", f"--model_name={MODEL}", *flags)


class Gateway(Process):
    """SMG in front of one worker. It is ready when this returns. It has the chat template of the worker's checkpoint."""

    def __init__(self, worker, *flags):
        self.port, metrics = free_ports(2)
        super().__init__([
            pathlib.Path(sys.executable).parent / "smg", "launch", "--host", "127.0.0.1", "--port", self.port,
            "--worker-urls", worker, "--prometheus-host", "127.0.0.1", "--prometheus-port", metrics,
            "--log-level", "info", *flags])
        wait_for(lambda: self._is_ready() or not self.is_running(), f"the gateway's readiness: {self.log()[-2000:]}")
        assert self.is_running(), self.log()

    def _is_ready(self):
        try:
            models = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models").read().decode()
            return MODEL in models and "Successfully loaded tokenizer" in self.log()
        except (urllib.error.URLError, ConnectionError):
            return False

    def client(self):
        # Without retries, so that a test sees every error.
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0,
                             timeout=PATIENCE)


def end(*processes):
    for process in processes:
        process._process.send_signal(signal.SIGTERM)
    for process in processes:
        process.kill()
