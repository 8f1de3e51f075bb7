"""Texts that tokenizers disagree on: 20,000 paragraphs, the same for the same seed and wheels."""
import json
import pathlib
import random
import sysconfig

EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "😀", "❤️", "🤷🏿‍♀️", "①②③", "½¾", "Ⅷ", "x²"]
CONTRACTIONS = ["don't", "DON'T", "we'LL", "I'm", "he'd", "you'Re", "it'ſ", "o'clock", "'twas",
                "''s", "'", "rock'n'roll", "they've'd", "L'été", "’s"]
SPACES = [" ", "  ", "   \n", "\n\n", "\r\n", "\t", "\t\t ", "\u00a0", "\u2003 ", "\u3000", "\x0b",
          "\u0085", "\u2028", "\n  \n", " \n", "\u180e", "\u200b", "\ufeff"]
MARKS = ["é", "e\u0301", "ÅA\u030a", "한글", "한", "ก็", "हिन्दी", "\u0301\u0301", "ﬁ",
         "CamelCaseWord", "HTTPServer", "ǅungla", "ᾳͅ", "Cửa Việt", "İstanbul", "ʼn", "ªº"]
SIGNS = ["//", "/*", "!=", "->", "...", "…", "¿¡", "«»", "---\n", "#\n\n", "@/\r\n/", "<|", "|>",
         "{}[]();", "==/\n/x", "%s", "\\n", "€$£", "≠∑"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|endo", "[INST]",
           "<mask>", "<word>", "a<word>b"]


def words_of_many_languages(tekken):
    """The words in Mistral's vocabulary: text of about a hundred languages and of programs."""
    vocab = json.loads(pathlib.Path(tekken).read_text())["vocab"]
    return [entry["token_str"] for entry in vocab[256:] if entry["token_str"]]


def source_lines():
    lines = []
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines += path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return lines


def random_character(rng):
    while True:
        code = rng.choice((rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x20000),
                           rng.randrange(0x110000)))
        if not 0xd800 <= code < 0xe000:
            return chr(code)


def broken(rng, text):
    """The text with bytes lost and changed, read as a careful reader does."""
    raw = bytearray(text.encode())
    for _ in range(1 + len(raw) // 20):
        at = rng.randrange(len(raw))
        if rng.random() < 0.5:
            raw[at] = rng.randrange(256)
        else:
            del raw[at]
        raw = raw or bytearray(b"?")
    return raw.decode(errors="replace")


def paragraphs(tekken, count=20_000, seed=7):
    rng = random.Random(seed)
    words, lines = words_of_many_languages(tekken), source_lines()
    bags = [CONTRACTIONS, SPACES, MARKS, SIGNS, EMOJI, SPECIAL]
    out = []
    while len(out) < count:
        kind = len(out) % 8
        if kind in (0, 1):
            start = rng.randrange(len(lines) - 20)
            text = "".join(lines[start:start + rng.randrange(1, 12)])
        elif kind in (2, 3):
            start = rng.randrange(len(words) - 2000)
            text = "".join(rng.choice(words[start:start + 2000])
                           for _ in range(rng.randrange(2, 80)))
        elif kind == 4:
            text = "".join(rng.choice(rng.choice(bags)) for _ in range(rng.randrange(1, 60)))
        elif kind == 5:
            text = "".join(rng.choice(words) if rng.random() < 0.5 else rng.choice(rng.choice(bags))
                           for _ in range(rng.randrange(1, 80)))
        elif kind == 6:
            text = "".join(random_character(rng) for _ in range(rng.randrange(1, 80)))
        else:
            text = broken(rng, "".join(rng.choice(words) for _ in range(rng.randrange(2, 60))))
        out.append(text)
    out[:4] = ["", " ", "a" * 5000 + "中" * 3000, " \n" * 2000 + "0123456789" * 500]
    return out
