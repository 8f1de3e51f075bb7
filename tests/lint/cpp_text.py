"""Reads C++ as text: enough to find code among comments and strings, and where functions end."""
import re

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                                      # comments
    r'|R"(?P<delimiter>[^()\\ ]{0,16})\(.*?\)(?P=delimiter)"'  # raw strings
    r'|"(?:[^"\\\n]|\\.)*"'                                    # strings
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'", re.S)             # characters; 1'000 is a number
_MACRO = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_TYPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def code_only(text):
    """`text` with comments, strings and characters blanked; lines and columns stay."""
    def blank(match):
        if match.group(0).startswith('"') and _in_include(text, match.start()):
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))
    return _TOKEN.sub(blank, text)


def _in_include(text, at):
    start = text.rfind("\n", 0, at) + 1
    return text[start:at].lstrip().startswith("#")


def functions(text):
    """(name, first line, last line) of every function body outside other functions."""
    code = code_only(text)
    # A macro's lines are not functions.
    code = _MACRO.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), code)
    scopes = []  # ("outer" | "function" | "inner" | "value", name, first line)
    head_start, line = 0, 1
    for at, letter in enumerate(code):
        if letter == "\n":
            line += 1
        elif letter == "{":
            scopes.append(_scope(code, head_start, at, line, scopes))
            if scopes[-1][0] != "value":
                head_start = at + 1
        elif letter == "}" and scopes:
            kind, name, first = scopes.pop()
            if kind == "function":
                yield name, first, line
            if kind != "value":
                head_start = at + 1
        elif letter == ";":
            head_start = at + 1


def _is_value(head):
    """Whether a brace after `head` begins a default argument or a member's first value."""
    if head.count("(") > head.count(")"):
        return True
    last = re.search(r"(\w+)\s*\Z", head)
    return bool(last and re.search(r"\)[^;]*[^:]:[^:]", head)
                and last.group(1) not in ("const", "noexcept", "override", "final", "mutable"))


def _scope(code, head_start, at, line, scopes):
    head = code[head_start:at]
    if scopes and scopes[-1][0] != "outer":
        return "inner", "", line
    if _is_value(head):
        return "value", "", line
    if "(" not in head:
        return ("outer" if _TYPE.search(head) else "inner"), "", line
    before = head[:head.index("(")]
    if _TYPE.search(before) and not head.rstrip().endswith(")"):
        return "outer", "", line
    lines_of_head = head.lstrip().count("\n")
    words = re.findall(r"[\w:~]+", before)
    name = words[-1] if words else "?"
    if name in ("TEST", "TEST_F", "TEST_P", "BENCHMARK"):
        name = ".".join(re.findall(r"\w+", head[head.index("("):])[:2])
    return "function", name, line - lines_of_head
