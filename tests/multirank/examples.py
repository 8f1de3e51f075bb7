"""README.md's "Fine-tune in ten lines" and every config of examples/, in miniature.

The lines and the configs run as they stand, in a folder where all that they name is small: a model
of random weights, some hundred conversations and texts, and less of what SMALLER lists.
"""
import json
import random
import re
import subprocess
import sys

from lockstep_run import BIN_DIR, SOURCE_DIR, WORDS, Test, check, die_with_us, metrics

STEPS, SAMPLE = 3, 128
SMALLER = {"steps": STEPS, "warmup_steps": 1, "slots": 2, "seq_len": SAMPLE}
MODEL = "models/Qwen3-0.6B"  # as README.md calls it
# Of the model's folder, as many have it: `--chat-template auto` knows it for chatml.
CHAT_TEMPLATE = """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
ON_CHATS = f"--model.hf_assets_path {MODEL} --data.path tokens"
# What examples/README.md says has to be given. A config without a row fails.
GIVEN = {"tiny_fp32.toml": "", "demo.toml": "", "llama_ddp.toml": "", "sft.toml": ON_CHATS,
         "lora.toml": ON_CHATS, "continued_pretraining.toml": f"--model.hf_assets_path {MODEL}",
         "finetune_chess/chess.toml": ON_CHATS}


def shell(test, script, timeout_s=120):
    """What bash prints for the script, which must end well, in the folder of this test."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=test.folder,
                          env=test.environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", timeout=timeout_s,
                          preexec_fn=die_with_us, check=False)
    check(done.returncode == 0, f"exit {done.returncode} of: {script}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def conversations(path, dice):
    with open(path, "w") as file:
        for _ in range(300):
            words = dice.choices(WORDS, k=dice.randint(3, 9))
            turns = [{"role": "user", "content": "Backwards: " + " ".join(words)},
                     {"role": "assistant", "content": " ".join(reversed(words))}]
            file.write(json.dumps({"messages": turns}) + "\n")


def smaller(text):
    text = re.sub(r"^epochs = \d+", f"steps = {STEPS}", text, flags=re.MULTILINE)
    for key, value in SMALLER.items():
        text = re.sub(rf"^{key} = \d+", f"{key} = {value}", text, flags=re.MULTILINE)
    return text


def make_folder(test):
    """Everything that the lines and the configs name, and the programs where README.md has them."""
    dice = random.Random(20240613)  # always the same texts: a hash of them says what is held out
    for name in ("own", "general"):
        (test.folder / name).mkdir()
        for number in range(24):
            words = dice.choices(WORDS, k=600)
            (test.folder / name / f"{number}.txt").write_text(" ".join(words) + "\n")
    conversations(test.folder / "chats.jsonl", dice)
    (test.folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    for config in GIVEN:
        target = test.folder / "examples" / config
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(smaller((SOURCE_DIR / "examples" / config).read_text()))
    (test.folder / "build" / "release").mkdir(parents=True)
    (test.folder / "build" / "release" / "bin").symlink_to(BIN_DIR)
    shell(test, f"""
        export PATH=$PWD/build/release/bin:$PATH
        lockstep prepare chats.jsonl --chat-template chatml --train-bpe 400 --out learnt
        {sys.executable} {SOURCE_DIR}/examples/finetune_chess/make_model \\
          --tokenizer learnt/tokenizer --out {MODEL}
        cp chat_template.jinja {MODEL}/
        lockstep prepare own --tokenizer {MODEL} --val-fraction 0.2 --out data/own
        lockstep prepare general --tokenizer {MODEL} --val-fraction 0.2 --out data/general
        lockstep prepare own --val-fraction 0.2 --out .cache/shakespeare_tokens""")


def ten_lines():
    page = (SOURCE_DIR / "README.md").read_text()
    found = re.search(r"^## Fine-tune in ten lines\n.*?^```\n(.*?)^```", page, re.M | re.S)
    check(found, "README.md has no lines for fine-tuning")
    lines = found[1].splitlines()
    check(len(lines) == 10, f"{len(lines)} lines:\n{found[1]}")
    return found[1]


def fine_tune(test):
    script = ten_lines()
    check(script.count("--pack 1024") == 1, "what is packed into samples of examples/lora.toml")
    said = shell(test, script.replace("--pack 1024", f"--pack {SAMPLE}"))
    for words in ("loss |", "of them trained", "<|im_start|>assistant"):
        check(words in said, f"not said: {words}\n{said}")
    check([line["step"] for line in metrics(test.folder / "results/lora")] == [1, 2, 3], said)
    adapters = json.loads((test.folder / "adapters/adapter_config.json").read_text())
    check(adapters["r"] == 16 and len(adapters["target_modules"]) == 7, adapters)
    merged = json.loads((test.folder / "merged/config.json").read_text())
    check(merged["torch_dtype"] == "bfloat16" and merged["model_type"] == "llama", merged)


def train(test, config):
    folder = f"results/of_{config.replace('/', '_')}"
    command = f"build/release/bin/lockstep train examples/{config} {GIVEN[config]} " \
              f"--job.dump_folder {folder}"
    said = shell(test, f"{command} --dry-run")
    check("2 slots of " in said and f"; {STEPS} steps" in said, said)
    check(not (test.folder / folder).exists(), "a dry run made its folder")
    said = shell(test, command)
    lines = metrics(test.folder / folder)
    check([line["step"] for line in lines] == [1, 2, 3], said)
    return json.loads((test.folder / folder / "metrics.json").read_text())


def hash_of(tokens):
    return json.loads((tokens / "manifest.json").read_text())["hash"]


def all_are_listed():
    examples = SOURCE_DIR / "examples"
    there = {str(path.relative_to(examples)) for path in examples.rglob("*.toml")}
    check(there == set(GIVEN), f"examples {there}, but here {set(GIVEN)}")
    page = (examples / "README.md").read_text()
    for path in there:
        check(f"| `{path.rsplit('/', 1)[0]}" in page, f"examples/README.md has no {path}")


with Test("examples") as test:
    with test.case("every config is listed"):
        all_are_listed()
    make_folder(test)
    with test.case("fine-tuning in ten lines"):
        fine_tune(test)
    for name in GIVEN:
        with test.case(name):
            kept = train(test, name)
            if name == "continued_pretraining.toml":
                drawn = {each["source"]: each["samples"] for each in kept["data"]["drawn"]}
                shares = {hash_of(test.folder / "data/own"): 8,
                          hash_of(test.folder / "data/general"): 4}
                check(drawn == shares, f"of 12 samples at 7 : 3 the sources gave {drawn}")
