#!/usr/bin/env python3
"""Chats on disk against transformers' apply_chat_template: chat_template_test.py LOCKSTEP

For each family: a tokenizer folder with its published template, which `prepare --chat-template
auto` knows by what it renders; the ids of conversations, with tools where the family has them, are
those of apply_chat_template; and in the loss stand what the assistant says and the token after it.
Then other templates, which Jinja renders.
chat_templates/ has the texts as the families publish them, without the branches that no
conversation here takes (built-in tools, pictures, refusals).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
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
BY_JINJA = ("mistral",)  # the published text drops a system message where an answer is last

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
    if jinja and "bos_token" in jinja:  # as the tokenizers of these families do
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
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


def prepare(lockstep, folder, chats):
    records = folder / "chats.jsonl"
    records.write_text("".join(json.dumps({"messages": messages} | ({"tools": tools} if tools
                                                                    else {})) + "\n"
                               for messages, tools in chats))
    return subprocess.run([lockstep, "prepare", records, "--chat-template", "auto", "--tokenizer",
                           folder / "tokenizer", "--val-fraction", "0", "--out", folder / "out"],
                          capture_output=True, text=True, timeout=120, check=False)


def refuse_rewritten(lockstep, folder, chats):
    for chat in chats:
        done = prepare(lockstep, folder, [chat])
        assert done.returncode == 64 and "the template rewrites message" in done.stderr, done


def prepared(lockstep, folder, chats):
    """What it said, and the tokens."""
    done = prepare(lockstep, folder, chats)
    assert done.returncode == 0, done.stderr
    return done.stderr, lockstep_files.Tokens(folder / "out", "train")


def check_family(lockstep, folder, family, jinja):
    tokenizer = make_tokenizer(folder / "tokenizer", jinja)
    if "eos_token" in jinja:  # of the families that end with it this is </s>
        tokenizer.eos_token = "</s>"
        tokenizer.save_pretrained(folder / "tokenizer")
    chats = list(conversations(family))
    if family == "mistral":  # where the user speaks last nothing is learnt
        chats = [chat for chat in chats if chat[0][-1]["role"] == "assistant"]
        # Of several users it writes the tools before the last one: earlier text is rewritten.
        rewritten = [chat for chat in chats if chat[1] and
                     sum(message["role"] == "user" for message in chat[0]) > 1]
        assert rewritten
        chats = [chat for chat in chats if chat not in rewritten]
        refuse_rewritten(lockstep, folder, rewritten)
    said, found = prepared(lockstep, folder, chats)
    wants = "is rendered by Jinja" if family in BY_JINJA else f"renders as {family}"
    assert f"chat_template.jinja {wants}\n" in said, (family, said)
    end = tokenizer.eos_token_id
    wanted, counted = [], []
    for messages, tools in chats:
        ids = tokenizer.apply_chat_template(messages, tools=tools, tokenize=True,
                                            return_dict=False)
        counts = (mistral_answers(tokenizer, ids) if family == "mistral"
                  else answers(tokenizer, family, ids))
        assert any(counts), family
        ends = [] if ids[-1] == end else [end]
        wanted += ids + ends
        counted += counts + [False] * len(ends)
    ids = found.stream.tolist()
    assert ids == wanted, (family, tokenizer.decode(ids), tokenizer.decode(wanted))
    assert found.counts.tolist() == counted, \
        (family, tokenizer.decode([i for i, c in zip(ids, found.counts) if c]))
    return len(chats)


CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] +
'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- endif %}"""
MARKED = """{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}
{%- generation %}{{ '<think>\\n' + m.get('reasoning_content', '') + '\\n</think>\\n\\n' +
m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}{{ '<|im_start|>' + m.role +
'\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"""
OTHERS = {
    "an end token after answers alone": """{{ bos_token }}{% for m in messages %}
{%- if m['role'] == 'assistant' %}{{ '<|assistant|>\\n' + m['content'] + eos_token }}
{%- if not loop.last %}{{ '\\n' }}{% endif %}
{%- else %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '\\n' }}{% endif %}
{%- if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}""",
    "a system message without its role": """{% if messages[0]['role'] == 'system' %}
{{- messages[0]['content'] }}{% set messages = messages[1:] %}{% endif %}""" + CHATML,
    "a system message of its own": """{% if messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\\n\u4f60\u662f\u5c0f\u9a6c.<|im_end|>\\n' }}{% endif %}""" + CHATML,
    "no generation prompt": CHATML.partition("{% if add")[0],
    "a start token": "{{ bos_token }}" + CHATML.replace("'<|im_end|>\\n'", "eos_token"),
}


def check_others(lockstep, folder, jinja):
    tokenizer = make_tokenizer(folder / "tokenizer", jinja)
    if "eos_token" in jinja:
        tokenizer.eos_token = "</s>"
        tokenizer.save_pretrained(folder / "tokenizer")
    chats = [chat for chat in conversations("chatml")]
    said, found = prepared(lockstep, folder, chats)
    assert "is rendered by Jinja\n" in said, said
    end = tokenizer.convert_tokens_to_ids(tokenizer.eos_token)
    wanted = []
    for messages, _ in chats:
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        wanted += ids + ([end] if ids[-1] != end else [])
    ids = found.stream.tolist()
    assert ids == wanted, (tokenizer.decode(ids), tokenizer.decode(wanted))
    answers_said = "".join(m["content"] for messages, _ in chats for m in messages
                           if m["role"] == "assistant")
    learnt = tokenizer.decode([i for i, c in zip(ids, found.counts) if c])
    for name in SPECIAL:
        learnt = learnt.replace(name, "")
    assert learnt == answers_said, (learnt, answers_said)
    return len(chats)


def check_marks(lockstep, folder):
    """{% generation %} against transformers' mask."""
    tokenizer = make_tokenizer(folder / "tokenizer", MARKED)
    chats = list(conversations("qwen3"))[:6]
    chats = [chat for chat in chats if not chat[1]]
    _, found = prepared(lockstep, folder, chats)
    end = tokenizer.convert_tokens_to_ids(END)
    wanted, counted = [], []
    for messages, _ in chats:
        both = tokenizer.apply_chat_template(messages, return_dict=True,
                                             return_assistant_tokens_mask=True)
        wanted += both["input_ids"] + [end]
        counted += [mask == 1 for mask in both["assistant_masks"]] + [False]
    assert found.stream.tolist() == wanted
    assert found.counts.tolist() == counted
    return len(chats)


def main(lockstep):
    for name, jinja in OTHERS.items():
        with tempfile.TemporaryDirectory() as folder:
            count = check_others(lockstep, pathlib.Path(folder), jinja)
        print(f"{name}: {count} conversations by Jinja")
    with tempfile.TemporaryDirectory() as folder:
        print(f"blocks of generation: {check_marks(lockstep, pathlib.Path(folder))} conversations")

    for file in sorted(TEMPLATES.glob("*.jinja")):
        family = file.name.removesuffix(".jinja")
        with tempfile.TemporaryDirectory() as folder:
            count = check_family(lockstep, pathlib.Path(folder), family, file.read_text())
        print(f"{family}: {count} conversations as transformers {transformers.__version__} has "
              "them")


if __name__ == "__main__":
    main(sys.argv[1])
