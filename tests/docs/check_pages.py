#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the pages of the repository are true where a program can see it.

    tests/docs/check_pages.py REPOSITORY

- A source file that a page names between backticks exists. A page may leave out leading folders.
- A folder of the sources that a page names between backticks, with a slash at its end, exists.
- A relative link leads to a file or a folder.
- A block of code below the line `<!-- quotes FILE -->` equals that file, byte for byte.
- Every example is quoted by a page.
- The proposer of docs/writing-a-proposer.md has at most 60 lines.

Prints every fault and exits with 1, or with 0 where there is none.
"""
import pathlib
import re
import sys

MAX_EXAMPLE_LINES = 60
EXAMPLE = "docs/examples/python_proposer.py"
VERSIONS = ("/go.mod", "/go.sum")  # of an example's libraries; no page has to show them
FOLDERS = ("cmake", "client", "common", "deploy", "docs", "kernels", "proposer_service", "proto", "tests",
           "verifier_service")
SOURCE = re.compile(r"`([\w./-]+\.(?:cc|cuh?|h|inc|md|proto|py|sh))`")
FOLDER = re.compile(rf"`((?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
QUOTE = re.compile(r"^<!-- quotes (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(root):
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("deploy/**/*.md")])


def source_names(root):
    """Every way to name a file of the sources: `a/b/c.h`, `b/c.h`, `c.h`."""
    names = set()
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file()]
    for path in files:
        parts = path.relative_to(root).parts
        names.update("/".join(parts[i:]) for i in range(len(parts)))
    return names


def faults_of_page(root, page, names):
    text, name = page.read_text(encoding="utf-8"), page.relative_to(root)
    for source in SOURCE.findall(text):
        if source.removeprefix("./") not in names:
            yield f"{name}: there is no file {source}"
    for folder in FOLDER.findall(text):
        if not (root / folder).is_dir():
            yield f"{name}: there is no folder {folder}"
    for target in LINK.findall(text):
        if "://" not in target and not (page.parent / target).exists():
            yield f"{name}: the link to {target} leads nowhere"
    quotes = QUOTE.findall(text)
    if len(quotes) != text.count("<!-- quotes "):
        yield f"{name}: expected a block of code right below each quotes line"
    for file, block in quotes:
        if not (root / file).is_file():
            yield f"{name}: there is no file {file} to quote"
        elif (root / file).read_text(encoding="utf-8") != block:
            yield f"{name}: the block differs from {file}"


def faults(root):
    names = source_names(root)
    for page in pages(root):
        yield from faults_of_page(root, page, names)
    quoted = [file for page in pages(root) for file, _ in QUOTE.findall(page.read_text(encoding="utf-8"))]
    for file in sorted(path.relative_to(root).as_posix() for path in (root / "docs/examples").rglob("*.*")):
        if file not in quoted and not file.endswith(VERSIONS):
            yield f"{file}: no page quotes it"
    if (root / EXAMPLE).exists():
        num_lines = (root / EXAMPLE).read_text(encoding="utf-8").count("\n")
        if num_lines > MAX_EXAMPLE_LINES:
            yield f"{EXAMPLE}: expected at most {MAX_EXAMPLE_LINES} lines, got {num_lines}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "every page is in order")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
