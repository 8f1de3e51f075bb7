"""Chats of exported folders as transformers has them: export_chat_test.py FOLDER_OF_PROGRAMS

Of each family a run on conversations, whose tokenizer has no chat template, is exported, with a
tokenizer that puts a token before every text and with one that does not. AutoTokenizer's
apply_chat_template gives the ids that were trained on; `prepare --chat-template auto` and
`generate --chat` know the template; and transformers' generate stops where an answer ends. An
export of a run that began from a folder with another template has the run's.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import lockstep_files
from chat_template_test import BOS, END, TEMPLATES, conversations, make_tokenizer, says

TINY = ["--model.dim=32", "--model.n_layers=1", "--model.n_heads=2", "--model.n_kv_heads=1"]
STEP = ["--training.seq_len=32", "--training.local_batch_size=1", "--training.slots=1",
        "--training.steps=1", "--validation.freq=0"]
END_OF_ANSWER = {"llama3": "<|eot_id|>", "llama3.1": "<|eot_id|>", "gemma": "<end_of_turn>",
                 "gemma3": "<end_of_turn>", "zephyr": "</s>", "mistral": "</s>"}


class Lab:
    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder
        (folder / "empty.toml").write_text("")

    def lockstep(self, *words):
        done = subprocess.run([self.programs / "lockstep", *map(str, words)], errors="replace",
                              capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def prepare(self, records, name, tokenizer, template):
        out = self.folder / name
        said = self.lockstep("prepare", records, "--chat-template", template, "--tokenizer",
                             tokenizer, "--val-fraction", 0, "--out", out)
        return lockstep_files.Tokens(out, "train").stream.tolist(), said

    def exported(self, name, model, tokens):
        run, out = self.folder / f"{name}_run", self.folder / f"{name}_hf"
        self.lockstep("train", self.folder / "empty.toml", *model, *STEP, f"--data.path={tokens}",
                      f"--job.dump_folder={run}")
        return out, self.lockstep("export", run, out)


def chats_of(family):
    chats = list(conversations(family))
    if family == "mistral":  # where the user speaks last nothing is learnt
        chats = [chat for chat in chats if chat[0][-1]["role"] == "assistant"]
        chats.append(([says("system", "Be brief."), *chats[0][0]], None))
    return chats


def write(chats, path):
    path.write_text("".join(json.dumps({"messages": messages} | ({"tools": tools} if tools else {}))
                            + "\n" for messages, tools in chats))
    return path


def check_template(lab, folder, family, chats, ids):
    """What transformers and Lockstep read in an exported folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids(END)
    wanted = []
    for messages, tools in chats:
        wanted += tokenizer.apply_chat_template(messages, tools=tools, return_dict=False) + [end]
    assert ids == wanted, (family, tokenizer.decode(ids), tokenizer.decode(wanted))
    again, said = lab.prepare(lab.folder / "chats.jsonl", f"{folder.name}_again", folder, "auto")
    assert again == ids and f"renders as {family}\n" in said, (family, said)
    config = folder / "config.json"  # some templates begin with more tokens than training had
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 512}))
    lab.lockstep("generate", folder, "--chat", "--prompt", "Hi", "--tokens", 1)
    stop = tokenizer.convert_tokens_to_ids(END_OF_ANSWER.get(family, "<|im_end|>"))
    ends = AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id
    assert stop in ends and end in ends, (family, ends)


def check_family(lab, family):
    chats = chats_of(family)
    records = write(chats, lab.folder / "chats.jsonl")
    for name, begins in (("plain", False), ("begins", True)):
        tokenizer = lab.folder / name
        made = make_tokenizer(tokenizer, None)
        assert made.chat_template is None and not (tokenizer / "chat_template.jinja").exists()
        if begins:
            made.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{BOS} $A", special_tokens=[(BOS, made.convert_tokens_to_ids(BOS))])
            made.backend_tokenizer.save(str(tokenizer / "tokenizer.json"))
        ids, _ = lab.prepare(records, f"{name}_tokens", tokenizer, family)
        folder, said = lab.exported(name, TINY, lab.folder / f"{name}_tokens")
        assert f"the chat template is that of the data, {family}\n" in said, said
        check_template(lab, folder, family, chats, ids)
    return len(chats)


def check_folder(lab, has):
    """A run from a folder whose template is `has`, on data in chatml."""
    model = lab.folder / "model"
    tokenizer = make_tokenizer(model, None if has is None else (TEMPLATES / has).read_text())
    shape = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id)
    transformers.LlamaForCausalLM(shape).save_pretrained(model)
    chats = chats_of("chatml")
    ids, _ = lab.prepare(write(chats, lab.folder / "chats.jsonl"), "tokens", model, "chatml")
    folder, said = lab.exported("folder", [f"--model.hf_assets_path={model}"],
                                lab.folder / "tokens")
    line = "the chat template is that of the data, chatml"
    if has is None:
        assert f"{line}\n" in said, said
    elif has == "chatml.jinja":
        assert line not in said, said
        assert (folder / "chat_template.jinja").read_text() == (TEMPLATES / has).read_text()
    else:
        assert f"{line}, in place of that in {model / 'chat_template.jinja'}\n" in said, said
    check_template(lab, folder, "chatml", chats, ids)


def main(programs):
    logging.disable_progress_bar()
    for file in sorted(TEMPLATES.glob("*.jinja")):
        family = file.name.removesuffix(".jinja")
        with tempfile.TemporaryDirectory() as folder:
            count = check_family(Lab(programs, pathlib.Path(folder)), family)
        print(f"{family}: {count} conversations of its export are those that were trained on")
    for has in (None, "chatml.jinja", "zephyr.jinja"):
        with tempfile.TemporaryDirectory() as folder:
            check_folder(Lab(programs, pathlib.Path(folder)), has)
        print(f"a folder with the template {has}: the export has the run's")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
