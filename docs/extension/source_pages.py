"""
Links from pages to files and folders of the repository that are no pages: each leads to a page that shows the source.

A page may link to any file or folder of the repository, as a repository viewer allows it. Here such a link becomes
`source/PATH.html`: the file with its syntax coloured, or the folder's list of files.
"""

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.osutil import relative_uri

PREFIX = "source"
LEXERS = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sh": "bash", ".sbatch": "bash", ".json": "json"}
HIDDEN = ("__pycache__", ".")


def find_links(app: Sphinx, document: nodes.document) -> None:
    """Take MyST's downloads and unresolved paths that are files or folders of the repository as links to sources."""
    found: set[str] = set()
    for node in list(
        document.findall(lambda node: isinstance(node, (addnodes.download_reference, addnodes.pending_xref)))
    ):
        if node.get("reftype") != "myst" or node.get("refdomain"):
            continue
        path, line_mark = _path_of(app.env, node["reftarget"])
        if path is None:
            continue
        found.add(path)
        link = addnodes.pending_xref(
            "", *node.children, reftype="source", refdomain=None, reftarget=path, refdoc=app.env.docname, mark=line_mark
        )
        node.replace_self(link)
    _links(app.env)[app.env.docname] = found


def _path_of(env: BuildEnvironment, target: str) -> tuple[str | None, str]:
    """The path within the repository of what is no page, and the part after #; None where nothing is there."""
    name, _, mark = target.partition("#")
    path = (Path(env.doc2path(env.docname)).parent / name).resolve()
    is_ours = name and path.exists() and path.is_relative_to(env.srcdir)
    return (path.relative_to(env.srcdir).as_posix() if is_ours else None), mark


def _links(env: BuildEnvironment) -> dict[str, set[str]]:
    """The sources that each page links to; kept with the environment between two builds."""
    if not hasattr(env, "linked_sources"):
        env.linked_sources = {}  # type: ignore[attr-defined]
    return env.linked_sources  # type: ignore[attr-defined,no-any-return]


class LinksToSources(SphinxPostTransform):
    """In HTML a link to a source is one to its page; elsewhere it is its text."""

    default_priority = 5  # before MyST and Sphinx look for what is unresolved

    def run(self, **_: Any) -> None:
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node["reftype"] != "source":
                continue
            link: nodes.Element = nodes.inline("", "", *node.children)
            if self.app.builder.format == "html":
                here = self.app.builder.get_target_uri(self.env.docname)
                uri = relative_uri(here, self.app.builder.get_target_uri(f"{PREFIX}/{node['reftarget']}"))
                link = nodes.reference("", "", *node.children, internal=True, refuri=uri)
            node.replace_self(link)


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each linked source, and for each file of a linked folder."""
    root = Path(app.srcdir)
    linked = {root / path for found in _links(app.env).values() for path in found}
    files = {path for path in linked if path.is_file()}
    for folder in linked - files:
        files |= {path for path in folder.iterdir() if path.is_file() and not path.name.startswith(HIDDEN)}
    for path in sorted(files | linked):
        name = path.relative_to(root).as_posix()
        body = _listing(path, name, app) if path.is_dir() else _source(path, app)
        yield f"{PREFIX}/{name}", {"title": name, "body": f"<h1>{html.escape(name)}</h1>\n{body}"}, "page.html"
    yield "index", {"start": app.builder.get_target_uri(app.config.root_doc)}, "start.html"


def _source(path: Path, app: Sphinx) -> str:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return f"<p>{path.stat().st_size:,} bytes.</p>"
    return str(app.builder.highlighter.highlight_block(text, LEXERS.get(path.suffix, "text")))  # type: ignore[attr-defined]


def _listing(folder: Path, name: str, app: Sphinx) -> str:
    rows = []
    here = app.builder.get_target_uri(f"{PREFIX}/{name}")
    for path in sorted(folder.iterdir()):
        if path.name.startswith(HIDDEN):
            continue
        target = app.builder.get_target_uri(f"{PREFIX}/{name}/{path.name}")
        link = f'<a href="{relative_uri(here, target)}">{html.escape(path.name)}</a>'
        rows.append(f"<li>{link if path.is_file() else html.escape(path.name + '/')}</li>")
    return f"<ul>{''.join(rows)}</ul>"


def forget(app: Sphinx, env: BuildEnvironment, name: str) -> None:
    """A page that is read again has its links found again."""
    _links(env).pop(name, None)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", find_links, priority=100)  # before Sphinx collects downloads
    app.connect("env-purge-doc", forget)
    app.connect("html-collect-pages", pages)
    app.add_post_transform(LinksToSources)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
