"""Rules for pages (*.md): links resolve, lines are short, sentences have a subject and a verb.

Each rule yields (path, line, words)."""
import posixpath
import re

MAX_COLUMNS = 120
SITE = "mkdocs.yml"
# Tests read their tables row by row.
FIXED_ROWS = ("docs/CONFIG.md", "docs/SLURM.md")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|<img [^>]*src=\"([^\"]+)\""
                  r"|^\[[^\]]+\]: (\S+)")
ELSEWHERE = re.compile(r"[a-z]+:")
PLAIN = (
    (re.compile(r"\bnone of ours\b"), "say what it is, or what it lacks"),
    (re.compile(r" is none [a-z]"), "say \"there is no\", or what it is"),
    # "Of a run that ended: its log." has no verb. "Of two nodes, one stays." has one.
    (re.compile(r"(?:^(?:[-*] |\d+\. |\| )?|[.;|] |\*\* )Of [a-z][^.:;]*:(?: |$)"),
     "a sentence has a subject and a verb"),
    (re.compile(r"^(?:#+|//) Of "), "a sentence has a subject and a verb"),
)


def pages(tree):
    for path, text in tree.texts.items():
        if path.endswith(".md"):
            yield path, text


def lines_outside_code(text):
    """(number, line) of what is not between ``` lines."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchor_of(heading):
    """As GitHub makes it, before a number is added to one that is there already."""
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    words = re.sub(r"[^\w\- ]", "", words.replace("*", "").strip().lower())
    return words.replace(" ", "-")


def anchors(text):
    found = set(re.findall(r"<a (?:name|id)=\"([^\"]+)\"", text))
    for _, line in lines_outside_code(text):
        heading = re.match(r"#{1,6} +(.*?)(?: +#+)?\s*$", line)
        if heading is None:
            continue
        name = anchor = anchor_of(heading.group(1))
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{name}-{again}"
        found.add(anchor)
    return found


def wrong_link(tree, page, target):
    """Why the link `target` of `page` leads nowhere, or None."""
    path, _, anchor = target.partition("#")
    if ELSEWHERE.match(target):
        return None
    if path.startswith("/"):
        return "a link is relative to its page"
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    if whole not in tree.texts and not any(each.startswith(whole + "/") for each in tree.texts):
        return "there is no such file"
    if anchor and anchor not in anchors(tree.texts.get(whole, "")):
        return f"{whole} has no such heading"
    return None


def links(tree):
    for page, text in pages(tree):
        if page.startswith("docs/") and SITE in tree.texts and not re.search(
                rf"[ :]{re.escape(page.removeprefix('docs/'))}$", tree.texts[SITE], re.M):
            yield page, 1, f"no shelf of {SITE} has this page"
        for number, line in lines_outside_code(text):
            for found in LINK.finditer(re.sub(r"`[^`]*`", "``", line)):
                target = next(filter(None, found.groups()))
                wrong = wrong_link(tree, page, target)
                if wrong:
                    yield page, number, f"{target}: {wrong}"


def doc_columns(tree):
    """Where a link leads does not count: it cannot be broken."""
    for page, text in pages(tree):
        for number, line in lines_outside_code(text):
            shown = re.sub(r"\]\([^()\s]+\)|https?://\S+|<img [^>]*>", "", line)
            fixed = page in FIXED_ROWS and line.startswith("|")
            if len(shown) > MAX_COLUMNS and not fixed:
                yield page, number, f"{len(shown)} columns, {MAX_COLUMNS} are allowed"


def plain_words(tree):
    """A sentence may go on in the next line."""
    for page, text in pages(tree):
        lines = [*lines_outside_code(text), (0, "")]
        for (number, line), (_, following) in zip(lines, lines[1:]):
            line = line.strip()
            for pattern, instead in PLAIN:
                found = pattern.search(f"{line} {following.strip()}".strip())
                if found and found.start() < len(line):
                    words = found.group(0).strip()
                    yield page, number, f"\"{words}\": {instead}"


RULES = {"links": links, "doc_columns": doc_columns, "plain_words": plain_words}
