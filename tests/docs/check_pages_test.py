#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_pages.py finds every kind of fault that it is there to find."""
import pathlib
import tempfile
import unittest

import check_pages


class CheckPages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("kernels/cpu/matmul.h", "// text\n")
        self.write("docs/examples/python_proposer.py", "one\ntwo\n")
        self.write("docs/good.md", "`matmul.h`, `cpu/matmul.h`, [the kernels](../kernels), [site](https://host/page)\n"
                   "<!-- quotes docs/examples/python_proposer.py -->\n```python\none\ntwo\n```\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect_fault(self, words):
        found = list(check_pages.faults(self.root))
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_good_pages_have_no_fault(self):
        self.assertEqual(list(check_pages.faults(self.root)), [])

    def test_a_named_file_has_to_exist(self):
        self.write("README.md", "see `kernels/matmul.h`\n")
        self.expect_fault("README.md: there is no file kernels/matmul.h")

    def test_a_named_folder_has_to_exist(self):
        self.write("README.md", "see `kernels/cpu/` and `kernels/gpu/`\n")
        self.expect_fault("README.md: there is no folder kernels/gpu/")

    def test_a_link_has_to_lead_somewhere(self):
        self.write("docs/bad.md", "see [the page](missing.md#part)\n")
        self.expect_fault("docs/bad.md: the link to missing.md leads nowhere")

    def test_a_quoted_file_has_to_be_equal(self):
        self.write("docs/examples/python_proposer.py", "one\nthree\n")
        self.expect_fault("the block differs from docs/examples/python_proposer.py")

    def test_a_quote_needs_its_block(self):
        self.write("docs/bad.md", "<!-- quotes docs/good.md -->\ntext\n")
        self.expect_fault("docs/bad.md: expected a block of code")

    def test_every_example_is_quoted(self):
        self.write("docs/examples/other.py", "text\n")
        self.expect_fault("docs/examples/other.py: no page quotes it")

    def test_the_example_is_short(self):
        text = "line\n" * 61
        self.write("docs/examples/python_proposer.py", text)
        self.write("docs/good.md", f"<!-- quotes docs/examples/python_proposer.py -->\n```python\n{text}```\n")
        self.expect_fault("expected at most 60 lines, got 61")


if __name__ == "__main__":
    unittest.main()
