"""What MkDocs needs to show these pages as GitHub does (mkdocs.yml: hooks).

Some pages are outside docs/ and become pages of the site. A link to another file outside docs/
becomes its path, as text: the site has no copy of it."""
import pathlib
import posixpath
import re

import markdown
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A file of the repository -> its page. MkDocs takes a README.md for the index of its folder.
PAGES = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md",
         "examples/README.md": "examples.md"}
SOURCES = {page: path for path, page in PAGES.items()}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.M | re.S)
LIST_ITEM = re.compile(r" *([-*]|\d+\.) ")


class GitHubLists(markdown.extensions.Extension):
    """Two columns nest a list, as on GitHub, and a list or table may follow a line of text."""

    def extendMarkdown(self, md):  # noqa: N802  # the library's name
        md.tab_length = 2


def page_of(path):
    """The page that a file of the repository has on the site, or None."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def site_link(image, words, target, page):
    """A link of the page `page`, as it is on the site."""
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return f"{image}[{words}]({target})"
    source = SOURCES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    to = page_of(path)
    if not (ROOT / path).exists():
        to = path  # MkDocs says that it is missing
    elif to is None:
        return words if words.strip("`") == path else f"{words} (`{path}`)"
    to = posixpath.relpath(to, posixpath.dirname(page) or ".")
    return f"{image}[{words}]({to}{'#' if anchor else ''}{anchor})"


def with_site_links(text, page):
    def replaced(found):
        return site_link(*found.groups(), page)

    parts = CODE.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = LINK.sub(replaced, parts[index])
    return "".join(parts)


def with_blank_lines(text):
    """A blank line before each list and table that follows a line of text: the library wants it."""
    lines, fenced, before = [], False, ""
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        for starts in (LIST_ITEM.match, re.compile(r" *\|").match):
            plain = before.strip() and not starts(before) and not before.startswith((" ", "#"))
            if not fenced and plain and starts(line):
                lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines)


def on_config(config):
    config.markdown_extensions.append(GitHubLists())
    return config


def on_files(files, config):
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(text, page, **_):
    return with_blank_lines(with_site_links(text, page.file.src_uri))
