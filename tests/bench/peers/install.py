# SPDX-License-Identifier: Apache-2.0
"""Installs the peers from PyPI and has them convert the model. A peer that cannot be had is left out with one line."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ("llama.cpp", "openvino")
# llama.cpp is compiled for the processor of this machine.
ENVIRONMENT = {"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_logged(command, log):
    """Runs a command and keeps what it prints. Returns whether it succeeded."""
    with open(log, "w", encoding="utf-8") as output:
        result = subprocess.run([str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, check=False,
                                env={**os.environ, **ENVIRONMENT})
    return result.returncode == 0


def install(peer, folder):
    """Into the virtual environment of `folder`. Returns whether the peer is there."""
    requirements = HERE / f"requirements-{peer}.txt"
    stamp = folder / "venv" / f"{peer}.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return True
    say(f"Installing {peer} into {folder}/venv, which takes minutes.")
    log = folder / f"install-{peer}.log"
    if not run_logged([folder / "venv/bin/pip", "install", "--requirement", requirements], log):
        say(f"{peer} is left out: it could not be installed, see {log}")
        return False
    stamp.write_text(requirements.read_text())
    return True


def convert(peer, shape, folder, models):
    say(f"Converting the model for {peer}.")
    log = folder / f"convert-{peer}.log"
    command = [folder / "venv/bin/python", HERE / "convert.py", peer, shape.layers, shape.vocab, models]
    is_converted = run_logged(command, log)
    if not is_converted:
        say(f"{peer} is left out: it could not convert the model, see {log}")
    return is_converted


def prepare(shape, folder, models):
    """Makes the checkpoint and the peers' forms of it below `models`. Returns the peers that can be measured."""
    models.mkdir(parents=True, exist_ok=True)
    if not (folder / "venv/bin/pip").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    return [peer for peer in PEERS if install(peer, folder) and convert(peer, shape, folder, models)]
