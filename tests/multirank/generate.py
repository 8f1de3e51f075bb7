"""`lockstep generate` from runs, checkpoints and exported folders; chats; how it ends."""
import json
import signal
import subprocess

from lockstep_run import (EXIT_CONFIG, TINY, Test, check, committed, die_with_us, program, send,
                          state_of, tail, wait_until)

ANSWERS = {"hello": "good day to you", "who are you": "a small model"}
STEPS = 60
EXIT_INTERRUPTED = 130


def chats(test):
    """A run that knows two chats by heart, whose vocabulary is its data's, padded."""
    lines = [json.dumps({"messages": [{"role": "user", "content": asked},
                                      {"role": "assistant", "content": answer}]})
             for asked, answer in ANSWERS.items()]
    records, tokens = test.folder / "chats.jsonl", test.folder / "chats"
    records.write_text("\n".join(lines * 40) + "\n")
    test.command("prepare", records, "--chat-template", "chatml", "--train-bpe", 300, "--pack", 64,
                 "--val-fraction", 0, "--out", tokens)
    return test.train("chatting", 1, TINY | {"data.path": tokens, "training.steps": STEPS,
                                             "training.local_batch_size": 4,
                                             "model.vocab_size": 384})


def talk(test, *words, said=None, status=0):
    """stdout of `lockstep generate MODEL --chat`, with lines of the user on its standard input."""
    done = subprocess.run([program("lockstep"), "generate", *map(str, words), "--chat",
                           "--temperature", "0", "--tokens", "40"], input=said, errors="replace",
                          capture_output=True, env=test.environment, timeout=60, check=False)
    check(done.returncode == status, f"exit {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def chat(test, run):
    with test.case("a chat by the template of the data: one message, and lines of them"):
        for asked, answer in ANSWERS.items():
            check(talk(test, run, "--prompt", asked) == answer + "\n", asked)
        both = talk(test, run, said="hello\n\nwho are you\n")
        check(both.splitlines()[0] == ANSWERS["hello"] and len(both.splitlines()) == 2, both)
        check(talk(test, run, said="") == "", "something is said to nobody")
    exported = test.folder / "exported_chat"
    test.command("export", run, exported)
    with test.case("an exported folder has the template of the data"):
        wanted = ANSWERS["hello"] + "\n"
        check(talk(test, exported, "--prompt", "hello") == wanted, "another answer")
        words = json.loads((exported / "tokenizer.json").read_text())["added_tokens"]
        ids = {each["content"]: each["id"] for each in words}
        ends = json.loads((exported / "generation_config.json").read_text())["eos_token_id"]
        check(ends == [ids["<|im_end|>"], ids["<|endoftext|>"]], f"{ends} of {ids}")
    with test.case("the chats may be one source of several"):
        texts, lines = test.folder / "more_text", test.folder / "more.txt"
        lines.write_text("the of and to a in that it is was he for on are with as\n" * 200)
        test.command("prepare", lines, "--tokenizer", test.folder / "chats/tokenizer", "--pack", 64,
                     "--val-fraction", 0, "--out", texts)
        both = test.train("both", 1, TINY | {
            "data.path": "", "data.sources": f"{texts},{test.folder / 'chats'}",
            "training.steps": 1, "model.vocab_size": 384})
        said = talk(test, both, "--prompt", "hello")
        said_by = test.folder / "exported_both"
        test.command("export", both, said_by)
        check(talk(test, said_by, "--prompt", "hello") == said, "the export says something else")
    with test.case("of a folder the template is its own, or --chat-template"):
        (exported / "chat_template.jinja").unlink()
        said = talk(test, exported, "--prompt", "hello", status=EXIT_CONFIG)
        check("has no chat template" in said and said.count("--chat-template NAME") == 1, said)
        found = talk(test, exported, "--prompt", "hello", "--chat-template", "chatml")
        check(found == wanted, found)
        jinja = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
                 "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
        (exported / "chat_template.jinja").write_text(jinja)
        check(talk(test, exported, "--prompt", "hello") == wanted, "another answer")
        (exported / "chat_template.jinja").write_text("{{ '<|im_start|>' }}" + jinja)
        talk(test, exported, "--prompt", "hello")  # by Jinja
        (exported / "chat_template.jinja").write_text("{% if %}")
        said = talk(test, exported, "--prompt", "hello", status=EXIT_CONFIG)
        check("chat_template.jinja" in said and "not valid Jinja" in said, said)
    with test.case("a template whose tokens are not there, and a system message that it refuses"):
        said = talk(test, run, "--chat-template", "llama3", "--prompt", "x", status=EXIT_CONFIG)
        check("needs the token <|start_header_id|>" in said, said)
        check(talk(test, run, "--system", "Be brief.", "--prompt", "hello").strip(), "no answer")
        said = test.command("generate", run, "--system", "Be brief.", status=EXIT_CONFIG)
        check("--chat" in said, said)
    with test.case("a run of plain text has no template"):
        said = talk(test, test.train("plain", 1, TINY | {"training.steps": 2}), "--prompt", "x",
                    status=EXIT_CONFIG)
        check("hold no chats" in said and "--chat-template NAME" in said, said)


def batches(test, run, alone):
    """`alone`: what the run says to "the " at temperature 0, in 40 tokens."""
    greedy = ("--temperature", 0, "--tokens", 40)
    prompts = test.folder / "prompts"
    prompts.write_text("the \n\nof and\nthe \n")
    with test.case("several prompts: each text is the one that it has alone"):
        other = test.command("generate", run, "--prompt", "of and", *greedy)
        said = test.command("generate", run, "--prompts", prompts, *greedy)
        check(said == f"--- 1 of 3 ---\n{alone}--- 2 of 3 ---\n{other}--- 3 of 3 ---\n{alone}",
              said)
        drawn = ("--temperature", 1, "--tokens", 30, "--ignore-end", "--json")
        lines = [json.loads(line) for together in (1, 2, 3) for line in
                 test.command("generate", run, "--prompts", prompts, "--together", together,
                              *drawn).splitlines()]
        check(lines[:3] == lines[3:6] == lines[6:], lines)
        check(lines[0]["text"] != lines[2]["text"], "equal prompts have equal texts")
        one = json.loads(test.command("generate", run, "--prompt", "of and", *drawn))
        check(one == lines[1] and one["tokens"] == 30 and one["end"] == "length", one)
        other = json.loads(test.command("generate", run, "--prompt", "of and", *drawn, "--seed", 7))
        check(other["text"] != one["text"], "another seed says the same")
    with test.case("a stop text ends the text before it"):
        stop = alone[12:15]
        said = json.loads(test.command("generate", run, "--prompt", "the ", *greedy, "--json",
                                       "--stop", "never said", "--stop", stop))
        before = alone.removeprefix("the ").rstrip("\n")
        check(said["text"] == before[:before.index(stop)] and said["end"] == "stop", said)
        check(test.command("generate", run, "--prompt", "the ", *greedy, "--top-k", 1, "--top-p",
                           0.5) == alone, "top-k and top-p at temperature 0")
    with test.case("more tokens than the model's context are refused, with what there is room for"):
        said = test.command("generate", run, "--prompt", "the ", "--tokens", 1000,
                            status=EXIT_CONFIG)
        check("4 tokens and --tokens asks for 1000 more" in said and "give --tokens " in said, said)
        said = test.command("generate", run, "--prompt", "the " * 500, status=EXIT_CONFIG)
        check("shorter prompt" in said, said)
        said = test.command("generate", run, "--chat", "--prompts", prompts, "--chat-template",
                            "chatml", status=EXIT_CONFIG)
        check("--prompts" in said, said)


def end_token(test):
    """A run on documents of one word learns that each ends."""
    words, tokens = test.folder / "words", test.folder / "word_tokens"
    words.mkdir()
    for i in range(60):
        (words / f"{i:02}.txt").write_text("owl")
    test.command("prepare", words, "--val-fraction", 0, "--out", tokens)
    run = test.train("words", 1, TINY | {"data.path": tokens, "training.steps": STEPS,
                                         "training.seq_len": 32})
    with test.case("a text ends at the end token, which is named; --ignore-end draws on"):
        words = [program("lockstep"), "generate", str(run), "--prompt", "ow", "--temperature", "0"]
        done = subprocess.run(words, capture_output=True, text=True, env=test.environment,
                              timeout=60, check=True)
        check(done.stdout == "owl\n", done.stdout)
        check("ended with the end token <|end|> after 2 tokens" in done.stderr, done.stderr)
        on = test.command("generate", run, "--prompt", "ow", "--temperature", 0, "--ignore-end",
                          "--tokens", 5)
        check(on.startswith("owl<|end|>owl"), on)


def sources(test):
    run = test.train("text", 1, TINY)
    exported = test.folder / "exported"
    test.command("export", run, exported)
    words = ("--prompt", "the ", "--temperature", 0, "--tokens", 40)
    text = test.command("generate", run, *words)
    with test.case("a run, its checkpoint and its export say the same"):
        check(text.startswith("the ") and len(text) > 40, text)
        newest = run / "checkpoints" / committed(run)[0]
        check(test.command("generate", newest, *words) == text, "the checkpoint says more")
        check(test.command("generate", newest, *words, "--seed", 7) == text, "a seed at 0")
        by_bytes = (exported, "--tokenizer", "byte", *words)
        check(test.command("generate", *by_bytes) == text, "the export says something else")
    batches(test, run, text)
    with test.case("what cannot be sampled from says what can be"):
        said = test.command("generate", run, "--tokenizer", "byte", status=EXIT_CONFIG)
        check("--tokenizer is for a Hugging Face folder" in said, said)
        adapters = test.folder / "adapters"
        adapters.mkdir()
        (adapters / "adapter_config.json").write_text("{}")
        said = test.command("generate", adapters, status=EXIT_CONFIG)
        check("lockstep export" in said, said)
        said = test.command("generate", test.folder, status=EXIT_CONFIG)
        check(f"{test.folder}: this is not a run's folder (no run_args.json), a checkpoint" in said,
              said)
        said = test.command("generate", test.folder / "nowhere", status=EXIT_CONFIG)
        check("nowhere: there is no such folder, and Lockstep downloads nothing" in said, said)
    return run


def interrupted(test, run):
    with test.case("Ctrl-C ends it without a word of error, and its worker"):
        log = test.folder / "interrupted"
        prompts = test.folder / "many_prompts"
        prompts.write_text("the\n" * 30000)
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [program("lockstep"), "generate", run, "--prompts", prompts, "--tokens", "40"],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=test.environment,
                preexec_fn=die_with_us, start_new_session=True)
        test.processes.append(process)
        wait_until(lambda: len(log.read_bytes()) > 8, "text that comes as it is drawn")
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(children, encoding="ascii") as file:
            [worker] = map(int, file.read().split())
        send(process.pid, signal.SIGINT)  # to it alone: the worker hears of it by it
        check(process.wait(timeout=60) == EXIT_INTERRUPTED, process.returncode)
        check(not state_of(worker), "its worker still runs")
        said = log.read_text(errors="replace")
        check(said.endswith("\n") and "ERROR" not in said, tail(said))


with Test("generate") as test:
    end_token(test)
    chat(test, chats(test))
    interrupted(test, sources(test))
