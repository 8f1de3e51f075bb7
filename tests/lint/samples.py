"""What lint.py must find, and a small repository in which it must find nothing."""

CLEAN = {
    "base/clock.h": "#pragma once\nint64_t now();\n",
    "base/clock.cc": '#include "base/clock.h"\n'
                     "int64_t now() { return std::chrono::steady_clock::now(); }\n",
    "base/CMakeLists.txt": "lockstep_library(base SOURCES clock.cc)\n",
    "data/loader/keys.h": '#pragma once\n#include "base/clock.h"\n'
                          "struct Order {\n  int64_t at(int64_t n);\n};\n",
    "data/loader/keys.cc": '#include "data/loader/keys.h"\n'
                           '// fopen() and "manager" in a comment are words\n'
                           'int64_t Order::at(int64_t n) { return n; }\n'
                           'const char* words() { return "std::ofstream /* helper */"; }\n'
                           "constexpr int64_t kMany = 1'000'000;  // 'quoted' and open(x)\n",
    "data/CMakeLists.txt": "lockstep_library(data SOURCES loader/keys.cc)\n",
    "core/comm/group.h": '#pragma once\n#include <ATen/core/Tensor.h>\n\n#include "base/clock.h"\n',
    "core/train/step.cc": '#include <ATen/ops/zeros.h>\n\n#include "core/comm/group.h"\n'
                          '#include "data/loader/keys.h"\n#include "layout/model_spec.h"\n'
                          "void run(Trainer& t) {\n  t.open(p);\n  writer->write(b);\n"
                          "  Shard::open(x);\n}\n",
    "core/CMakeLists.txt": "lockstep_library(core SOURCES train/step.cc)\n",
    "launcher/host/process.cc": '#include "base/clock.h"\nint start() { return ::fork(); }\n',
    "launcher/CMakeLists.txt": "lockstep_library(launcher SOURCES host/process.cc)\n",
    "cli/main.cc": '#include "core/train/step.h"\n#include "launcher/host/process.h"\n'
                   'int main() { std::cout << getenv("HOME"); }\n',
    "cli/CMakeLists.txt": "foreach(name main)\n  add_executable(x ${name}.cc)\nendforeach()\n",
    "tests/unit/data/order_test.cc": '#include "data/loader/keys.h"\n'
                                     'TEST(Order, Works) { ::open("x", 0); }\n',
    "tests/unit/data/CMakeLists.txt": "lockstep_test(order SOURCES order_test.cc)\n",
    "mkdocs.yml": "nav:\n  - Use:\n      - Start: x.md\n      - y.md\n",
    "README.md": "# A `x`-run, *twice*\n## Again\n## Again\n"
                 "[one](#a-x-run-twice) [two](#again-1)\n"
                 "[page](docs/x.md#what-is--not) ![p](docs/x.svg) [folder](data) `[z](z.md)`\n"
                 "```\n[z](z.md) " + "x" * 120 + "\n```\n",
    "docs/x.md": "## What is – not?\nIt has none. Of two runs, one stays. "
                 "[back](../README.md#again)\n",
    "docs/y.md": "[a](x.md) [b](x.md) [c](x.md) [d](x.md) [e](x.md) [f](x.md) [g](x.md) [h](x.md) "
                 "[i](../README.md#a-x-run-twice)\n",
    "docs/x.svg": "",
    "tools/setup": '#!/usr/bin/env bash\necho "build/$(id -u)"\n',
}

# With this file clang-format looks at the others.
STYLE = {".clang-format": "BasedOnStyle: Google\nColumnLimit: 100\n"}

_LONG = "\n".join("  ++n;" for _ in range(70))
_DATA = '#include "data/loader/keys.h"\n'


def _data(code):
    return {"data/loader/keys.cc": _DATA + code}


def _raw(call):
    return "raw_calls", call, _data(f"void f() {{ {call}; }}\n")


BAD = [
    ("arrows", "data sees launcher",
     {"data/loader/keys.h": '#pragma once\n#include "launcher/agent/agent.h"\n'}),
    ("arrows", "base sees data",
     {"base/clock.h": '#pragma once\n#include "data/loader/lanes.h"\n'}),
    ("arrows", "launcher sees layout",
     {"launcher/host/process.cc": '#include "layout/model_spec.h"\n'}),
    ("arrows", "checkpoint sees core",
     {"checkpoint/save/engine.h": '#pragma once\n#include "core/comm/group.h"\n'}),
    ("arrows", "core/comm sees core/sharding",
     {"core/comm/group.h": '#pragma once\n#include "core/sharding/unit.h"\n'}),
    ("arrows", "core/model sees core/optim",
     {"core/model/llama.h": '#pragma once\n#include "core/optim/adamw.h"\n'}),
    ("arrows", "core/sharding sees data",
     {"core/sharding/unit.h": '#pragma once\n#include "data/loader/keys.h"\n'}),
    ("arrows", "core sees launcher",
     {"core/train/loop.h": '#pragma once\n#include "launcher/agent/agent.h"\n'}),
    ("arrows", "core sees cli",
     {"core/train/loop.h": '#pragma once\n#include "cli/compare/run_log.h"\n'}),
    ("arrows", "not from the root", {"data/loader/keys.cc": '#include "keys.h"\n'}),
    ("arrows", "checkpoint/save sees checkpoint/tools",
     {"checkpoint/save/engine.h": '#pragma once\n#include "checkpoint/tools/diff.h"\n'}),
    ("circles", "a header and its user",
     {"data/loader/keys.h": '#pragma once\n#include "data/loader/lanes.h"\n',
      "data/loader/lanes.h": '#pragma once\n#include "data/loader/keys.h"\n'}),
    ("crowds", "26 headers", {f"hf/part_{n}.h": "#pragma once\n" for n in range(26)}),
    ("torch", "data", {"data/loader/keys.h": "#pragma once\n#include <ATen/core/Tensor.h>\n"}),
    ("torch", "cli", {"cli/main.cc": "#include <c10/util/Exception.h>\nint main() {}\n"}),
    ("torch_header", "core", {"core/comm/group.h": "#pragma once\n#include <torch/torch.h>\n"}),
    ("cuda", "a call", {"core/train/loop.cc": "void f() { if (t.is_cuda()) g(); }\n",
                        "core/CMakeLists.txt": "x(train/loop.cc train/step.cc)\n"}),
    ("cuda", "a macro", {"cli/main.cc": "#ifdef LOCKSTEP_CUDA\n#endif\nint main() {}\n"}),
    ("cuda", "a header", {"core/comm/group.h": '#pragma once\n#include <c10/cuda/CUDAStream.h>\n'}),
    ("function_size", "free", _data(f"int f(int n) {{\n{_LONG}\n  return n;\n}}\n")),
    ("function_size", "method in a class",
     _data("class A {\n public:\n  void run(int n) {\n" + _LONG + "\n  }\n};\n")),
    ("function_size", "test", {"tests/unit/data/order_test.cc": f"TEST(A, B) {{\n{_LONG}\n}}\n"}),
    ("function_size", "in a namespace, with braces and parentheses in strings",
     _data("namespace a {\nint f(int n, std::string s = {}) {\n  g(\"}\");\n  h('{');\n"
           + _LONG + "\n}\n}\n")),
    ("function_size", "constructor with braces in its member list",
     _data("A::A(int n) : a_{1}, b_{n} {\n" + _LONG + "\n}\n")),
    ("shell", "a folder that may be missing",
     {"tools/go": "#!/usr/bin/env bash\ncd /nowhere\nls\n"}),
    ("python", "an unknown name", {"tools/count.py": "print(nothing_of_that_name)\n"}),
    ("json_header", "data", {"data/loader/keys.h": "#pragma once\n#include <nlohmann/json.hpp>\n"}),
    ("torch_header", "a source", {"core/train/step.cc": "#include <torch/torch.h>\n"}),
    ("file_size", "header", {"data/loader/keys.h": "#pragma once\n" + "int a;\n" * 150}),
    ("file_size", "source", _data("int a;\n" * 500)),
    ("columns", "source", _data("int a;  // " + "x" * 90 + "\n")),
    ("columns", "script", {"tools/setup": "# " + "x" * 99 + "\n"}),
    _raw("::open(path, O_RDONLY)"), _raw('fopen("x", "r")'), _raw("std::ofstream out(path)"),
    _raw("std::filesystem::exists(path)"), _raw("fs::create_directories(path)"),
    _raw("auto t = std::chrono::steady_clock::now()"), _raw("auto t = time(nullptr)"),
    _raw("clock_gettime(CLOCK_MONOTONIC, &t)"), _raw("std::this_thread::sleep_for(1s)"),
    _raw("int x = rand()"), _raw("std::mt19937 random"), _raw('getenv("HOME")'), _raw("fork()"),
    _raw("y = std::log(x)"), _raw("float y = std::cosf(x)"),
    _raw('system("ls")'), _raw("std::cerr << 1"), _raw('printf("x")'),
    ("words", "a type", _data("class OrderManager;\n")),
    ("words", "a function", _data("void string_utils();\n")),
    ("words", "a file", {"data/loader/key_helpers.h": "#pragma once\n"}),
    ("paths", "a path", _data(f"// see {'/'}work/main\n")),
    ("paths", "a path in a document", {"docs/y.md": f"run `{'/'}root/x`\n"}),
    ("paths", "a host", {"tools/setup": "curl https://pypi" + ".org/simple\n"}),
    ("built", "a test", {"tests/unit/data/lost_test.cc": "TEST(A, B) {}\n"}),
    ("built", "only in a comment", {"data/lost.cc": "int a;\n", "data/CMakeLists.txt":
                                    "lockstep_library(data SOURCES loader/keys.cc)  # lost.cc\n"}),
    ("pragma_once", "a header", {"data/loader/keys.h": "int a;\n"}),
    ("bytes", "a document", {"docs/x.txt": "x" * 1_000_001}),
    ("links", "a file", {"docs/y.md": "[it](z.md)\n"}),
    ("links", "from the wrong folder", {"docs/y.md": "[it](docs/x.md)\n"}),
    ("links", "a heading", {"docs/y.md": "[it](x.md#what-is-not)\n"}),
    ("links", "a heading of this page", {"NOTES.md": "# One\n[it](#two)\n"}),
    ("links", "a heading in a code block", {"NOTES.md": "```\n# One\n```\n[it](#one)\n"}),
    ("links", "a picture", {"NOTES.md": '<img src="docs/z.svg" width="9">\n'}),
    ("links", "by name", {"docs/y.md": "[it][there]\n\n[there]: z.md\n"}),
    ("links", "from the root", {"docs/y.md": "[it](/docs/x.md)\n"}),
    ("links", "a page that is in no shelf", {"docs/evidence/x.md": "It works.\n"}),
    ("doc_columns", "prose", {"docs/y.md": "x" * 121 + "\n"}),
    ("doc_columns", "a table", {"NOTES.md": "| " + "x " * 60 + "|\n"}),
    ("plain_words", "none of ours", {"docs/y.md": "The file is none of ours.\n"}),
    ("plain_words", "is none", {"docs/y.md": "It is none that we know.\n"}),
    ("plain_words", "a line", {"NOTES.md": "Of a run that ended: its log.\n"}),
    ("plain_words", "a sentence", {"docs/y.md": "It ends. Of each log\nthat is there: its end\n"}),
    ("plain_words", "an item", {"docs/y.md": "- **All.** Of a file: the head.\n"}),
    ("plain_words", "a heading", {"docs/y.md": "## Of runs\n"}),
    ("format", "a space too many", {**STYLE, **_data("int  a;\n")}),
    ("exceptions", "not needed",
     {"tests/lint/exceptions.txt": "columns data/loader/keys.cc  # why\n"}),
    ("exceptions", "too high", {"tests/lint/exceptions.txt": "file_size data/loader/keys.cc 900\n",
                                **_data("int a;\n" * 600)}),
    ("file_size", "above its exception",
     {"tests/lint/exceptions.txt": "file_size data/loader/keys.cc 550\n",
      **_data("int a;\n" * 600)}),
]
