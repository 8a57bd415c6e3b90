# SPDX-License-Identifier: Apache-2.0
"""The script of the init container that downloads a model. If a test fails, a pod starts with a broken model, or waits for
one that is there.

    tests/deploy/run.sh build/release download_test
"""
import functools
import hashlib
import http.server
import os
import pathlib
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

        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=self.scratch / "hub"))
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
        self.assertEqual(result.returncode, 0, result.stderr)
        for file in ["config.json", "parts/weights"]:
            self.assertEqual((self.scratch / "volume/big" / file).read_bytes(), (self.scratch / "hub" / file).read_bytes())
        self.assertEqual(sorted(self.requests), [("/config.json", "Bearer secret"), ("/parts/weights", "Bearer secret")])
        again = self.download()
        self.assertEqual(again.returncode, 0)
        self.assertEqual(len(self.requests), 2, "files that are there are not fetched again")
        self.assertIn("config.json: there already", again.stdout)
        self.assertNotIn("secret", result.stdout + result.stderr)

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
        result = self.download({"absent": "0" * 64})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("404", result.stderr)

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


if __name__ == "__main__":
    unittest.main()
