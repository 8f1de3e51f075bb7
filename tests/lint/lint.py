#!/usr/bin/env python3
"""The house rules that a machine can check. Python's standard library only.

  lint.py               checks the repository; exit 1 and one line a finding
  lint.py --self-test   checks that every rule finds its bad sample, and nothing in a clean one
  lint.py --counts      how many findings each rule has

tests/lint/exceptions.txt holds what may stay for now: `rule path [value]  # why`. It only shrinks:
an exception that is no longer needed, or whose value could be lower, is a finding itself.
"""
import os
import pathlib
import re
import subprocess
import sys

import clang_format
import script_checks
import cpp_text
import doc_rules
import samples

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCEPTIONS = "tests/lint/exceptions.txt"
MAX_FUNCTION, MAX_HEADER, MAX_SOURCE, MAX_COLUMNS, MAX_FILE_BYTES = 70, 150, 500, 100, 1_000_000

# What each room's files may include besides their own folder's. A folder of a room is a room of its
# own: it sees what its line names. `cli` sees all.
SEES = {
    "base": "", "config": "base", "worker_link": "base", "layout": "base config",
    "data/formats": "base config", "data/order": "base",
    "data/loader": "base config data/formats data/order",
    "data/tokenizer": "base data/formats", "data/prepare": "base data/formats data/tokenizer",
    "checkpoint/record": "base", "checkpoint/codec": "base config checkpoint/record",
    "checkpoint/shard_file": "base checkpoint/record checkpoint/codec",
    "checkpoint/load": "base checkpoint/record checkpoint/codec checkpoint/shard_file",
    "checkpoint/ballot": "base checkpoint/record",
    "checkpoint/save": "base worker_link checkpoint/record checkpoint/ballot checkpoint/codec "
                       "checkpoint/shard_file",
    "checkpoint/snapshot": "base checkpoint/record checkpoint/save",
    "checkpoint/tools": "base checkpoint/record checkpoint/codec checkpoint/shard_file "
                        "checkpoint/load checkpoint/save",
    "hf": "base config layout checkpoint/record checkpoint/load",
    "launcher/net": "base worker_link", "launcher/host": "base worker_link launcher/net",
    "launcher/control": "base config worker_link launcher/net launcher/host",
    "launcher/slurm": "base config launcher/host launcher/control",
    "launcher/health": "base",
    "launcher/agent": "base worker_link launcher/net launcher/host launcher/control "
                      "launcher/health",
    "core/device": "base", "core/kernels": "base layout core/device",
    "core/kernels/sim": "base core/device core/kernels",
    "core/rendezvous": "base",
    "core/comm": "base layout worker_link core/device core/kernels core/audit core/rendezvous",
    "core/audit": "base layout",
    "core/sharding": "base config layout core/device core/kernels core/comm core/audit",
    "core/model": "base config layout core/device core/kernels core/sharding",
    "core/optim": "base config layout core/device core/kernels core/comm core/audit core/sharding",
    "core/train": "base config layout worker_link hf data/formats data/loader checkpoint/record "
                  "checkpoint/ballot checkpoint/load checkpoint/save checkpoint/snapshot "
                  "checkpoint/tools "
                  "core/device core/kernels core/comm core/audit core/sharding core/model "
                  "core/optim",
    "core/train/sampling": "base config layout hf core/device core/kernels core/comm core/sharding "
                           "core/model core/train",
}
ROOMS = tuple(dict.fromkeys([name.split("/")[0] for name in SEES] + ["cli"]))
MAX_ROOMS = 25  # sources of one folder; a header and its source count once
TORCH = re.compile(r"^(torch|ATen|c10|c10d|caffe2|gloo)/")
ALL_OF_TORCH = ("torch/torch.h", "torch/all.h", "torch/extension.h")
# Above the seam for the device: what calls NCCL, and the report that has CUDA's facts by name.
NAMES_CUDA = ("core/comm/nccl_library.cc", "cli/doctor/")
BANNED_WORDS = {"manager", "handler", "helper", "util", "misc"}
# Names that belong to libraries.
FOREIGN_NAMES = {"sa_handler", "error_handler_t", "sighandler_t"}

POSIX_FILE = ("open|openat|creat|read|write|pread|pwrite|pwritev|fsync|fdatasync|unlink|rename|"
              "mkdir|rmdir|truncate|ftruncate|stat|lstat|opendir|statvfs")
# clone() without arguments is somebody's method.
POSIX_PROCESS = (r"fork|vfork|clone(?!\s*\(\s*\))|execv|execve|execvp|posix_spawn|posix_spawnp|"
                 "system|popen")
STD_FILES = ("exists|create_director(y|ies)|remove(_all)?|rename|copy(_file)?|file_size|"
             "is_directory|is_regular_file|(recursive_)?directory_iterator|canonical|"
             "weakly_canonical|last_write_time|space|resize_file")
# What must come in through a constructor: a pattern, the rooms that may, what to use.
# The launcher's processes live in /proc and /dev, a progress page is mapped by two processes; a
# command line has a console and an environment.
RAW_CALLS = (
    (rf"(?<![\w>:])(::|std::)?({POSIX_PROCESS})\s*\(", ("launcher",), "launcher/host/process.h"),
    (rf"(?<![\w>:])::({POSIX_FILE})\s*\(", ("launcher", "worker_link"), "base::FileSystem"),
    (r"(?<![\w.>])(std::)?(fopen|freopen|tmpfile|mkstemp)\s*\(", (), "base::FileSystem"),
    (r"\bstd::(basic_)?[io]?fstream\b", ("launcher",), "base::FileSystem"),
    (rf"\b(std::filesystem|fs)::({STD_FILES})\b", ("launcher",), "base::FileSystem"),
    (r"\b(std::filesystem|fs)::(current_path|temp_directory_path|absolute)\b", ("cli", "launcher"),
     "an argument"),
    (r"\b(system|steady|high_resolution|utc)_clock\b(?!\s*\()", (), "base::Clock"),
    (r"(?<![\w.>])(::|std::)?(time|clock)\s*\(\s*(nullptr|NULL|0)?\s*\)", (), "base::Clock"),
    (r"\b(clock_gettime|gettimeofday|nanosleep|usleep|sleep_for|sleep_until)\s*\(", (),
     "base::Clock"),
    (r"(?<![\w.>])(::|std::)?(rand|srand|rand_r|random|drand48)\s*\(\s*\w*\s*\)", (),
     "base/hash.h"),
    (r"\bstd::(random_device|mt19937(_64)?|default_random_engine)\b", (), "base/hash.h"),
    (r"\bstd::(exp2?|expm1|log(2|10|1p)?|pow|sin|cos|tan|a?(sin|cos|tan)h|a(sin|cos)|atan2?|cbrt|"
     r"hypot|erfc?|[lt]gamma)[fl]?\s*\(", ("cli",), "base/elementary.h"),
    (r"\b(secure_)?(getenv|setenv|putenv|unsetenv)\s*\(", ("cli", "launcher"), "an argument"),
    (r"\bstd::(cout|cerr|clog)\b|(?<![\w.>])(std::)?(printf|puts|putchar)\s*\(", ("cli",),
     "base/log.h, or a std::ostream& from cli"),
)
MACHINE_PATH = re.compile(r"(?<![\w.$})*/-])/(?:work|root|home|tmp|Users)/[\w.]")
HOST_NAME = re.compile(r"\b(?:pypi\.org|pythonhosted\.org|deb\.debian\.org|archive\.ubuntu\.com)\b")


class Tree:
    """The files of the repository: path -> text ("" for what is not text), and sizes."""

    def __init__(self, texts, sizes=None):
        self.texts = texts
        self.sizes = sizes or {path: len(text.encode()) for path, text in texts.items()}

    @classmethod
    def of_repository(cls, root):
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], check=True, capture_output=True).stdout.decode().split("\0")
        texts, sizes = {}, {}
        for path in sorted(filter(None, listed)):
            file = root / path
            if not file.is_file():
                continue  # removed, not yet committed
            raw = file.read_bytes()
            sizes[path] = len(raw)
            try:
                texts[path] = "" if b"\0" in raw else raw.decode()
            except UnicodeDecodeError:
                texts[path] = ""
        return cls(texts, sizes)

    def cpp(self, *folders):
        """(path, text) of the C++ files, of these top folders only when given."""
        for path, text in self.texts.items():
            if path.endswith((".h", ".cc", ".cu", ".cuh")):
                if not folders or path.split("/")[0] in folders:
                    yield path, text


class Finding:
    def __init__(self, rule, path, line, message, value=None):
        self.rule, self.path, self.line = rule, path, line
        self.message, self.value = message, value

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def room_of(path):
    """checkpoint/save of checkpoint/save/engine.h; base of base/check.h."""
    folder = path.rsplit("/", 1)[0]
    return folder if folder in SEES else folder.split("/")[0]


def may_include(path, target):
    """Whether the arrows of the design lead from the file `path` to the header `target`."""
    room, to = room_of(path), room_of(target)
    if room.split("/")[0] not in ROOMS or room == "cli" or to.split("/")[0] not in ROOMS:
        return True
    return to == room or to in SEES.get(room, "").split()


def stem(path):
    return path.rsplit(".", 1)[0]


def include_graph(tree):
    """{stem: {stem that it includes: (path, line)}} of the sources that are ours."""
    stems = {stem(path) for path, _ in tree.cpp(*ROOMS)}
    graph = {each: {} for each in stems}
    for path, text in tree.cpp(*ROOMS):
        for line, header, quoted in includes(text):
            if quoted and stem(header) in stems and stem(header) != stem(path):
                graph[stem(path)].setdefault(stem(header), (path, line))
    return graph


def reaches(graph, start, end):
    seen, left = set(), [start]
    while left:
        at = left.pop()
        if at == end:
            return True
        if at not in seen:
            seen.add(at)
            left += graph[at]
    return False


def check_circles(tree):
    """No source includes one that, over others, includes it."""
    graph = include_graph(tree)
    for start in sorted(graph):
        for to, (path, line) in sorted(graph[start].items()):
            if start < to and reaches(graph, to, start):
                yield Finding("circles", path, line, f"{to} comes back to {start}")


def check_crowds(tree):
    rooms = {}
    for each in include_graph(tree):
        rooms.setdefault(each.rsplit("/", 1)[0], []).append(each)
    for folder, stems in sorted(rooms.items()):
        if len(stems) > MAX_ROOMS:
            yield Finding("crowds", folder, 1, f"{len(stems)} sources, {MAX_ROOMS} are allowed",
                          len(stems))


def includes(text):
    """(line, header, whether quoted) of every #include."""
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if found:
            yield number, found.group(2), found.group(1) == '"'


def check_arrows(tree):
    for path, text in tree.cpp(*ROOMS):
        for line, header, quoted in includes(text):
            if quoted and "/" not in header:
                yield Finding("arrows", path, line, f'"{header}": includes start at the root')
            elif quoted and not may_include(path, header):
                yield Finding("arrows", path, line, f'"{header}" is against the arrows')


def check_torch(tree):
    for path, text in tree.cpp(*ROOMS):
        for line, header, _ in includes(text):
            if not path.startswith("core/") and TORCH.match(header):
                yield Finding("torch", path, line, f"<{header}>: Torch stops at core/")


def check_torch_header(tree):
    for path, text in tree.cpp():
        for line, header, _ in includes(text):
            if header in ALL_OF_TORCH:
                yield Finding("torch_header", path, line,
                              f"<{header}> takes 20 s to compile: include <ATen/ops/NAME.h>")


def check_json_header(tree):
    for path, text in tree.cpp():
        for line, header, _ in includes(text):
            if header == "nlohmann/json.hpp" and path != "base/json.h":
                yield Finding("json_header", path, line,
                              'include "base/json.h": its templates are compiled once')


def check_cuda(tree):
    """One seam for the device: above core/device and core/kernels no code names CUDA. A string is
    for people, or is a key of theirs."""
    for path, text in tree.cpp("core", "cli"):
        if room_of(path) in ("core/device", "core/kernels") or path.startswith(NAMES_CUDA):
            continue
        for number, line in enumerate(cpp_text.code_only(text).split("\n"), 1):
            if re.search("cuda", line, re.IGNORECASE):
                yield Finding("cuda", path, number, "CUDA stops at core/device and core/kernels")


def check_function_size(tree):
    for path, text in tree.cpp():
        for name, first, last in cpp_text.functions(text):
            lines = last - first + 1
            if lines > MAX_FUNCTION:
                yield Finding("function_size", f"{path}:{name}", first,
                              f"{lines} lines, {MAX_FUNCTION} are allowed", lines)


def check_file_size(tree):
    for path, text in tree.cpp():
        lines = text.count("\n")
        limit = MAX_HEADER if path.endswith((".h", ".cuh")) else MAX_SOURCE
        if lines > limit:
            yield Finding("file_size", path, 1, f"{lines} lines, {limit} are allowed", lines)


def is_script(path):
    return path.endswith((".py", ".sh")) or (path.startswith(("tools/", ".ci/")) and "." not in
                                             path.rsplit("/", 1)[1])


def check_columns(tree):
    for path, text in tree.texts.items():
        if not is_script(path) and not path.endswith((".h", ".cc", ".cu", ".cuh")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS:
                yield Finding("columns", path, number,
                              f"{len(line)} columns, {MAX_COLUMNS} are allowed")


def check_raw_calls(tree):
    for path, text in tree.cpp(*ROOMS):
        room = path.split("/")[0]
        if room == "base":
            continue
        for number, line in enumerate(cpp_text.code_only(text).split("\n"), 1):
            for pattern, rooms, instead in RAW_CALLS:
                found = re.search(pattern, line)
                if found and room not in rooms:
                    yield Finding("raw_calls", path, number,
                                  f"{found.group(0).strip()}: comes in from outside; use {instead}")


def words_of(name):
    """read_HTTPHeaders2 -> read, http, headers, 2; a plural counts as its singular."""
    for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name):
        yield word.lower()
        yield word.lower().removesuffix("s")


def check_words(tree):
    for path in tree.texts:
        if BANNED_WORDS & set(words_of(path)):
            yield Finding("words", path, 1, "its name says nothing about what it does")
    for path, text in tree.cpp():
        for number, line in enumerate(cpp_text.code_only(text).split("\n"), 1):
            for name in re.findall(r"[A-Za-z_]\w*", line):
                banned = BANNED_WORDS & set(words_of(name))
                is_include = line.lstrip().startswith("#include")
                if banned and name not in FOREIGN_NAMES and not is_include:
                    yield Finding("words", path, number, f"{name}: not used here: {min(banned)}")


def check_paths(tree):
    for path, text in tree.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, what in ((MACHINE_PATH, "a path of one machine"),
                                  (HOST_NAME, "a registry's host name")):
                found = pattern.search(line)
                if found:
                    yield Finding("paths", path, number, f"{found.group(0)}: {what}")


def listed_sources(tree):
    """One regular expression for each source that a CMakeLists.txt names."""
    for path, text in tree.texts.items():
        if not path.endswith(("CMakeLists.txt", ".cmake")):
            continue
        folder = path.rsplit("/", 1)[0] + "/" if "/" in path else ""
        for token in re.findall(r"[\w./${}-]+\.(?:cc|cu)\b", re.sub(r"#.*", "", text)):
            root_relative = re.sub(r"^\$\{(PROJECT|CMAKE)_SOURCE_DIR\}/", "", token)
            whole = root_relative if root_relative != token else folder + token
            yield re.sub(r"\\\$\\\{\w+\\\}", r"[\\w./-]+", re.escape(whole)) + r"\Z"


def check_built(tree):
    listed = [re.compile(pattern) for pattern in listed_sources(tree)]
    for path, _ in tree.cpp():
        if path.endswith((".cc", ".cu")) and not any(each.match(path) for each in listed):
            yield Finding("built", path, 1, "no CMakeLists.txt names it, so it is not built")


def check_headers(tree):
    for path, text in tree.cpp():
        if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
            yield Finding("pragma_once", path, 1, "a header says #pragma once")


def check_bytes(tree):
    for path, size in tree.sizes.items():
        if size > MAX_FILE_BYTES:
            yield Finding("bytes", path, 1, f"{size} bytes, {MAX_FILE_BYTES} are allowed", size)


def check_format(tree):
    if clang_format.STYLE not in tree.texts:
        return
    _, why_not = clang_format.program()
    if why_not is None:
        for path, line in clang_format.violations(tree):
            yield Finding("format", path, line, f"clang-format {clang_format.MAJOR} changes it")
    elif os.environ.get("CI") == "true":
        yield Finding("format", clang_format.STYLE, 1, why_not)
    else:
        print(f"lint: format is not checked: {why_not}")


def check_scripts(rule):
    def check(tree):
        checker = script_checks.CHECKERS[rule]
        _, why_not = checker.found()
        if why_not is None:
            for path, line, words in checker.violations(tree):
                yield Finding(rule, path, line, words)
        elif os.environ.get("CI") == "true":
            yield Finding(rule, "tools/setup", 1, why_not)
        else:
            print(f"lint: {rule} is not checked: {why_not}")
    return check


def check_pages(rule):
    def check(tree):
        for path, line, words in doc_rules.RULES[rule](tree):
            yield Finding(rule, path, line, words)
    return check


RULES = {"arrows": check_arrows, "circles": check_circles, "crowds": check_crowds,
         "torch": check_torch, "torch_header": check_torch_header, "json_header": check_json_header,
         "cuda": check_cuda,
         "function_size": check_function_size, "file_size": check_file_size,
         "columns": check_columns, "raw_calls": check_raw_calls, "words": check_words,
         "paths": check_paths, "built": check_built, "pragma_once": check_headers,
         "bytes": check_bytes, "format": check_format,
         **{rule: check_pages(rule) for rule in doc_rules.RULES},
         **{rule: check_scripts(rule) for rule in script_checks.CHECKERS}}


def parse_exceptions(text):
    """{(rule, path): (line, value or None)}"""
    exceptions = {}
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split("#")[0].split()
        if fields:
            value = int(fields[2]) if len(fields) > 2 else None
            exceptions[fields[0], fields[1]] = (number, value)
    return exceptions


def lint(tree):
    """Every finding that no exception covers, and every exception that covers too much."""
    exceptions = parse_exceptions(tree.texts.get(EXCEPTIONS, ""))
    needed, left = {}, []
    for check in RULES.values():
        for finding in check(tree):
            key = finding.rule, finding.path
            _, allowed = exceptions.get(key, (0, None))
            if key not in exceptions or (finding.value or 0) > (allowed or finding.value or 0):
                left.append(finding)
            needed[key] = max(needed.get(key, 0), finding.value or 0)
    for key, (line, value) in exceptions.items():
        if key not in needed:
            left.append(Finding("exceptions", EXCEPTIONS, line,
                                f"{' '.join(key)}: no longer needed"))
        elif needed[key] and (value is None or value > needed[key]):
            left.append(Finding("exceptions", EXCEPTIONS, line,
                                f"{' '.join(key)}: set its value to {needed[key]}"))
    return left


def self_test():
    wrong = []
    for finding in lint(Tree({**samples.CLEAN, **samples.STYLE})):
        wrong.append(f"the clean sample: {finding}")
    tested = set()
    for rule, what, files in samples.BAD:
        tested.add(rule)
        found = lint(Tree({**samples.CLEAN, **files}))
        checker = script_checks.CHECKERS.get(rule)
        program, _ = checker.found() if checker else clang_format.program()
        if program is None and (checker or rule == "format"):
            continue  # as said
        if {each.rule for each in found} != {rule}:
            wrong.append(f"{rule} ({what}): found {[str(each) for each in found]}")
    for rule in (RULES.keys() | {"exceptions"}) - tested:
        wrong.append(f"{rule} has no bad sample")
    for line in wrong:
        print(line)
    print(f"lint self-test: {len(samples.BAD)} bad samples, {len(wrong)} wrong")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    findings = lint(Tree.of_repository(ROOT))
    if arguments == ["--counts"]:
        for rule in [*RULES, "exceptions"]:
            print(f"{sum(each.rule == rule for each in findings):5d}  {rule}")
        return 0
    if arguments:
        print(__doc__)
        return 64
    for finding in findings:
        print(finding)
    print(f"lint: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
