#!/usr/bin/env python3
"""Write a small tokenizer in the form of Kimi-K2's and Moonlight's, and what PyPI's `tiktoken` makes of seeded strings.

    pip install tokenizers==0.23.3 tiktoken==0.14.0
    python3 tools/tokenizer/kimi.py --out tests/data/tokenizer /usr/share/common-licenses/*-*

The files are text to learn merges from. Writes kimi/tiktoken.model, kimi/tokenizer_config.json and kimi.golden, in the
format of golden.py. The pattern, the special tokens and where long texts are cut are the published tokenizer's.
"""

import argparse
import base64
import json
import pathlib

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import families
import golden

NUM_RESERVED = 256
MAX_CHARS, MAX_RUN_CHARS = 400_000, 25_000
# Id behind the ranks, text, whether it is left out of text without special tokens.
SPECIALS = [
    (0, "[BOS]", True), (1, "[EOS]", True), (2, "<|im_end|>", True), (3, "<|im_user|>", True),
    (4, "<|im_assistant|>", True), (6, "<|start_header_id|>", True), (7, "<|end_header_id|>", True),
    (9, "[EOT]", True), (10, "<|im_system|>", True), (11, "<|tool_calls_section_begin|>", False),
    (12, "<|tool_calls_section_end|>", False), (13, "<|tool_call_begin|>", False),
    (14, "<|tool_call_argument_begin|>", False), (15, "<|tool_call_end|>", False), (17, "<|im_middle|>", True),
    (254, "[UNK]", True), (255, "[PAD]", True),
]
# Tokens that merges do not make of their bytes.
UNMERGED = ["\u4e16\u754c\u548c\u5e73", " Zqxj", "Qzzq", "\u00e9\u00e8\u00ea"]


def train(texts, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(families.KIMI_MAIN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet,
                                                             show_progress=False))
    byte_of = spelled_bytes()
    vocab = tokenizer.get_vocab()
    tokens = [bytes(byte_of[c] for c in text) for text in sorted(vocab, key=vocab.get)]
    tokens += [text.encode() for text in UNMERGED if text.encode() not in tokens]
    return {token: rank for rank, token in enumerate(tokens)}


def spelled_bytes():
    """The byte that each character of the byte-level alphabet spells."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(0x100 + i): b for i, b in enumerate(shifted)}}


def special_tokens(num_ranks):
    names = {num_ranks + i: f"<|reserved_token_{num_ranks + i}|>" for i in range(NUM_RESERVED)}
    names.update({num_ranks + i: text for i, text, _ in SPECIALS})
    return {text: i for i, text in names.items()}


def config(num_ranks):
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {
        "added_tokens_decoder": {str(num_ranks + i): {"content": text, **flags, "special": special}
                                 for i, text, special in SPECIALS},
        "additional_special_tokens": [text for _, text, special in SPECIALS if special and text.startswith("<|")],
        "bos_token": "[BOS]", "clean_up_tokenization_spaces": False, "eos_token": "[EOS]", "extra_special_tokens": {},
        "model_max_length": 1000000000000000019884624838656, "pad_token": "[PAD]",
        "tokenizer_class": "TikTokenTokenizer", "unk_token": "[UNK]",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}


def stretches(text):
    """What is encoded one by one: at most MAX_CHARS, no run of (no) white space longer than MAX_RUN_CHARS."""
    for first in range(0, len(text), MAX_CHARS):
        part = text[first:first + MAX_CHARS]
        begin = length = 0
        for i, c in enumerate(part):
            if i == 0 or c.isspace() != part[i - 1].isspace():
                length = 0
            elif length == MAX_RUN_CHARS:
                yield part[begin:i]
                begin, length = i, 0
            length += 1
        yield part[begin:]


def long_strings():
    for unit, count in [("ab", 13_000), (" ", 25_001), ("\u4e2d", 25_001), ("\x1c ", 12_600), ("word ", 80_001)]:
        yield unit * count


def make_golden(ranks, count, decodings):
    specials = special_tokens(len(ranks))
    encoding = tiktoken.Encoding("kimi", pat_str=families.KIMI_MAIN, mergeable_ranks=ranks, special_tokens=specials)
    generator = golden.Generator(5, sorted(specials)[::7] + [text for _, text, _ in SPECIALS])
    strings = [generator.string() for _ in range(count)] + list(golden.long_strings(generator)) + [""]
    strings += UNMERGED + list(long_strings())
    strings += ["it's IT'S don\u2019t we'LL I'\u017f HTTPServer \u01c5a \u00aaB \u0301A \u0301a"]
    out = bytearray(b"FTHMTOK1" + len(strings).to_bytes(4, "little"))
    for text in strings:
        ids = [i for part in stretches(text) for i in encoding.encode(part, allowed_special="all")]
        plain = [i for part in stretches(text) for i in encoding.encode_ordinary(part)]
        out += golden.counted(text) + golden.packed(ids)
        out += b"\0" if ids == plain else golden.varint(len(plain) + 1) + b"".join(map(golden.varint, plain))
    hidden = {len(ranks) + i for i, _, special in SPECIALS if special}
    last = len(ranks) + NUM_RESERVED - 1
    out += decodings.to_bytes(4, "little")
    for _ in range(decodings):
        ids = [generator.random.randint(0, last) if generator.random.random() < 0.97 else last + 7
               for _ in range(generator.random.randint(0, 9))]
        out += golden.packed(ids)
        for shown in ([i for i in ids if i <= last and i not in hidden], [i for i in ids if i <= last]):
            out += golden.counted(encoding.decode_bytes(shown).decode("utf-8", errors="replace"))
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--strings", type=int, default=20_000)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    texts = [path.read_text(errors="replace") for path in sorted(args.files)]
    generator = golden.Generator(6, ["<think>"])
    texts += [generator.string() for _ in range(30_000)]
    ranks = train(texts, 2000)
    folder = args.out / "kimi"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    (folder / "tiktoken.model").write_text("".join(lines))
    (folder / "tokenizer_config.json").write_text(json.dumps(config(len(ranks)), indent=2) + "\n")
    data = make_golden(ranks, args.strings, 8_000)
    (args.out / "kimi.golden").write_bytes(data)
    print(f"{len(ranks)} ranks, kimi.golden: {len(data)} bytes")


if __name__ == "__main__":
    main()
