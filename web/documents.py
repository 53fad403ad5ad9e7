"""The project's documents as HTML: `docs/*.md`, for the pages under `/docs` and for a site of
files.

Only documents that lie there when asked for are known, by name, so no address leads elsewhere. HTML
in a document is text like any other. `python -m web.documents FOLDER` writes the site.
"""

import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import count
from pathlib import Path
from shutil import copyfile

from markdown_it import MarkdownIt
from markdown_it.token import Token

#: They lie beside the packages, in a checkout and in the image; a wheel has none.
FOLDER = Path(__file__).resolve().parents[1] / "docs"
FIRST = "README"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
#: A table that scrolls by itself; each is a region of its own name.
_WIDE = '<div class="scroll" tabindex="0" role="region" aria-label="Table {}"><table class="table">'
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")

#: From a document's name, or a picture's path, with an anchor, to its address.
Address = Callable[[str], str]


@dataclass(frozen=True)
class Document:
    """A document: its title, its HTML, and its headings of the second rank as (anchor, text)."""

    title: str
    html: str
    contents: tuple[tuple[str, str], ...]


def names(folder: Path = FOLDER) -> dict[str, Path]:
    """Return every document by its name: its path below the folder, without its ending."""
    return {str(path.relative_to(folder))[:-3]: path for path in sorted(folder.rglob("*.md"))}


def is_there(name: str, folder: Path = FOLDER) -> bool:
    """Return whether there is such a document; `name` is none of a stranger's."""
    return (folder / f"{name}.md").is_file()


@lru_cache(maxsize=8)
def places(name: str, folder: Path = FOLDER) -> frozenset[str]:
    """Return the anchors of a document; none where there is no such document."""
    page = render(name, lambda link: link, folder)
    return frozenset() if page is None else frozenset(re.findall(r' id="([^"]+)"', page.html))


def pictures(folder: Path = FOLDER) -> dict[str, Path]:
    """Return every picture by its path below the folder."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.png"))}


def render(name: str, address: Address, folder: Path = FOLDER) -> Document | None:
    """Return a document by its name, or None. A folder's name lists what it holds."""
    documents = names(folder)
    if name in documents:
        return _rendered(
            documents[name].read_text(),
            name,
            address,
            frozenset(documents),
            frozenset(pictures(folder)),
        )
    inside = [document for document in documents if posixpath.dirname(document) == name]
    if not name or not inside:
        return None
    links = "".join(
        f'<li><a href="{escape(address(heading))}">{escape(_title(documents[heading]))}</a></li>'
        for heading in inside
    )
    title = posixpath.basename(name).capitalize()
    return Document(title, f"<h1>{escape(title)}</h1><ul>{links}</ul>", ())


def _title(path: Path) -> str:
    with path.open() as file:
        return file.readline().lstrip("# ").strip().replace("`", "")


@lru_cache(maxsize=128)
def _rendered(
    text: str, name: str, address: Address, known: frozenset[str], shown: frozenset[str]
) -> Document:
    tokens = _PARSER.parse(_COMMENT.sub("", text))
    contents = tuple(_mark(tokens))
    _lead(tokens, posixpath.dirname(name), address, known, shown)
    title = next(
        (_plain(tokens[n + 1]) for n, t in enumerate(tokens) if t.type == "heading_open"), name
    )
    html = str(_PARSER.renderer.render(tokens, _PARSER.options, {}))
    numbers = count(1)
    html = re.sub("<table>", lambda _: _WIDE.format(next(numbers)), html).replace(
        "</table>", "</table></div>"
    )
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<th></th>", "<td></td>")
    return Document(title, html, contents)


# --- anchors ------------------------------------------------------------------------------------


def _mark(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Give headings their anchors, as code hosts do, and rows that begin with a name."""
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            anchor = slug(_plain(tokens[number + 1]))
            seen[anchor] = seen.get(anchor, -1) + 1
            anchor += f"-{seen[anchor]}" if seen[anchor] else ""
            token.attrSet("id", anchor)
            if token.tag == "h2":
                yield anchor, _plain(tokens[number + 1])
        elif token.type == "tr_open" and tokens[number + 1].type == "td_open":
            inside = tokens[number + 2].children or []
            if (
                len(inside) == 1
                and inside[0].type == "code_inline"
                and inside[0].content not in seen
            ):
                seen[inside[0].content] = 0
                token.attrSet("id", inside[0].content)


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(token: Token) -> str:
    return "".join(
        child.content for child in token.children or [] if child.type in ("text", "code_inline")
    )


# --- links --------------------------------------------------------------------------------------


def _lead(
    tokens: Sequence[Token],
    here: str,
    address: Address,
    known: frozenset[str],
    shown: frozenset[str],
) -> None:
    """Lead links between documents to their pages; links to other files are removed."""
    folders = {posixpath.dirname(other_name) for other_name in known}
    for token in (child for outer in tokens for child in outer.children or []):
        name = {"link_open": "href", "image": "src"}.get(token.type)
        target = "" if name is None else str(token.attrGet(name))
        if name is None or target.startswith("#") or (_ELSEWHERE.match(target) and name == "href"):
            continue
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(here, path))
        lead_name = path.removesuffix(".md") if path.removesuffix(".md") in known else path
        if lead_name in known or lead_name in shown or lead_name in folders:
            token.attrSet(name, address(lead_name + (f"#{anchor}" if anchor else "")))
        else:
            token.attrs.pop(name, None)


# --- a site of files ----------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="stylesheet" href="{up}site.css"></head>
<body><nav><a href="{up}index.html">Exchequer</a></nav><main>{html}</main></body></html>
"""
_STYLE = """:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 56rem; padding: 1rem; }
img { max-width: 100%; height: auto; }
pre, .scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; }
th, td { border-bottom: 1px solid #8886; }
:target { background: #fc06; }
"""


def write_site(target: Path, folder: Path = FOLDER) -> int:
    """Write every document as a file of HTML, with its pictures; returns how many documents."""
    documents = names(folder)
    folders = sorted({posixpath.dirname(page_name) for page_name in documents} - {""})
    for name in [*documents, *folders]:
        up = "../" * _file(name, folders).count("/")

        def address(link: str, up: str = up) -> str:
            path, _, anchor = link.partition("#")
            file = path if path.endswith(".png") else _file(path, folders)
            return f"{up}{file}" + (f"#{anchor}" if anchor else "")

        document = render(name, address, folder)
        assert document is not None
        file = target / _file(name, folders)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_PAGE.format(title=escape(document.title), up=up, html=document.html))
    (target / "site.css").write_text(_STYLE)
    for name, path in pictures(folder).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copyfile(path, target / name)
    return len(documents)


def _file(name: str, folders: Sequence[str]) -> str:
    return (
        "index.html"
        if name == FIRST
        else f"{name}/index.html"
        if name in folders
        else f"{name}.html"
    )


if __name__ == "__main__":
    print(f"{write_site(Path(sys.argv[1]))} documents in {sys.argv[1]}")
