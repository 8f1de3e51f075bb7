#!/usr/bin/env python3
"""Chats on disk against transformers' apply_chat_template: chat_template_test.py LOCKSTEP

For each family: a tokenizer folder with its published template, which `prepare --chat-template
auto` knows by its text; the ids of conversations, with tools where the family has them, are those
of apply_chat_template; and in the loss stand what the assistant says and the token after it.
chat_templates/ has the texts as the families publish them, without the branches that no
conversation here takes (built-in tools, pictures, refusals).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import lockstep_files

TEMPLATES = pathlib.Path(__file__).parent / "chat_templates"
BOS, END = "<s>", "<|endoftext|>"
SPECIAL = [END, BOS, "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
           "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "<start_of_turn>", "<end_of_turn>"]
WITH_TOOLS = ("qwen2.5", "qwen3", "llama3.1", "mistral")
NO_SYSTEM = ("gemma",)

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Of a \u00abtown\u00bb.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"},
                                                    "days": {"type": "integer", "enum": [1, 7]}},
                   "required": ["town"]}}},
         {"type": "function", "function": {"name": "time", "description": "Now",
                                           "parameters": {"type": "object", "properties": {}}}}]


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, number, **arguments):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def conversations(family):
    """(messages, tools)"""
    plain = [says("user", "  Hi there,\nwho are you? "), says("assistant", "A small model.\n"),
             says("user", "2+2"), says("assistant", "It is 4: \u00e9\u00e8 \U0001F600")]
    yield plain, None
    yield plain[:2], None
    yield [says("user", "\u3000\x1f a b\u00a0"), says("assistant", "\u2003\n b\u0085\n")], None
    if family not in NO_SYSTEM:
        # Mistral's text has a system message where the user speaks last alone.
        yield ([says("system", "Be brief.")] + plain)[:2 if family == "mistral" else None], None
    if family == "qwen3":
        yield [says("user", "a"), says("assistant", "<think>\nfirst\n</think>\n\nb"),
               says("user", "c"), says("assistant", "<think>\nthen\n</think>\n\nd")], None
        yield [says("user", "c"), says("assistant", "d", reasoning_content="\nso\n")], None
    if family in WITH_TOOLS:
        results = [says("tool", '{"celsius": 21.5}', tool_call_id="call00001"),
                   says("tool", "noon", tool_call_id="call00002")]
        one = [says("user", "How warm?"),
               {"role": "assistant", "content": "", "tool_calls": [
                   call("weather", 1, town="Z\u00fcrich", days=1)]},
               results[0], says("assistant", "21.5 degrees.")]
        yield one, TOOLS
        yield plain + one, TOOLS[:1]
        if family != "llama3.1":  # one call a message
            two = [call("weather", 1, town="Bern", days=7), call("time", 2)]
            yield [one[0], {"role": "assistant", "content": "", "tool_calls": two}, *results,
                   says("assistant", "Warm, at noon.")], TOOLS
        if family.startswith("qwen"):
            yield [says("system", "Be kind."), one[0],
                   {"role": "assistant", "content": "I look.", "tool_calls": two}, *results,
                   says("assistant", "Warm.")], TOOLS


def make_tokenizer(folder, jinja):
    """Bytes, some merges, and the special tokens of all families."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["hello who are you, it is warm at noon in town"] * 4,
        trainers.BpeTrainer(vocab_size=330, special_tokens=[END], show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in SPECIAL])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=END)
    made.chat_template = jinja
    made.save_pretrained(folder)
    return made


def answers(tokenizer, family, ids):
    """Whether each of the ids counts: what stands behind an answer's opening, up to its end."""
    opening, end = {
        "llama3": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        "gemma": ("<start_of_turn>model\n", "<end_of_turn>"),
        "zephyr": ("<|assistant|>\n", "</s>")}.get(
            family.removesuffix("3") if family == "gemma3" else family.removesuffix(".1"),
            ("<|im_start|>assistant\n", "<|im_end|>"))
    opening = tokenizer.encode(opening, add_special_tokens=False)
    [end] = tokenizer.encode(end, add_special_tokens=False)
    counts, inside = [], False
    for at, each in enumerate(ids):
        inside = inside or ids[max(0, at - len(opening)):at] == opening
        counts.append(inside)
        inside = inside and each != end
    return counts


def mistral_answers(tokenizer, ids):
    """What no user and no tool says: behind [/INST] and [/TOOL_RESULTS], up to </s>."""
    names = tokenizer.convert_ids_to_tokens(ids)
    counts, inside = [], False
    for name in names:
        inside = inside and name not in ("[INST]", "[AVAILABLE_TOOLS]", "[TOOL_RESULTS]")
        counts.append(inside)
        inside = (inside or name in ("[/INST]", "[/TOOL_RESULTS]")) and name != "</s>"
    return counts


def check_family(lockstep, folder, family, jinja):
    tokenizer = make_tokenizer(folder / "tokenizer", jinja)
    if "eos_token" in jinja:  # of the families that end with it this is </s>
        tokenizer.eos_token = "</s>"
    chats = list(conversations(family))
    if family == "mistral":  # where the user speaks last nothing is learnt
        chats = [chat for chat in chats if chat[0][-1]["role"] == "assistant"]
    records = folder / "chats.jsonl"
    records.write_text("".join(json.dumps({"messages": messages} | ({"tools": tools} if tools
                                                                    else {})) + "\n"
                               for messages, tools in chats))
    done = subprocess.run([lockstep, "prepare", records, "--chat-template", "auto", "--tokenizer",
                           folder / "tokenizer", "--val-fraction", "0", "--out", folder / "out"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"chat template: {family}\n" in done.stderr, (family, done.stderr)
    found = lockstep_files.Tokens(folder / "out", "train")
    begin, end = tokenizer.convert_tokens_to_ids([BOS, END])
    wanted, counted = [], []
    for messages, tools in chats:
        ids = tokenizer.apply_chat_template(messages, tools=tools, tokenize=True,
                                            return_dict=False)
        ids = [each for each in ids if each != begin]  # prepare's is the tokenizer.json's
        counts = (mistral_answers(tokenizer, ids) if family == "mistral"
                  else answers(tokenizer, family, ids))
        assert any(counts), family
        wanted += ids + [end]
        counted += counts + [False]
    ids = found.stream.tolist()
    assert ids == wanted, (family, tokenizer.decode(ids), tokenizer.decode(wanted))
    assert found.counts.tolist() == counted, \
        (family, tokenizer.decode([i for i, c in zip(ids, found.counts) if c]))
    return len(chats)


def main(lockstep):
    for file in sorted(TEMPLATES.glob("*.jinja")):
        family = file.name.removesuffix(".jinja")
        with tempfile.TemporaryDirectory() as folder:
            count = check_family(lockstep, pathlib.Path(folder), family, file.read_text())
        print(f"{family}: {count} conversations as transformers {transformers.__version__} has "
              "them")


if __name__ == "__main__":
    main(sys.argv[1])
