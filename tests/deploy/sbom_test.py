# SPDX-License-Identifier: Apache-2.0
"""The list of an image's packages. If a test fails, two images have lists that cannot be told apart, or a build that is
repeated has another list.

    tests/deploy/run.sh build/release sbom_test
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest
from unittest import mock

import chart

PROGRAM = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "bin/foretoken_proposer"
SPEC = importlib.util.spec_from_file_location("make_sbom", chart.ROOT / "deploy/images/make_sbom.py")
make_sbom = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_sbom)


@unittest.skipUnless(shutil.which("dpkg-query"), "the packages of an image are Debian's")
class Sbom(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)

    def list_packages(self, *files):
        """The list of an image whose root has these files, too."""
        root = pathlib.Path(tempfile.mkdtemp(dir=self.scratch)) / "proposer"
        (root / "usr/share/doc/foretoken").mkdir(parents=True)
        for file in files:
            (root / file).touch()
        make_sbom.main(root, [str(PROGRAM)])
        return json.loads((root / "usr/share/doc/foretoken/sbom.spdx.json").read_text())

    def test_is_the_same_if_the_build_says_its_date(self):
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1700000000"}):
            first, second = self.list_packages(), self.list_packages()
        self.assertEqual(first, second)
        self.assertEqual(first["creationInfo"]["created"], "2023-11-14T22:13:20Z")

    def test_has_the_time_of_a_build_that_says_no_date(self):
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": ""}), mock.patch("time.time", return_value=1800000000.5):
            self.assertEqual(self.list_packages()["creationInfo"]["created"], "2027-01-15T08:00:00Z")

    def test_each_image_has_a_namespace_of_its_own(self):
        toolkit = self.scratch / "cuda"
        for name, version in re.findall(r"(nvidia-\S+)==([\d.]+)", (chart.ROOT / "dev").read_text()):
            licence = toolkit / f"{name.replace('-', '_')}-{version}.dist-info/License.txt"
            licence.parent.mkdir(parents=True)
            licence.touch()
        lists = [self.list_packages()]
        with mock.patch.object(make_sbom, "compiled_in_packages", lambda: {"g++"}):
            lists.append(self.list_packages())
        with mock.patch.object(make_sbom, "TOOLKIT", toolkit):
            lists.append(self.list_packages("usr/share/libnccl.so.2"))
        self.assertEqual([each["name"].split("-")[-1] for each in lists], ["cpu", "cpu", "cuda"])
        self.assertEqual(len({each["documentNamespace"] for each in lists}), 3)


if __name__ == "__main__":
    unittest.main()
