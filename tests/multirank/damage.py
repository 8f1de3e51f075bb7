"""A damaged checkpoint is named, the one before it is used, and the losses are the same."""
import json
import pathlib
import re
import shutil
import struct
import sys

from lockstep_run import (TINY, Test, check, check_same, committed, curve, metrics,
                          step_of, tail, whole_curve)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from xxh3 import xxh3  # noqa: E402

STEPS, FIRST_PART = 14, 8
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 2, "checkpoint.when_busy": "wait",
               "lr_scheduler.total_steps": STEPS, "checkpoint.keep_latest_k": 4}
CHUNK_ROW = struct.Struct("<IIQIIIIQ")  # checkpoint/shard_file/chunk_table.h: ChunkRow


def chunks_of(directory, entry):
    """(dataset path, chunk index, offset, stored bytes) of each chunk of a rank file."""
    raw = (directory / entry["name"]).read_bytes()
    for row in range(entry["chunk_rows"]):
        at = entry["chunk_table_offset"] + row * CHUNK_ROW.size
        piece, chunk, offset, stored, *_ = CHUNK_ROW.unpack_from(raw, at)
        key, flat_start, _ = entry["pieces"][piece]
        yield f"/{key}@{flat_start}", chunk, offset, stored


def flip(path, offset, random):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << random.randrange(8))]))


class Damage:
    """A copy of the run whose newest checkpoint gets hurt."""

    def __init__(self, test, original, name):
        self.test, self.name = test, name
        self.folder = test.folder / name.replace(" ", "_")
        shutil.copytree(original, self.folder)
        self.names = committed(self.folder)
        self.newest = self.folder / "checkpoints" / self.names[0]
        self.manifest = json.loads((self.newest / "manifest.json").read_text())
        self.entry = test.random.choice(self.manifest["files"])
        self.file = self.newest / self.entry["name"]

    def resume(self, reference, words, fallback=1):
        """Resumes on some world size; what was said must hold all `words`."""
        world_size = self.test.random.randint(1, 4)
        lines = len(metrics(self.folder))
        run = self.test.ranks(self.folder, world_size, KEYS)
        run.expect(0)
        said = run.all_logs()
        for word in words:
            check(word in said, f"W={world_size}: nothing about {word} in\n{tail(said, 80)}")
        older = self.names[fallback]
        check(f"/{older} at step {step_of(older)}:" in said,
              f"not resumed from {older}\n{tail(said, 80)}")
        check(metrics(self.folder)[lines]["step"] == step_of(older) + 1, "another first step")
        check_same(reference, whole_curve(self.folder, STEPS), self.name)
        self.test.command("checkpoint", "verify", self.folder)

    def verify(self, words):
        printed = self.test.command("checkpoint", "verify", self.newest, status=None)
        check("whole" not in printed, printed)
        for word in words:
            check(word in printed, f"nothing about {word} in\n{printed}")


def flipped_in_a_chunk(damage, reference):
    dataset, chunk, offset, stored = damage.test.random.choice(
        list(chunks_of(damage.newest, damage.entry)))
    flip(damage.file, offset + damage.test.random.randrange(stored), damage.test.random)
    words = [f"{damage.entry['name']}:{dataset} chunk {chunk}"]
    damage.verify(words)
    damage.resume(reference, words + [damage.newest.name])


def flipped_outside_chunks(damage, reference):
    inside = [(offset, offset + stored)
              for _, _, offset, stored in chunks_of(damage.newest, damage.entry)]
    outside = [at for at in range(damage.entry["size_bytes"])
               if not any(first <= at < last for first, last in inside)]
    flip(damage.file, damage.test.random.choice(outside), damage.test.random)
    damage.verify([damage.entry["name"]])
    damage.resume(reference, [damage.entry["name"], damage.newest.name])


def flipped_in_the_manifest(damage, reference):
    path = damage.newest / "manifest.json"
    flip(path, damage.test.random.randrange(path.stat().st_size), damage.test.random)
    damage.verify(["manifest.json"])
    damage.resume(reference, ["manifest.json", damage.newest.name])


def truncated_rank_file(damage, reference):
    with open(damage.file, "r+b") as file:
        file.truncate(damage.test.random.randrange(damage.entry["size_bytes"]))
    damage.verify([damage.entry["name"]])
    damage.resume(reference, [damage.entry["name"], damage.newest.name])


def truncated_manifest(damage, reference):
    path = damage.newest / "manifest.json"
    with open(path, "r+b") as file:
        file.truncate(damage.test.random.randrange(path.stat().st_size))
    damage.verify(["manifest.json"])
    damage.resume(reference, ["manifest.json", damage.newest.name])


def missing_rank_file(damage, reference):
    damage.file.unlink()
    damage.verify([damage.entry["name"]])
    damage.resume(reference, [damage.entry["name"], damage.newest.name])


def missing_manifest(damage, reference):
    (damage.newest / "manifest.json").unlink()
    damage.verify(["manifest.json"])
    damage.resume(reference, ["manifest.json", damage.newest.name])


def reseal(damage, pattern, instead):
    """The newest manifest with other words, and with the checksum that they have."""
    path = damage.newest / "manifest.json"
    before, count = re.subn(pattern, instead, path.read_text().split('"self_xxh3"')[0], count=1)
    check(count == 1, f"no {pattern} in {before[:2000]}")
    path.write_text(f'{before}"self_xxh3": "{xxh3(before.encode()):016x}"\n}}\n')


def state_of_another_type(damage, reference):
    reseal(damage, r'("trainer_state":.*?"tokens": ?)\d+', r'\1"x"')
    damage.resume(reference, ["trainer state is damaged", "tokens", damage.newest.name])


def state_of_another_step(damage, reference):
    reseal(damage, r'("trainer_state":.*?"step": ?)\d+', r'\g<1>5')
    damage.resume(reference, ["its trainer state is of step 5", damage.newest.name])


def two_damaged(damage, reference):
    flipped = damage.newest
    dataset, chunk, offset, _ = next(chunks_of(flipped, damage.entry))
    flip(damage.file, offset, damage.test.random)
    (damage.folder / "checkpoints" / damage.names[1] / "rank_00000.h5").unlink()
    damage.resume(reference, [f"{dataset} chunk {chunk}", damage.names[1]], fallback=2)


def lost_hints_do_not_matter(damage, reference):
    for path in (damage.newest.parent / "LATEST", damage.newest / "index.h5"):
        path.unlink()
    damage.resume(reference, [], fallback=0)


def all_damaged(damage, _):
    """A run that has checkpoints must not start over as if it had none."""
    for name in damage.names:
        (damage.newest.parent / name / "rank_00000.h5").unlink()
    run = damage.test.ranks(damage.folder, 2, KEYS)
    statuses = run.wait()
    check(0 not in statuses, f"exit {statuses}: it started over:\n{tail(run.log(), 30)}")
    for name in damage.names:
        check(name in run.log(), f"nothing about {name} in\n{tail(run.log(), 30)}")


def all_manifests_missing(damage, _):
    """A copy of the folder without *.json: nothing is removed, and nothing starts over."""
    for name in damage.names:
        (damage.newest.parent / name / "manifest.json").unlink()
    run = damage.test.ranks(damage.folder, 2, KEYS)
    statuses = run.wait()
    check(set(statuses) == {64}, f"exit {statuses}: it started over:\n{tail(run.log(), 30)}")
    for name in damage.names:
        check((damage.newest.parent / name / "rank_00000.h5").exists(), f"{name} was removed")
        check(name in run.log(), f"nothing about {name} in\n{tail(run.log(), 30)}")
    check("copy manifest.json from where" in run.log(), tail(run.log(), 30))


CASES = (flipped_in_a_chunk, flipped_outside_chunks, flipped_in_the_manifest, truncated_rank_file,
         truncated_manifest, missing_rank_file, missing_manifest, state_of_another_type,
         state_of_another_step, two_damaged, lost_hints_do_not_matter, all_damaged,
         all_manifests_missing)

with Test("damage") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 1, KEYS), STEPS)
    with test.case("a run of two ranks to be hurt"):
        hurt = test.train("hurt", 2, KEYS | {"training.steps": FIRST_PART})
        check([step_of(name) for name in committed(hurt)] == [8, 6, 4, 2], committed(hurt))
        check(first_steps := curve(hurt), "no steps")
        check_same({step: reference[step] for step in first_steps}, first_steps, "the first part")
    for case in CASES:
        name = case.__name__.replace("_", " ")
        with test.case(name):
            case(Damage(test, hurt, name), reference)
