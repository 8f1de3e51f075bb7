"""What is wrong in a config, a data set or a resume is said before anything is trained, with exit
status 64, and is never restarted."""
import resource
import shutil

from lockstep_run import (EXIT_CONFIG, EXIT_NO_MEMORY, EXIT_PEER_LOST, TINY, Test, check,
                          check_same, committed, curve, events, flags, metrics, program, step_of,
                          tail, whole_curve)

STEPS = 8
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 4, "lr_scheduler.total_steps": STEPS}
# The config's keys that are wrong, and what the message must hold.
WRONG_KEYS = (
    ("unknown key", {"training.step": 5}, ["training.step", "training.steps"]),
    ("unknown section", {"trainings.steps": 5}, ["trainings.steps", "training.steps"]),
    ("wrong type", {"training.steps": "many"}, ["training.steps", "integer", "many"]),
    ("out of range", {"training.steps": 0}, ["training.steps", ">= 1"]),
    ("above the limit", {"optimizer.lr": 1e30}, ["optimizer.lr = 1e+30", "<= 1e+15"]),
    ("not one of", {"parallelism.strategy": "full_shards"}, ["full_shards", "full_shard", "ddp"]),
    ("dim and heads", {"model.n_heads": 5}, ["model.dim", "model.n_heads", "64", "5"]),
    ("heads and kv heads", {"model.n_kv_heads": 3}, ["model.n_heads", "model.n_kv_heads"]),
    ("slots and batch", {"training.global_batch_size": 6},
     ["training.slots", "training.global_batch_size"]),
)
WRONG_TOML = (
    ("unknown key", "[training]\nsteps = 5\nsedd = 1\n", ["wrong.toml", "3", "sedd", "seed"]),
    ("wrong type", "[training]\nsteps = \"5\"\n", ["wrong.toml", "2", "steps", "integer"]),
    ("no TOML", "[training\nsteps = 5\n", ["wrong.toml", "1"]),
    ("no UTF-8", b"[job]\nname = \"\xff\"\n", ["wrong.toml"]),
)


def holds(said, words):
    for word in words:
        check(word in said, f"nothing about {word} in\n{tail(said)}")


def refused_everywhere(test, keys, words):
    """By the launcher, before it starts a worker, and by a worker that got there anyway."""
    folder = test.folder / "refused"
    config = test.folder / "empty.toml"
    config.write_text("")
    for command in ("train", "launch"):
        said = test.command(command, config, *flags(TINY | keys), f"--job.dump_folder={folder}",
                            status=EXIT_CONFIG, timeout_s=10)
        holds(said, words)
        check(not folder.exists(), f"{command} made {list(folder.rglob('*'))}")
    run = test.ranks(folder, 1, KEYS | keys)
    run.expect(EXIT_CONFIG)
    holds(run.log(), words)


def refused_by_ranks(test, keys, words, world_size=2, folder=None, unsaid=None,
                     worker="lockstep-worker"):
    """With nothing trained. A rank that only saw the others leave may say that instead (76)."""
    folder = folder or test.folder / "refused_by_ranks"
    before = curve(folder), committed(folder)
    run = test.ranks(folder, world_size, KEYS | keys, worker=worker)
    statuses = run.wait()
    check(EXIT_CONFIG in statuses and set(statuses) <= {EXIT_CONFIG, EXIT_PEER_LOST},
          f"exit statuses {statuses}\n{tail(run.all_logs())}")
    holds(run.all_logs(), words)
    check(unsaid is None or unsaid not in run.all_logs(), tail(run.all_logs()))
    check((curve(folder), committed(folder)) == before, "something was trained or saved")


def launch_does_not_restart(test, keys, words):
    folder = test.folder / f"not_restarted_{test.cases}"
    config = test.folder / "empty.toml"
    config.write_text("")
    said = test.command("launch", config, *flags(TINY | keys), f"--job.dump_folder={folder}",
                        "--nproc-per-node=2", status=EXIT_CONFIG, timeout_s=60)
    holds(said, words)
    starts = events(folder, "generation_start")
    check(len(starts) <= 1, f"restarted: {starts}")


def wrong_keys_and_files(test):
    for name, keys, words in WRONG_KEYS:
        with test.case(name):
            refused_everywhere(test, keys, words)
    for name, toml, words in WRONG_TOML:
        with test.case(f"TOML: {name}"):
            path = test.folder / "wrong.toml"
            path.write_bytes(toml if isinstance(toml, bytes) else toml.encode())
            holds(test.command("train", path, status=EXIT_CONFIG, timeout_s=10), words)
    with test.case("no TOML file"):
        path = test.folder / "missing.toml"
        holds(test.command("train", path, status=None, timeout_s=10), [str(path)])
    with test.case("single with two ranks"):
        keys = {"parallelism.strategy": "single"}
        refused_by_ranks(test, keys, ["single", "2"])
        config = test.folder / "single.toml"
        config.write_text('[parallelism]\nstrategy = "single"\n')
        holds(test.command("launch", config, "--nproc-per-node", 2, status=EXIT_CONFIG), ["single"])


def wrong_data(test):
    tokens = test.tokens()
    with test.case("seq_len longer than the data"):
        keys = {"data.path": test.tokens(files=1, words=60), "training.seq_len": 4096}
        words = ["training.seq_len", "4096", "tokens"]
        refused_by_ranks(test, keys, words)
        launch_does_not_restart(test, keys, words)
    with test.case("token not below the vocabulary"):
        refused_by_ranks(test, {"model.vocab_size": 100}, ["vocab", "100", "257", str(tokens)])
    with test.case("no data"):
        words = ["--data.path", "lockstep prepare"]
        refused_by_ranks(test, {"data.path": ""}, words)
        launch_does_not_restart(test, {"data.path": ""}, words)
    with test.case("a folder that is not there"):
        run = test.ranks(test.folder / "no_data", 2, KEYS | {"data.path": "/nowhere/tokens"})
        statuses = run.wait()
        check(0 not in statuses, f"exit statuses {statuses}")
        holds(run.all_logs(), ["/nowhere/tokens", "lockstep prepare"])
    with test.case("a token shard that is truncated"):
        cut = test.folder / "cut_tokens"
        shutil.copytree(tokens, cut)
        shard = cut / "train_00000.tokens"
        with open(shard, "r+b") as file:
            file.truncate(shard.stat().st_size - 2)
        run = test.ranks(test.folder / "cut", 2, KEYS | {"data.path": cut})
        statuses = run.wait()
        check(0 not in statuses, f"exit statuses {statuses}")
        holds(run.all_logs(), [str(shard)])
    with test.case("a token shard with another byte"):
        changed = test.folder / "changed_tokens"
        shutil.copytree(tokens, changed)
        shard = changed / "train_00000.tokens"
        contents = bytearray(shard.read_bytes())
        contents[len(contents) // 2] ^= 1
        shard.write_bytes(contents)
        run = test.ranks(test.folder / "changed", 2, KEYS | {"data.path": changed})
        statuses = run.wait()
        check(0 not in statuses, f"exit statuses {statuses}")
        holds(run.all_logs(), [str(shard), "Run `lockstep prepare` again with --force"])
        test.command("prepare", test.folder / "text_24_2500", "--out", changed, "--val-fraction",
                     "0.2", "--force")
        check(shard.read_bytes() == (tokens / shard.name).read_bytes(), "prepared otherwise")
    with test.case("generate and prepare from what is not there"):
        nowhere = test.folder / "nowhere"
        holds(test.command("generate", nowhere, status=EXIT_CONFIG), [str(nowhere)])
        exported = test.folder / "exported"
        exported.mkdir()
        (exported / "config.json").write_text("{}")
        holds(test.command("generate", exported, status=EXIT_CONFIG),
              [str(exported), "this folder has no tokenizer", "--tokenizer"])
        holds(test.command("prepare", nowhere, "--out", test.folder / "none", status=EXIT_CONFIG),
              [str(nowhere)])
        unsaved = test.train("unsaved", 1, KEYS | {"checkpoint.enable": "false"})
        holds(test.command("generate", unsaved, status=EXIT_CONFIG), ["unsaved/checkpoints"])
    with test.case("generate draws what the tokenizer has, where the model pads its vocabulary"):
        padded = test.train("padded", 1, KEYS | {"model.vocab_size": 320, "training.steps": 2})
        check(test.command("generate", padded, "--temperature", 100, "--tokens", 60,
                           "--ignore-end"), "no text")


def too_little_memory(test):
    """The limit makes the allocation fail on any machine, whatever it would promise."""
    with test.case("an allocation that fails"):
        most_bytes = 64 << 30
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, before[1]))  # the rank inherits it
        try:
            run = test.ranks(test.folder / "too_large", 1, KEYS | {"model.dim": 1 << 20})
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        run.expect(EXIT_NO_MEMORY)
        holds(run.log(), ["out of memory: `lockstep plan`"])


def wrong_place(test):
    """What every save would meet is said before the first step, by each rank that meets it."""
    in_the_way = test.folder / "in_the_way"
    in_the_way.write_text("a file")
    data = {"data.path": test.tokens()}
    for name, folder in (("a file", in_the_way), ("nobody may write", "/sys/checkpoints")):
        with test.case(f"a checkpoint folder: {name}"):
            keys = {"checkpoint.folder": folder}
            words = ["cannot write checkpoints to", str(folder), "checkpoint.folder"]
            refused_by_ranks(test, keys, words)
            launch_does_not_restart(test, data | keys, words)
    # Of the workers this one has HDF5 as a shared library, before which another one can be loaded.
    sim = "lockstep-sim-worker"
    preload = {"LD_PRELOAD": program("refusing_hdf5.so"), "LOCKSTEP_WORKER": program(sim)}
    for what, words in (("driver", ["registering the file driver"]), ("filter", ["codec zstd"])):
        with test.case(f"an HDF5 that refuses the {what}"):
            as_it_is = test.environment
            test.environment = as_it_is | preload | {"REFUSE_HDF5": what}
            try:
                refused_by_ranks(test, {}, words, worker=sim)
                launch_does_not_restart(test, data, words)
            finally:
                test.environment = as_it_is


def wrong_resume(test):
    folder = test.train("resumed", 2, KEYS | {"training.steps": 4})
    with test.case("resume with another V"):
        refused_by_ranks(test, {"training.slots": 6}, ["4 slots", "6", "training.slots"], 2, folder)
    with test.case("resume with another model"):
        words = ["model.dim: checkpoint 64, config 96", "start a new run with another"]
        refused_by_ranks(test, {"model.dim": 96}, words, 2, folder, unsaid="model.embed_tokens")
        words = ["model.dim: checkpoint 64, config 96", "; model.n_layers: checkpoint 2, config 3"]
        refused_by_ranks(test, {"model.n_layers": 3, "model.dim": 96}, words, 3, folder,
                         unsaid="rank 0: rank 0:")
    with test.case("resume with another seed, strictly"):
        keys = {"training.seed": 7, "optimizer.lr": 1e-3, "checkpoint.strict_identity": "true"}
        words = ["another identity: optimizer.lr: was 0.002, is 0.001; training.seed: was 42, is 7"]
        refused_by_ranks(test, keys, words, 2, folder)
    with test.case("resume with another learning rate is said, and goes on"):
        other = test.folder / "another_rate"
        shutil.copytree(folder, other)
        run = test.ranks(other, 2, KEYS | {"optimizer.lr": 1e-3})
        run.expect(0)
        holds(run.log(), ["WARNING", "bits may differ", "optimizer.lr", "0.002", "0.001"])
    with test.case("none of it hurt the run"):
        reference = whole_curve(test.train("reference", 1, KEYS), STEPS)
        test.ranks(folder, 3, KEYS).expect(0)
        check_same(reference, whole_curve(folder, STEPS), "resumed in the end")


def not_finite(test):
    """The steps before are saved, and the next start fails in the same way, or cures it."""
    folder = test.folder / "not_finite"
    keys = KEYS | {"optimizer.lr": 1e14, "lr_scheduler.warmup_steps": 0, "checkpoint.interval": 0}
    run = test.ranks(folder, 2, keys)
    run.expect(EXIT_CONFIG)
    good = max(curve(folder), default=0)
    holds(run.log(), [f"step {good + 1}:", "not finite"])
    check(good >= 1, "no step was finite")
    newest = committed(folder)
    check([step_of(name) for name in newest] == [good], f"{newest} saved, step {good} was the last")
    test.command("checkpoint", "verify", folder)
    again = test.ranks(folder, 3, keys)
    again.expect(EXIT_CONFIG)
    holds(again.log(), [f"step {good + 1}:", "not finite"])
    check(len(metrics(folder)) == good, "something else was trained")


with Test("input_errors") as test:
    wrong_keys_and_files(test)
    wrong_data(test)
    too_little_memory(test)
    wrong_place(test)
    wrong_resume(test)
    with test.case("a loss that is not finite"):
        not_finite(test)
