# SPDX-License-Identifier: Apache-2.0
"""The compose file, read by the loader of the compose specification, as `docker compose` reads it. If a test fails,
`docker compose` refuses the file, or gives a service more rights than it needs.

    tests/deploy/run.sh build/release compose_test
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import yaml

import chart

COMPOSE = chart.ROOT / "deploy/compose/compose.yaml"
LIBRARY = "github.com/compose-spec/compose-go/v2/cli@v2.16.2"
OURS = {"verifier", "ngram", "suffix", "draft"}


def build_loader():
    """load_compose.go, built once. Skips the tests without Go or the library."""
    source = pathlib.Path(__file__).resolve().parent / "load_compose.go"
    folder = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "compose" / LIBRARY.rpartition("@")[2]
    program = folder / "load_compose"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    if not shutil.which("go"):
        raise unittest.SkipTest("no Go here")

    def go(*arguments):
        variables = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
        return subprocess.run(["go", *arguments], cwd=folder, env={**os.environ, **variables}, capture_output=True,
                              text=True, check=False)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(source, folder)
    go("mod", "init", "example.com/compose")
    reached = go("get", LIBRARY)
    if reached.returncode != 0:
        raise unittest.SkipTest(f"{LIBRARY} was not reached: {reached.stderr[-500:]}")
    built = go("build", "-o", program, ".")
    if built.returncode != 0:
        raise AssertionError(built.stderr)
    return program


class ComposeFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.loader = build_loader()

    def load(self, path=COMPOSE, **variables):
        return subprocess.run([self.loader, path], env={**os.environ, **variables}, capture_output=True, text=True,
                              check=False)

    def load_changed(self, change):
        """Loads the file after `change(content)`, from a folder of its own."""
        content = yaml.safe_load(COMPOSE.read_text())
        change(content)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "compose.yaml"
            path.write_text(yaml.safe_dump(content))
            return self.load(path)

    def test_is_valid_and_restricts_our_services(self):
        result = self.load()
        self.assertEqual(result.returncode, 0, result.stderr)
        services = json.loads(result.stdout)["services"]
        gateway = services["gateway"]["build"]
        self.assertTrue((pathlib.Path(gateway["context"]) / gateway["dockerfile"]).exists())
        # Docker exports images at the same time, and refuses a tag that it is about to have.
        built = {service["image"]: service["build"] for service in services.values() if "build" in service}
        self.assertEqual(len(built), sum("build" in service for service in services.values()))
        for name in OURS:
            service = services[name]
            self.assertIn(service["image"], built, name)
            self.assertEqual(service.get("pull_policy"), None if "build" in service else "never", name)
            self.assertTrue(service["read_only"], name)
            self.assertEqual(service["stop_grace_period"], "45s", name)  # docker kills after 10 s, drains take 30
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            build = built[service["image"]]
            self.assertTrue((chart.ROOT / build["dockerfile"]).exists(), name)
            self.assertEqual(build["context"], str(chart.ROOT), name)
            for volume in service.get("volumes", []):
                self.assertTrue(volume["read_only"], f"{name}: {volume}")

    def test_another_model_takes_the_place_of_the_demos(self):
        result = self.load(MODEL="/models/llama")
        self.assertEqual(json.loads(result.stdout)["services"]["verifier"]["volumes"][0]["source"], "/models/llama")

    def test_the_check_refuses_what_the_specification_does(self):
        self.assertEqual(self.load_changed(lambda content: None).returncode, 0)
        for change, says in [
            (lambda services: services["verifier"].update(comand=[]), "comand"),
            (lambda services: services["ngram"].update(ports=["nine"]), "nine"),
            (lambda services: services["verifier"].update(depends_on=["nobody"]), "nobody"),
            (lambda services: services["jaeger"].pop("image"), "jaeger"),
        ]:
            result = self.load_changed(lambda content, change=change: change(content["services"]))
            self.assertNotEqual(result.returncode, 0, says)
            self.assertIn(says, result.stderr)


if __name__ == "__main__":
    unittest.main()
