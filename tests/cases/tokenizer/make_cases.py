#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the test data in this folder: pip install tokenizers==0.23.3, then run it. The tests themselves need no Python.

  STYLE/tokenizer.json   a small tokenizer trained here, in the style of llama3, qwen2, llama2, mistral or unigram
  texts.txt              hostile texts, one JSON string a line
  STYLE/expected.txt     a line for each text (unigram: for each tenth, empty where the text spells a byte that is no
                         character, which decoder.h decodes otherwise): IDS TAB SPECIAL_IDS TAB DECODED
                           IDS: two letters for each id, id = 64 * ALPHABET[first] + ALPHABET[second], with the tokens that
                           the file adds by itself; the spellings of special tokens are plain text
                           SPECIAL_IDS: the same with these spellings parsed; empty where equal to IDS
                           DECODED: SPECIAL_IDS decoded without special tokens, a JSON string; empty where equal to the text
  variants.json          changes to a style's file (RFC 7386 merge patches) with a few texts, their ids and decoded texts
  unicode.json           for pre-tokenizers, normalizers and an added token: what becomes of every code point, a hash for
                           each assigned block of 4096
"""
import collections
import functools
import glob
import hashlib
import json
import math
import os
import random
import sysconfig
import unicodedata

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NUM_TEXTS = 10000
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_PATTERN = LLAMA3_PATTERN.replace("{1,3}", "")
# Of a later generation: upper and lower case apart (Mistral Nemo and others).
CASED_PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                 r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                 r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Ranges that the training text and the hostile texts draw from.
SCRIPTS = [(0x20, 0x7e), (0xa1, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x620, 0x64a), (0x905, 0x939),
           (0xe01, 0xe3a), (0x10d0, 0x10f0), (0x1100, 0x11c2), (0x1e00, 0x1eff), (0x3041, 0x3096), (0x30a1, 0x30fa),
           (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x1f600, 0x1f64f)]


@functools.lru_cache(maxsize=None)
def agreed(c):
    """No surrogate, and no mark that is younger than the library's table of combining classes (Unicode 9): unicode.json
    has those."""
    if 0xd800 <= c <= 0xdfff:
        return False
    text = f"e{chr(c)}\u0301{chr(c)}\u0323\u0327{chr(c)}"
    return unicodedata.normalize("NFC", text) == normalizers.NFC().normalize_str(text)


def pick(rng, low, high):
    while True:
        c = rng.randint(low, high)
        if agreed(c):
            return chr(c)


# ---------------------------------------------------------------------------------------------------------- tokenizers
def training_text():
    rng = random.Random(1)
    files = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:120]
    lines = []
    for path in files:
        with open(path, encoding="utf-8", errors="ignore") as f:
            lines += f.read().splitlines(keepends=True)
    for low, high in SCRIPTS[1:]:
        # Few enough words that some are worth a token.
        words = ["".join(pick(rng, low, min(high, low + 80)) for _ in range(rng.randint(1, 4))) for _ in range(40)]
        lines += [" ".join(rng.choices(words, k=8)) + "\n" for _ in range(200)]
    return lines


def added(tokens):
    return [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": special, **more} for i, content, special, more in tokens]


def bos_template(token, token_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": token, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def byte_level(use_regex=False, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def train_byte_level(lines, pattern, size, normalizer):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    sequence = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, byte_level()]}
    return model, sequence


def base(model, **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, **parts, "model": model}


def llama3(lines):
    model, pre_tokenizer = train_byte_level(lines, LLAMA3_PATTERN, 1400, None)
    # Some tokens that no merge reaches, which only ignore_merges finds.
    used = {side for merge in model["merges"] for side in merge}
    model["merges"] = [m for i, m in enumerate(model["merges"]) if i % 5 or "".join(m) in used]
    model["ignore_merges"] = True
    n = len(model["vocab"])
    return base(model, pre_tokenizer=pre_tokenizer, decoder=byte_level(True, True),
                post_processor={"type": "Sequence", "processors": [
                    byte_level(True, True), bos_template("<|begin_of_text|>", n)]},
                added_tokens=added([(n, "<|begin_of_text|>", True, {}), (n + 1, "<|end_of_text|>", True, {}),
                                    (n + 2, "<|eot_id|>", True, {}), (n + 3, "<|reserved_special_token_0|>", True, {}),
                                    (n + 4, "<|reserved_special_token_00|>", True, {})]))


def qwen2(lines):
    model, pre_tokenizer = train_byte_level(lines, QWEN2_PATTERN, 1200, normalizers.NFC())
    model["merges"] = [" ".join(m) for m in model["merges"]]  # the older spelling
    n = len(model["vocab"])
    return base(model, normalizer={"type": "NFC"}, pre_tokenizer=pre_tokenizer, decoder=byte_level(),
                post_processor=byte_level(),
                added_tokens=added([(n, "<|endoftext|>", True, {}), (n + 1, "<|im_start|>", True, {}),
                                    (n + 2, "<|im_end|>", True, {}), (n + 3, "<tool_call>", False, {}),
                                    (n + 4, "</tool_call>", False, {}), (n + 5, "caf\u00e9", False, {"normalized": True})]))


def sentence_piece(lines, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    # Not limit_alphabet, which breaks ties differently in every run.
    counts = collections.Counter(c for line in lines for c in line)
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:600])
    lines = ["".join(c for c in line if c in kept) for line in lines]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    trained = json.loads(tokenizer.to_str())["model"]
    # SentencePiece has line feeds and the like as byte tokens only.
    tokens = [t for t in sorted(trained["vocab"], key=trained["vocab"].get) if all(ord(c) >= 0x20 for c in t)]
    # Files have control tokens first, then bytes, then the others.
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + tokens
    kept = set(tokens)
    merges = [m for m in trained["merges"] if {m[0], m[1], m[0] + m[1]} <= kept]
    # Runs of spaces have tokens too, which words of one text do not teach.
    for n in (2, 4, 8):
        names.append("\u2581" * n)
        merges.append(["\u2581" * (n // 2)] * 2)
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {name: i for i, name in enumerate(names)}, "merges": merges}


SENTENCE_PIECE_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
CONTROL = [(0, "<unk>", True, {}), (1, "<s>", True, {}), (2, "</s>", True, {})]


def llama2(lines):
    model = sentence_piece(lines, 1100)
    model["merges"] = [" ".join(m) for m in model["merges"]]
    return base(model, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        decoder=SENTENCE_PIECE_DECODER, post_processor=bos_template("<s>", 1), added_tokens=added(CONTROL))


def mistral(lines):
    model = sentence_piece(lines, 1000)
    n = len(model["vocab"])
    return base(model, pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                                      "split": False},
                decoder=SENTENCE_PIECE_DECODER, post_processor=bos_template("<s>", 1),
                added_tokens=added(CONTROL + [(n, "[INST]", True, {}), (n + 1, "[/INST]", True, {}),
                                              (n + 2, "[TOOL]", False, {})]))


def unigram(lines):
    """The tokens of a SentencePiece-style BPE, with the logarithms of how often the text has them."""
    text = "".join(lines).replace(" ", "\u2581")
    names = list(sentence_piece(lines, 900)["vocab"])
    is_control = [name.startswith("<") and name.endswith(">") and len(name) > 2 for name in names]
    counts = [0 if control else text.count(name) for name, control in zip(names, is_control)]
    vocab = [[name, 0.0 if control else round(math.log((count + 0.5) / sum(counts)), 4)]
             for name, control, count in zip(names, is_control, counts)]
    return base({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": True},
                pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                decoder=SENTENCE_PIECE_DECODER, post_processor=bos_template("<s>", 1), added_tokens=added(CONTROL))


STYLES = {"llama3": llama3, "qwen2": qwen2, "llama2": llama2, "mistral": mistral, "unigram": unigram}
EVERY_TENTH = {"unigram"}

# --------------------------------------------------------------------------------------------------------------- texts
SPELLINGS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|reserved_special_token_0|>",
             "<|reserved_special_token_00|>", "<|reserved_special_token_0", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
             "<tool_call>", "</tool_call>", "caf\u00e9", "cafe\u0301", "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[TOOL]",
             "<0x0A>", "<0xFF>", "\u2581", "<|", "|>", "<<s>>", "\u2581\u2581", "\u0120", "\u010a"]


def alphabets():
    ranges = SCRIPTS + [(0x0, 0x1f), (0x7f, 0xa0), (0x300, 0x36f), (0x590, 0x5ff), (0x900, 0x97f), (0x1ab0, 0x1abe),
                        (0x2000, 0x206f), (0x2070, 0x218b), (0x2190, 0x23ff), (0x2460, 0x24ff), (0x3000, 0x303f),
                        (0xd700, 0xd7ff), (0xe000, 0xe0ff), (0xf900, 0xfad9), (0xfb00, 0xfb4f), (0xfe00, 0xfe0f),
                        (0xff00, 0xffef), (0xfff0, 0xffff), (0x1d000, 0x1d1ff), (0x1d400, 0x1d7ff), (0x1f1e6, 0x1f1ff),
                        (0x1f3fb, 0x1f3ff), (0x2f800, 0x2fa1d), (0xe0000, 0xe01ef), (0xf0000, 0xf00ff),
                        (0x10ff00, 0x10ffff), (0x0, 0x2fff), (0x0, 0xffff), (0x0, 0x10ffff)]
    return [lambda rng, r=r: pick(rng, *r) for r in ranges] + [
        lambda rng: rng.choice(" \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2003\u200b\u2028\u2029\u202f\u3000\ufeff"),
        lambda rng: rng.choice(["\n", "\r", "\r\n", "\n\n", " \n", "\n ", "\u2028", "\u0085", "\v"]),
        lambda rng: " " * rng.randint(1, 9),
        lambda rng: rng.choice("aeiouAEIOU") + "".join(pick(rng, 0x300, 0x345) for _ in range(rng.randint(1, 5))),
        lambda rng: rng.choice(["'s", "'T", "'RE", "'ve", "'m", "'LL", "'d", "'\u017f", "'", "\u2019s"]),
        lambda rng: str(rng.randint(0, 10**rng.randint(1, 12))),
        lambda rng: rng.choice(["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308",
                                "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u2764\ufe0f"]),
        lambda rng: rng.choice(["\u202e", "\u202c", "\u200f", "\u2067", "\u061c"]) + pick(rng, 0x5d0, 0x5ea),
        lambda rng: rng.choice(["def ", "return ", "    self.", "import ", "class ", "__init__", "print(", "):\n    "]),
        lambda rng: rng.choice(["\u1112\u1161\u11ab", "\uac00\u11a8", "\u0958", "\u0f73", "\u2126", "\u212b", "\u1e9b\u0323"]),
        lambda rng: rng.choice(["\ud7ff", "\ue000", "\ufffd", "\ufffe", "\uffff", "\U00010000", "\U0010ffff", "\0"]),
    ]


def hostile_texts():
    rng = random.Random(2)
    kinds = alphabets()
    texts = ["", " ", "  ", "\n", "\0", "a", " a", "a ", "\u2581", "\u2581a", " \u2581a", "\ufeff", "\u0301", "\u0301a"]
    texts += SPELLINGS + [f"a{s}b" for s in SPELLINGS] + [f"  {s}  " for s in SPELLINGS] + [s + s for s in SPELLINGS]
    for c in " \t\na1.\u00e9\u4e2d\u0301\U0001f600\u2581\0":
        texts += [c * n for n in (2, 3, 7, 16, 65, 300)]
    seen = set(texts)
    while len(texts) < NUM_TEXTS:
        chosen = rng.sample(kinds, rng.randint(1, 4))
        length = min(2 + int(rng.expovariate(1 / 7)), 60)
        pieces = [rng.choice(chosen)(rng) for _ in range(length)]
        if rng.random() < 0.10:
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(SPELLINGS))
        if rng.random() < 0.05:
            i = rng.randrange(len(pieces))
            pieces[i] *= rng.randint(2, 12)
        text = "".join(pieces)
        if text not in seen:
            seen.add(text)
            texts.append(text)
    return texts


# ------------------------------------------------------------------------------------------------------------ expected
def without_special_pieces(spec):
    """The file with other spellings of the special tokens in its Unigram model. With the library's option
    encode_special_tokens, the model would still find these tokens in a text."""
    if spec["model"]["type"] != "Unigram":
        return spec
    special = {t["id"] for t in spec["added_tokens"] if t["special"]}
    vocab = [(f"(special {i})" if i in special else token, score) for i, (token, score) in enumerate(spec["model"]["vocab"])]
    return {**spec, "model": {**spec["model"], "vocab": vocab},
            "added_tokens": [t for t in spec["added_tokens"] if not t["special"]]}


class Reference:
    def __init__(self, spec):
        self.plain = Tokenizer.from_str(json.dumps(without_special_pieces(spec)))
        self.parsing = Tokenizer.from_str(json.dumps(spec))
        self.plain.encode_special_tokens = True

    def expect(self, text):
        ids, special_ids = self.plain.encode(text).ids, self.parsing.encode(text).ids
        return ids, special_ids, self.parsing.decode(special_ids, skip_special_tokens=True)


def letters(ids):
    return "".join(ALPHABET[i // 64] + ALPHABET[i % 64] for i in ids)


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def write(name, text):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write(text)


def merge_patch(target, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def metaspace(**more):
    return {"type": "Metaspace", "replacement": "\u2581", **more}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def variants(specs):
    # Without gaps: the library numbers tokens that it finds behind a gap anew.
    n = {style: max([len(spec["model"]["vocab"]) - 1] + [t["id"] for t in spec["added_tokens"]]) + 1
         for style, spec in specs.items()}

    def more(style, *tokens):
        return {"added_tokens": specs[style]["added_tokens"] + added(
            [(n[style] + i, content, special, flags) for i, (content, special, flags) in enumerate(tokens)])}
    sides = [("<L>", False, {"lstrip": True}), ("<R>", False, {"rstrip": True}), ("<W>", False, {"single_word": True}),
             ("word", False, {"single_word": True}), ("<LR>", True, {"lstrip": True, "rstrip": True}),
             ("<N>", False, {"normalized": True}), ("w\u00f6", False, {"normalized": True, "single_word": True}),
             ("<L><L>", False, {})]

    def all_normalized(style):
        return {"added_tokens": [{**token, "normalized": True} for token in specs[style]["added_tokens"]]}
    two = {"String": "--"}
    return [
        ("mistral", {"pre_tokenizer": metaspace(add_prefix_space=True, prepend_scheme=None, split=None)}),
        ("mistral", {"pre_tokenizer": metaspace(prepend_scheme="always", split=True)}),
        ("mistral", {"pre_tokenizer": metaspace(prepend_scheme="always", split=False)}),
        ("mistral", {"pre_tokenizer": metaspace(prepend_scheme="first", split=True)}),
        ("mistral", {"pre_tokenizer": metaspace(prepend_scheme="never", split=False)}),
        ("mistral", {"decoder": {"decoders": None, **metaspace(prepend_scheme="always", split=False)}}),
        ("mistral", {"decoder": {"decoders": None, **metaspace(prepend_scheme="never", split=False)}}),
        ("mistral", {"decoder": {"decoders": SENTENCE_PIECE_DECODER["decoders"][:3]}}),
        ("mistral", {"model": {"byte_fallback": False}}),
        ("mistral", {"model": {"byte_fallback": False, "fuse_unk": False}}),
        ("mistral", {"model": {"byte_fallback": False, "unk_token": None}}),
        ("mistral", {"model": {"vocab": {"<0xE4>": None, "(no byte)": 3 + 0xE4}}}),
        ("mistral", more("mistral", *sides)),
        ("llama2", more("llama2", *sides)),
        ("llama2", {"normalizer": {"normalizers": specs["llama2"]["normalizer"]["normalizers"][1:]}}),
        ("llama2", {"normalizer": {"normalizers": specs["llama2"]["normalizer"]["normalizers"][1:]},
                    **all_normalized("llama2")}),
        ("qwen2", more("qwen2", *sides)),
        ("qwen2", all_normalized("qwen2")),
        ("qwen2", {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "--"}, "content": "\u2014"}]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split(two, "Isolated"), byte_level(True)]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split(two, "Removed"), byte_level(True)]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split(two, "MergedWithPrevious"), byte_level()]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split(two, "MergedWithNext"), byte_level()]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split({"Regex": QWEN2_PATTERN}, "Removed", True), byte_level()]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split({"Regex": r"\w+|[^\w\s]+"}, "Isolated"), byte_level()]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": [split({"Regex": CASED_PATTERN}, "Isolated"), byte_level()]}}),
        ("qwen2", {"pre_tokenizer": {"pretokenizers": None, **byte_level(True, True)}}),
        ("llama3", {"model": {"ignore_merges": False}}),
        ("llama3", {"post_processor": {"processors": [
            {**bos_template("<|end_of_text|>", n["llama3"] - 4),
             "single": [{"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}]}]}}),
    ]


VARIANT_TEXTS = ["", " ", "a", " a b", "  a  b  ", "\u2581a", "<s>a</s> b", "[INST] hello [/INST]", "x--y", "--x-- --", "-----",
                 "----a----", "a -- b", "def f(x):\n    return x\n", "\u4e2d\u6587 \u5b57", "\u4e2d\u4e2d\u4e2d", "\u0378\u0378 \u0378",
                 "a\u0378b", "\U0001f600\U0001f600", "a\u4e2d\U0001f468\u200d\U0001f469b", "e\u0301 \u00e9", "<L>", "a  <L>  b",
                 "a  <R>  b", " <LR> <LR> ", "<L> <L>", "<L><L>", "x<W>y", "x <W> y", "\u00e9<W>", "<W>\u0301", "<W>_", "word",
                 "sword", "a word.", "words word", "\u24b6word", "\u200dword", "(word)", "<N>", "a<N>b", "a <N> b", "w\u00f6",
                 "wo\u0308 wo\u0308x", " w\u00f6 ", "<R>\n\n<L>", "a<|im_end|>b", "it's we'll I'D", "tab\there", "\ufeffx", "a\u180eb",
                 "<|begin_of_text|>x", "x<|end_of_text|>", "12345 67", "a\r\n\r\nb", " \n \n ", "\u3000x", "a_b\u203fc 1\u00b2",
                 "camelCase HTTPServer ABC\u0301d \u01c5x a//b/\n"]


def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


# The pre-tokenizers of public models.
SMOLLM2 = (digits(True), byte_level(True))
DEEPSEEK_CODER = (split({"Regex": r"[\r\n]"}, "Isolated"), split({"Regex": r"\s?\p{L}+"}, "Isolated"),
                  split({"Regex": r"\s?\p{P}+"}, "Isolated"),
                  split({"Regex": "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"}, "Isolated"), digits(True), byte_level())
DEEPSEEK_V3 = (split({"Regex": r"\p{N}{1,3}"}, "Isolated"), split({"Regex": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"}, "Isolated"),
               split({"Regex": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                               r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}, "Isolated"), byte_level())
FALCON = (punctuation("Contiguous"), byte_level(True), digits(False), split({"Regex": "[0-9][0-9][0-9]"}, "Isolated"))


def later_variants():
    """Variants of LATER_TEXTS."""
    def pattern(regex, behavior="Isolated"):
        return ("qwen2", sequence(split({"Regex": regex}, behavior), byte_level()))
    return [
        *[("qwen2", sequence(*steps)) for steps in (SMOLLM2, DEEPSEEK_CODER, DEEPSEEK_V3, FALCON)],
        ("qwen2", sequence(digits(False), byte_level())),
        *[("qwen2", sequence(punctuation(behavior), byte_level()))
          for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")],
        ("qwen2", sequence(byte_level(True, True), punctuation("Isolated"))),
        pattern(r"\d", "Contiguous"),
        pattern(r"[\p{L}&&[^\p{Han}]]+|\p{Han}"),
        pattern(r"[a-c[x-z]&&[^b]]+|[^\W\d]{,2}|\P{L}"),
        pattern(r"(?i:[k-s]+|'ve|\u0041{2,3}?)|(?i:a(?-i:b)c)|[]x]+"),
        pattern(r"(?<=a).|(?<![\s])b|(?>a+)b|^c|d$|\x{1F600}|\x41\z"),
        ("llama2", sequence(punctuation("Isolated"), digits(True))),
        ("unigram", {}),
        ("unigram", {"model": {"byte_fallback": False}}),
        ("unigram", {"model": {"unk_id": 300}}),
        ("unigram", {"pre_tokenizer": metaspace(prepend_scheme="first", split=False)}),
        ("unigram", {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}}),
    ]


LATER_TEXTS = ["", " ", "a", "12 345 6789", "x1y22", "a--b...c!", "(x) [y] {z}", "\u00b2\u00bd\u0663 \u216b\u3021", "\u4e2d\u6587\u5b57 a",
               "\u3072\u3089\u30ab\u30ca kana", "\U0001fae8 \U0001fae9\U0001fae9x", "\U0002ebf0\U000323af a\u08d3b", "e\u1acf\u0323\u0301",
               "Ab aBC ABC aaab", "Kk \u212a \u017f 's 'VE", "c\nd\nc d", "\U0001f600A", "]x]ab xyz ayc", "def f(x):\n    return x + 1\n",
               "<unk> <0x41> <s>", "\u0378\u0378\u0378 \u0378 a\u0378", "ss \u00df st", "\u166d \u2010\u2027 \u3008", "1\ufe0f\u20e3 \u0967\u0968",
               "hello world the return self", "    x", "caf\u00e9 cafe\u0301"]


def blocks():
    """All assigned code points but for most of the private ones."""
    for begin in [*range(0, 0x34000, 4096), 0xe0000, 0x10f000]:
        characters = [chr(c) for c in range(begin, begin + 4096) if not 0xd800 <= c <= 0xdfff]
        if characters:
            yield characters


def digest(parts):
    """Of byte strings, each ended by a byte that is not in UTF-8."""
    return hashlib.sha256(b"".join(part + b"\xff" for part in parts)).hexdigest()[:8]


def unicode_cases(qwen2_spec):
    cases = []
    for steps in [(split({"Regex": LLAMA3_PATTERN}, "Isolated"),), (split({"Regex": CASED_PATTERN}, "Isolated"),),
                  (split({"Regex": r"\w+|[^\w\s]+"}, "Isolated"),), DEEPSEEK_V3[:3], DEEPSEEK_CODER[:5],
                  (split({"Regex": r"\p{Sm}|\p{Sc}|\p{Sk}|\p{So}|\p{Cf}|\p{Zs}|\p{Mc}|\p{Me}|\p{No}|\p{Nl}|\p{Cn}+"}, "Isolated"),),
                  (split({"Regex": r"\p{Han}+|\p{Latin}+|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|\p{Cyrillic}+"}, "Isolated"),),
                  (digits(True),), (punctuation("Isolated"),)]:
        spec = sequence(*steps)["pre_tokenizer"]
        pre_tokenizer = Tokenizer.from_str(json.dumps(base(qwen2_spec["model"], pre_tokenizer=spec))).pre_tokenizer
        hashes = []
        for characters in blocks():
            words = pre_tokenizer.pre_tokenize_str("".join(f"a{c}b1{c}{c} {c}" for c in characters))
            hashes.append(digest(word.encode() for word, _ in words))
        cases.append({"pre_tokenizer": spec, "hashes": hashes})
    nfc = normalizers.NFC()
    cases.append({"normalizer": {"type": "NFC"}, "hashes": [
        digest(nfc.normalize_str(f"e{c}\u0301{c}\u0323\u0327{c}").encode() for c in characters) for characters in blocks()]})
    token = added([(len(qwen2_spec["model"]["vocab"]), "<W>", False, {"single_word": True})])
    patch = {"normalizer": None, "added_tokens": token}
    tokenizer = Tokenizer.from_str(json.dumps(merge_patch(qwen2_spec, patch)))
    cases.append({"patch": patch, "hashes": [
        digest([" ".join(map(str, tokenizer.encode("".join(f" {c}<W>" for c in characters)).ids)).encode()])
        for characters in blocks()]})
    return cases


def main():
    lines = training_text()
    texts = hostile_texts()
    specs = {style: make(lines) for style, make in STYLES.items()}
    write("texts.txt", "".join(dump(t) + "\n" for t in texts))
    for style, spec in specs.items():
        write(f"{style}/tokenizer.json", json.dumps(spec, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")
        reference = Reference(spec)
        out = []
        for text in texts[::10] if style in EVERY_TENTH else texts:
            if style in EVERY_TENTH and "<0xFF>" in text:
                out.append("\n")
                continue
            ids, special_ids, decoded = reference.expect(text)
            out.append("\t".join([letters(ids), "" if ids == special_ids else letters(special_ids),
                                  "" if decoded == text else dump(decoded)]) + "\n")
        write(f"{style}/expected.txt", "".join(out))
    cases = []
    for style, patch in variants(specs):
        reference = Reference(merge_patch(specs[style], patch))
        expected = [(text, *reference.expect(text)) for text in VARIANT_TEXTS]
        cases.append({"style": style, "patch": patch, "cases": [list(e) for e in expected]})
    for style, patch in later_variants():
        reference = Reference(merge_patch(specs[style], patch))
        expected = [(text, *reference.expect(text)) for text in LATER_TEXTS]
        cases.append({"style": style, "patch": patch, "cases": [list(e) for e in expected]})
    write("unicode.json", "[\n" + ",\n".join(dump(case) for case in unicode_cases(specs["qwen2"])) + "]\n")
    write("variants.json", "[\n" + ",\n".join(
        '{"style":' + dump(c["style"]) + ',"patch":' + dump(c["patch"]) + ',"cases":[\n' +
        ",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in c["cases"]) + "]}" for c in cases) + "]\n")


if __name__ == "__main__":
    main()
