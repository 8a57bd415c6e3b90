#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_tables.cc: the properties of each code point in Hugging Face's `tokenizers`.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
    venv/bin/python common/tokenizer/unicode/make_unicode_tables.py

The library uses several crates with different versions of Unicode. So the script asks the library itself about every code
point:
  regular expressions (Oniguruma)                         16.0
  the Digits pre-tokenizer (Rust's char::is_numeric)      17.0
  the Punctuation pre-tokenizer (unicode_categories)      8.0
  normalisation (unicode-normalization-alignments)        9.0
Python's own `unicodedata`, of Unicode 14 or later, proposes decompositions, and the library's answers confirm them.
"""
import os
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
PROPERTIES = ("Alphabetic White_Space Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin "
              "Thai").split()
CODE_POINTS = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]
TEXT = "".join(map(chr, CODE_POINTS))
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
HANGUL = range(0xac00, 0xd7a4)


def found_by(pre_tokenizer):
    """The code points of the whole text that a pre-tokenizer keeps."""
    found = set()
    for i in range(0, len(TEXT), 4096):
        for word, _ in pre_tokenizer.pre_tokenize_str(TEXT[i:i + 4096]):
            found.update(map(ord, word))
    return found


def matched(pattern):
    return found_by(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def isolated(pre_tokenizer):
    """The code points that become words of their own between letters."""
    found = set()
    for i in range(0, len(CODE_POINTS), 2048):
        text = "".join("a" + chr(c) for c in CODE_POINTS[i:i + 2048])
        found.update(ord(w) for w, _ in pre_tokenizer.pre_tokenize_str(text) if len(w) == 1 and w != "a")
    return found


def category_runs():
    names = {}
    for index, name in enumerate(CATEGORIES):
        if name != "Cs":
            for c in matched(r"\p{%s}+" % name):
                assert c not in names
                names[c] = index
    runs, last = [], None
    for c in range(0x110000):
        index = names.get(c, CATEGORIES.index("Cs"))
        if index != last:
            runs.append(c << 5 | index)
        last = index
    return runs


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def decompositions():
    """(composite, first, second or 0, whether first and second compose again), as one level of UnicodeData.txt."""
    out, levels = [], {}
    for c in CODE_POINTS:
        if c in HANGUL or NFD(chr(c)) == chr(c):
            continue
        level = [int(part, 16) for part in unicodedata.decomposition(chr(c)).split()]
        assert 1 <= len(level) <= 2, hex(c)
        levels[c] = level
        composes = len(level) == 2 and NFC("".join(map(chr, level))) == chr(c)
        out.append((c, level[0], level[1] if len(level) == 2 else 0, composes))

    def whole(c):
        return "".join(whole(part) for part in levels[c]) if c in levels else chr(c)
    for c in levels:  # their marks are in order already
        assert whole(c) == NFD(chr(c)), hex(c)
    return out


def combining_classes():
    """The combining class of each code point, found by its place among marks of all classes."""
    def swaps(a, b):
        return a != b and NFD(a + b) == b + a
    # 0334 has the lowest class and 0345 the highest: a mark changes places with one of the two.
    marks = [chr(c) for c in CODE_POINTS if c not in HANGUL and NFD(chr(c)) == chr(c)
             and (c == 0x334 or c == 0x345 or swaps(chr(c), "\u0334") or swaps("\u0345", chr(c)))]
    of_class = {}
    for mark in marks:
        of_class.setdefault(unicodedata.combining(mark), mark)
    for mark in marks:
        value = unicodedata.combining(mark)
        assert value > 0
        for other_value, other in of_class.items():
            assert swaps(mark, other) == (other_value < value) and swaps(other, mark) == (value < other_value), mark
    return {ord(mark): unicodedata.combining(mark) for mark in marks}


def class_runs(classes):
    runs, last = [], 0
    for c in range(0x110000):
        value = classes.get(c, 0)
        if value != last:
            runs.append(c << 8 | value)
        last = value
    return runs


def array(declaration, numbers):
    lines, line = [f"{declaration} = {{"], "   "
    for number in numbers:
        item = f" {number if number < 10 else hex(number)},"
        if len(line) + len(item) > 120:
            lines.append(line)
            line = "   "
        line += item
    return lines + [line, "};", ""]


def range_array(name, code_points):
    return array(f"constexpr CodePointRange {name}[]", [c for pair in ranges(code_points) for c in pair])


def main():
    lines = """// SPDX-License-Identifier: Apache-2.0
// make_unicode_tables.py made this file and describes its source. Do not edit it.
// clang-format off
#include "common/tokenizer/unicode/unicode_tables.h"

namespace foretoken::tokenizer {
namespace {
""".split("\n")
    lines += array("constexpr uint32_t kRuns[]", category_runs())
    for name in PROPERTIES:
        lines += range_array("k" + name.replace("_", ""), matched(r"\s+" if name == "White_Space" else r"\p{%s}+" % name))
    lines += ["constexpr NamedSet kNamed[] = {"]
    lines += [f'    {{"{name}", k{name.replace("_", "")}}},' for name in PROPERTIES] + ["};", ""]
    lines += range_array("kDigits", isolated(pre_tokenizers.Digits(individual_digits=True)))
    lines += range_array("kPunctuationSigns", isolated(pre_tokenizers.Punctuation("isolated")))
    lines += array("constexpr uint32_t kClassRuns[]", class_runs(combining_classes()))
    lines += ["constexpr Decomposition kPairs[] = {"]
    line = "   "
    for c, first, second, composes in decompositions():
        item = f" {{{c:#x}, {first:#x}, {second:#x}, {int(composes)}}},"
        if len(line) + len(item) > 120:
            lines.append(line)
            line = "   "
        line += item
    lines += [line, "};", "", "}  // namespace", ""]
    lines += [f'constinit const absl::string_view kCategoryNames = "{" ".join(CATEGORIES)}";',
              "constinit const std::span<const uint32_t> kCategoryRuns = kRuns;",
              "constinit const std::span<const NamedSet> kNamedSets = kNamed;",
              "constinit const std::span<const CodePointRange> kNumeric = kDigits;",
              "constinit const std::span<const CodePointRange> kPunctuation = kPunctuationSigns;",
              "constinit const std::span<const uint32_t> kCombiningClassRuns = kClassRuns;",
              "constinit const std::span<const Decomposition> kDecompositions = kPairs;", "",
              "}  // namespace foretoken::tokenizer", ""]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unicode_tables.cc")
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write("\n".join(lines))


if __name__ == "__main__":
    main()
