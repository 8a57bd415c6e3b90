# SPDX-License-Identifier: Apache-2.0
"""The init container that downloads a model, and its script. If a test fails, a pod starts with a broken model, or waits
for one that is there.

    tests/deploy/run.sh build/release download_test
"""
import functools
import hashlib
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import chart

PODS = ["unshare", "--map-root-user", "--pid", "--uts", "--fork", "--kill-child"]  # a process id and a name of its own


def can_make_pods():
    return shutil.which("unshare") and subprocess.run([*PODS, "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(shutil.which("curl"), "./dev setup --tools installs curl")
class Download(unittest.TestCase):
    """The script of the init container, with a server of this machine."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)
        (self.scratch / "hub/parts").mkdir(parents=True)
        (self.scratch / "hub/config.json").write_text("{}")
        (self.scratch / "hub/parts/weights").write_bytes(bytes(range(256)) * 1000)
        self.requests = requests = []
        self.before_body = before_body = []  # called while a download is under way

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                requests.append((self.path, self.headers.get("Authorization")))
                super().do_GET()

            def copyfile(self, source, outputfile):
                outputfile.write(source.read(1))
                outputfile.flush()
                for call in before_body:
                    call()
                super().copyfile(source, outputfile)

            def log_message(self, *_):
                pass

        self.serve(functools.partial(Handler, directory=self.scratch / "hub"))

    def serve(self, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.port = server.server_port

    def prepare(self, sums=None, **environment):
        """The script and its environment."""
        files = {str(path.relative_to(self.scratch / "hub")): hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in (self.scratch / "hub").rglob("*") if path.is_file()}
        url = f"http://127.0.0.1:{self.port}"
        values = {"model": {"path": "big", "download": {"url": url, "files": sums or files}}}
        data = chart.find(chart.render(values), "ConfigMap", "demo-verifier-download")[0]["data"]
        for name, text in data.items():
            (self.scratch / name).write_text(text)
        variables = {v["name"]: v["value"] for v in chart.find(chart.render(values), "Deployment", "demo-verifier")[0][
            "spec"]["template"]["spec"]["initContainers"][0]["env"]}
        variables["FOLDER"] = variables["FOLDER"].replace("/model", str(self.scratch / "volume"))
        return self.scratch / "download.sh", {**os.environ, **variables, **environment}

    def download(self, sums=None, **environment):
        script, variables = self.prepare(sums, **environment)
        return subprocess.run(["sh", script], env=variables, capture_output=True, text=True, check=False)

    def test_fetches_every_file_once(self):
        result = self.download(TOKEN="secret")
        self.expect_all_files(result)
        self.assertEqual(sorted(self.requests), [("/config.json", "Bearer secret"), ("/parts/weights", "Bearer secret")])
        again = self.download()
        self.assertEqual(again.returncode, 0)
        self.assertEqual(len(self.requests), 2, "files that are there are not fetched again")
        self.assertIn("config.json: there already", again.stdout)
        self.assertNotIn("secret", result.stdout + result.stderr)

    def test_shows_the_token_in_no_argument(self):
        """Every user of a machine may read the arguments of all programs."""
        programs, arguments = self.scratch / "programs", self.scratch / "arguments"
        programs.mkdir()
        (programs / "curl").write_text(f'#!/bin/sh\necho "$@" >>{arguments}\nexec {shutil.which("curl")} "$@"\n')
        (programs / "curl").chmod(0o755)
        self.expect_all_files(self.download(TOKEN="secret", PATH=f"{programs}:{os.environ['PATH']}"))
        self.assertEqual({token for _, token in self.requests}, {"Bearer secret"})
        self.assertIn("/config.json", arguments.read_text())
        self.assertNotIn("secret", arguments.read_text())

    def test_leaves_nothing_of_a_file_with_another_sum(self):
        result = self.download({"config.json": "0" * 64})
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"config.json: expected the SHA-256 sum {'0' * 64}", result.stderr)
        self.assertEqual(list((self.scratch / "volume/big").iterdir()), [])

    def test_replaces_a_damaged_file(self):
        self.download()
        (self.scratch / "volume/big/config.json").write_text("damaged")
        self.assertEqual(self.download().returncode, 0)
        self.assertEqual((self.scratch / "volume/big/config.json").read_text(), "{}")

    def test_fails_where_a_file_is_missing(self):
        result = self.download({"absent": "0" * 64}, PAUSE_SECONDS="0")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("404", result.stderr)
        self.assertEqual(len(self.requests), 5)

    def expect_all_files(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        for file in ["config.json", "parts/weights"]:
            self.assertEqual((self.scratch / "volume/big" / file).read_bytes(), (self.scratch / "hub" / file).read_bytes())

    def test_asks_again_where_a_server_stops_in_the_middle(self):
        tried, ended = threading.Semaphore(1), threading.Event()
        self.addCleanup(ended.set)
        self.before_body.append(lambda: tried.acquire(blocking=False) and ended.wait(60))
        self.expect_all_files(self.download(STALL_SECONDS="2", PAUSE_SECONDS="0"))
        # The first try has a byte. This server cannot go on after it, so the third try begins anew.
        self.assertEqual([path for path, _ in self.requests], ["/config.json"] * 3 + ["/parts/weights"])

    def test_goes_on_where_a_connection_breaks(self):
        begins, hub = [], self.scratch / "hub"

        class Handler(http.server.BaseHTTPRequestHandler):
            """Sends at most 40,000 bytes of a file."""

            def do_GET(self):
                content = (hub / self.path.strip("/")).read_bytes()
                begin = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
                begins.append(begin)
                self.send_response(206 if begin else 200)
                self.send_header("Content-Length", len(content) - begin)
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
                self.end_headers()
                self.wfile.write(content[begin:begin + 40000])

            def log_message(self, *_):
                pass

        self.serve(Handler)
        self.expect_all_files(self.download(PAUSE_SECONDS="0"))
        self.assertEqual(begins, [0, *range(0, 256000, 40000)])

    def test_removes_parts_of_pods_that_are_long_dead(self):
        volume = self.scratch / "volume/big"
        volume.mkdir(parents=True)
        for name, days in [("dead", 2), ("other", 0)]:
            part = volume / f".{name}.config.json.part"
            part.write_text("{")
            os.utime(part, (time.time() - days * 86400,) * 2)
        self.expect_all_files(self.download())
        self.assertEqual([path.name for path in volume.glob(".*")], [".other.config.json.part"])

    @unittest.skipUnless(can_make_pods(), "this machine does not let us make namespaces")
    def test_two_pods_fill_one_volume_at_the_same_time(self):
        script, variables = self.prepare()
        both = threading.Barrier(2)
        self.before_body.append(lambda: both.wait(10))
        pods = [subprocess.Popen([*PODS, "sh", "-c", f"hostname pod-{name} && exec sh {script}"], env=variables,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for name in "ab"]
        for pod in pods:
            _, errors = pod.communicate(timeout=60)
            self.assertEqual(pod.returncode, 0, errors)
        weights = [self.scratch / folder / "parts/weights" for folder in ["volume/big", "hub"]]
        self.assertEqual(*[path.read_bytes() for path in weights])
        self.assertEqual(len(self.requests), 4)
        self.assertEqual(sorted(p.name for p in (self.scratch / "volume/big").iterdir()), ["config.json", "parts"])

    def test_leaves_no_part_when_the_pod_ends(self):
        script, variables = self.prepare()
        reached, ended = threading.Event(), threading.Event()
        self.before_body.append(lambda: (reached.set(), ended.wait(10)))
        pod = subprocess.Popen(["sh", script], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertTrue(reached.wait(10))
        deadline = time.monotonic() + 10
        while not list((self.scratch / "volume/big").glob(".*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        pod.terminate()
        self.assertEqual(pod.wait(10), 143)
        ended.set()
        self.assertEqual(list((self.scratch / "volume/big").iterdir()), [])

    def test_ends_while_it_computes_a_sum(self):
        programs, begun = self.scratch / "programs", self.scratch / "begun"
        programs.mkdir()
        (programs / "sha256sum").write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
        (programs / "sha256sum").chmod(0o755)
        script, variables = self.prepare(PATH=f"{programs}:{os.environ['PATH']}")
        pod = subprocess.Popen(["sh", script], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(pod.kill)
        deadline = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        pod.terminate()
        self.assertEqual(pod.wait(10), 143)
        self.assertEqual(list((self.scratch / "volume/big").iterdir()), [])


class Pods(unittest.TestCase):
    """What the chart has pods download."""

    def deployments(self, letter="0"):
        """By the part of their name after the release's. The head has its own claim, and no download of its own."""
        values = chart.values_of("cpu")
        values["model"]["claim"] = "weights"
        values["model"]["download"]["files"]["config.json"] = letter * 64
        values["downloader"] = {"env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}]}
        values["proposers"]["eagle"] = {"method": "eagle3", "model": {"claim": "heads"}}
        self.documents = chart.render(values)
        return {d["metadata"]["name"].removeprefix("demo-"): d["spec"] for d in chart.find(self.documents, "Deployment")}

    def test_an_update_waits_for_downloads(self):
        deadlines = {name: spec["progressDeadlineSeconds"] // 60 for name, spec in self.deployments().items()}
        self.assertEqual(deadlines, {"verifier": 30 + 5 + 90, "proposer-ngram": 10 + 5, "proposer-suffix": 10 + 5,
                                     "proposer-draft": 10 + 5 + 60, "proposer-eagle": 10 + 5 + 90})

    def test_a_new_download_restarts_the_pods_that_read_it(self):
        old, new = ({name: spec["template"]["metadata"].get("annotations") for name, spec in self.deployments(letter).items()}
                    for letter in "01")
        self.assertEqual({name for name in old if old[name] != new[name]}, {"verifier", "proposer-eagle"})

    def test_the_pods_of_a_head_wait_for_the_verifiers_model(self):
        pods = {name: spec["template"]["spec"] for name, spec in self.deployments().items()}
        head = pods["proposer-eagle"]
        volumes = {volume["name"]: volume for volume in head["volumes"]}
        (download,) = head["initContainers"]
        places = {mount["mountPath"]: volumes[mount["name"]] for mount in download["volumeMounts"]}
        self.assertEqual(places["/target"]["persistentVolumeClaim"], {"claimName": "weights", "readOnly": False})
        script = places["/download"]["configMap"]["name"]
        self.assertIn("model.safetensors", chart.find(self.documents, "ConfigMap", script)[0]["data"]["SHA256SUMS"])
        variables, of_verifier = ({v["name"]: v for v in container["env"]} for container in
                                  [download, pods["verifier"]["initContainers"][0]])
        self.assertEqual(variables.pop("FOLDER")["value"], "/target")
        self.assertEqual(of_verifier.pop("FOLDER")["value"], "/model")
        self.assertEqual(variables, of_verifier)
        self.assertEqual(variables["HTTPS_PROXY"]["value"], "http://proxy.example:3128")
        self.assertIn("--target=/target", head["containers"][0]["args"])
        self.assertIs(next(mount for mount in head["containers"][0]["volumeMounts"]
                           if mount["mountPath"] == "/target")["readOnly"], True)


if __name__ == "__main__":
    unittest.main()
