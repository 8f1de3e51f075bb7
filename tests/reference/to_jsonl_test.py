#!/usr/bin/env python3
"""tools/to_jsonl on parquet files, Arrow files and Arrow streams, and `lockstep prepare` by it.

  to_jsonl_test.py TO_JSONL LOCKSTEP   (the program of a build that has this tools/to_jsonl)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet

ROWS = [{"text": f"line {i} «ü» 😀\n", "id": i,
         "messages": [{"role": "user", "content": "x" * (i % 7)}]} for i in range(3000)]


def run(*words):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                          encoding="utf-8", timeout=60)


def prepare(lockstep, python, *words):
    return subprocess.run([lockstep, "prepare", *map(str, words)], timeout=60, capture_output=True,
                          env=os.environ | {"LOCKSTEP_PYTHON": str(python)}, text=True)


def check_prepare(lockstep, folder):
    """Tables give the tokens of their lines."""
    tables, lines = folder / "in", folder / "lines.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    manifests = set()
    for given in (tables, lines):
        done = prepare(lockstep, sys.executable, given, "--text-field", "text", "--ignore-key",
                       "messages", "--out", folder / f"{given.stem}_tokens")
        assert done.returncode == 0, done.stderr
        manifest = json.loads((folder / f"{given.stem}_tokens/manifest.json").read_text())
        manifests.add(json.dumps([manifest["tokens"], manifest["shards"]]))
    assert len(manifests) == 1, manifests
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = bare / "bin/python3"
    for words, interpreter, said in (
            ([tables], sys.executable, f"{tables} has tables, so name the column that is the text"),
            ([tables, "--text-field", "nothing"], sys.executable, "a.parquet: row 1: "
             "it has no field"),
            ([tables, "--text-field", "text"], sys.executable,
             'a.parquet: row 1: the key "messages" of the record is not known'),
            ([tables, "--text-field", "text"], python, f"{python} -m pip install pyarrow")):
        done = prepare(lockstep, interpreter, *words, "--out", folder / "none")
        assert done.returncode == 64 and said in done.stderr, done.stderr
        assert not (folder / "none/manifest.json").exists()
    print("prepare: the tokens of the same lines")


def check_bytes(to_jsonl, lockstep, folder):
    """Bytes are text in UTF-8, or an error; each names the table and the row."""
    tables = folder / "bytes"
    tables.mkdir()

    def write(name, rows, kind):
        schema = pyarrow.schema([("text", kind)])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), tables / name)

    write("a.parquet", [{"text": "«ü»".encode()}, {"text": b"two"}], pyarrow.binary())
    write("b.parquet", [{"text": "three"}, {"text": None}], pyarrow.string())
    done = run(to_jsonl, tables / "a.parquet")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"text": "«ü»"}, {"text": "two"}], done
    done = prepare(lockstep, sys.executable, tables, "--text-field", "text", "--out",
                   folder / "none")
    said = f'{tables}/b.parquet: row 2: the field "text" is not a string but null'
    assert done.returncode == 64 and said in done.stderr, done.stderr
    write("a.parquet", [{"text": b"good"}, {"text": b"\xff\xfe"}], pyarrow.large_binary())
    done = run(to_jsonl, tables)
    assert done.returncode != 0 and "a.parquet: row 2: the column 'text' holds" in done.stderr
    (tables / "a.parquet").write_text("version https://git-lfs.github.com/spec/v1\n")
    done = run(to_jsonl, tables)
    assert done.returncode != 0 and "a.parquet: the file is a pointer of Git LFS" in done.stderr
    print("bytes are text or refused")


def main(to_jsonl, lockstep):
    table = pyarrow.Table.from_pylist(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "in/deeper").mkdir(parents=True)
        pyarrow.parquet.write_table(table.slice(0, 1000), folder / "in/a.parquet")
        for name, begin, writer in (("b.arrow", 1000, pyarrow.ipc.new_stream),
                                    ("deeper/c.arrow", 2000, pyarrow.ipc.new_file)):
            with writer(str(folder / "in" / name), table.schema) as out:
                out.write_table(table.slice(begin, 1000), max_chunksize=300)
        (folder / "in/notes.txt").write_text("no rows")
        done = run(to_jsonl, folder / "in")
        assert done.returncode == 0, done.stderr
        assert [json.loads(line) for line in done.stdout.splitlines()] == ROWS
        done = run(to_jsonl, folder / "in", "--columns", "text", "--out", folder / "out.jsonl")
        assert done.returncode == 0, done.stderr
        lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [{"text": row["text"]} for row in ROWS]

        for words, said in ((("nowhere",), "nowhere: no such file"),
                            ((folder / "in", "--columns", "nothing"), "a.parquet")):
            done = run(to_jsonl, *words)
            assert done.returncode != 0 and said in done.stderr, done.stderr
        check_prepare(lockstep, folder)
        check_bytes(to_jsonl, lockstep, folder)
        whole = (folder / "in/a.parquet").read_bytes()
        (folder / "in/a.parquet").write_bytes(whole[:len(whole) // 2])
        done = run(to_jsonl, folder / "in")
        assert done.returncode != 0 and "a.parquet" in done.stderr, done.stderr
        print(f"{len(ROWS)} rows of three kinds of files equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
