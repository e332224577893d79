"""A Sphinx extension that makes a site of pages written for the repository: the navigation follows the tables of
docs/README.md, links to source files lead to pages with their code, and a link whose text is a file's name shows the
page's title.
"""
import html
import re
import shutil
from pathlib import Path

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

INDEX = "docs/README"
PROJECT = ("docs/writing", "DEPENDENCIES", "examples/char-gpt/README")  # not in the tables of the index
CODE = "source"                          # folder of the code pages


def sections(index):
    """(heading, [page]) of each table of the index; pages relative to it, without their suffix."""
    heading, found = "", {}
    for line in index.splitlines():
        if match := re.match(r"##+ +(.+)", line):
            heading = match[1]
        elif match := re.match(r"\| \[[^\]]+\]\(([^)#]+)\.md\) \|", line):
            found.setdefault(heading, []).append(match[1])
    return found.items()


def navigation(app):
    """The front page's hidden tables of contents, in MyST's syntax."""
    index = (Path(app.srcdir) / f"{INDEX}.md").read_text()
    groups = [("Start", [INDEX])]
    groups += [(heading, [f"docs/{page}" for page in pages]) for heading, pages in sections(index)]
    groups += [("Project", list(PROJECT))]
    return "".join(f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {heading}\n\n"
                   + "".join(f"/{page}\n" for page in pages) + "```\n" for heading, pages in groups)


def read_source(app, docname, source):
    source[0] = re.sub(r"\[([\w-]+\.md)\]\(((?:[\w./-]*/)?\1(?:#[\w-]+)?)\)", r"[](\2)", source[0])
    if docname == app.config.root_doc:
        source[0] += navigation(app)


class LinkCode(SphinxTransform):
    """Links to a file that is not a page: to its code page instead of a download."""

    default_priority = 400

    def apply(self):
        code = vars(self.env).setdefault("code_pages", {})
        for link in list(self.document.findall(addnodes.download_reference)):
            path = Path(self.env.relfn2path(link["reftarget"], self.env.docname)[1])
            name = str(path.relative_to(self.env.srcdir))
            code.setdefault(self.env.docname, set()).add(name)
            uri = self.app.builder.get_relative_uri(self.env.docname, f"{CODE}/{name}")
            link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


def forget(app, env, docname):
    vars(env).setdefault("code_pages", {}).pop(docname, None)


def merge(app, env, docnames, other):
    mine, theirs = (vars(one).setdefault("code_pages", {}) for one in (env, other))
    mine.update({name: theirs[name] for name in docnames if name in theirs})


def code_pages(app):
    for name in sorted(set().union(*vars(app.env).get("code_pages", {}).values())):
        text = (Path(app.srcdir) / name).read_text()
        try:
            language = get_lexer_for_filename(name).aliases[0]
        except ClassNotFound:
            language = "text"
        body = app.builder.highlighter.highlight_block(text, language, linenos=False)
        yield f"{CODE}/{name}", {"title": name, "body": f"<h1>{html.escape(name)}</h1>\n{body}"}, "page.html"


def finish(app, exception):
    """A web server looks for index.html; links between pages name the file that has the text."""
    if exception is None and app.builder.format == "html":
        shutil.copy(Path(app.outdir) / f"{app.config.root_doc}.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", read_source)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", code_pages)
    app.connect("build-finished", finish)
    app.add_transform(LinkCode)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
