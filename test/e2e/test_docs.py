"""Checks of pages and comments: links resolve, named sources exist, every page is in the index, measurements have a date and a command,
files begin with a comment, and no sentence uses a phrase that docs/writing.md asks to avoid. Needs no build.
"""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PRODUCT = ("support", "frontend", "compiler", "passes", "runtime", "tools", "cmake")
SOURCES = (".cpp", ".h", ".td", ".py", ".sh", ".c")
TEXTS = (*SOURCES, ".md", ".proto", ".cmake", ".js", ".css", ".html", ".txt")
LEAST_WORDS = 3                           # in a file comment, not counting the file's name

# Phrases that replace a noun or a verb for which the field has a word. docs/writing.md quotes some.
PHRASES = re.compile(r"\b(where (it|they) lies?|as (it|they) lies?|what lies|what waits|what is made (of|from)|of what (is|was|are)|what nobody|"
                     r"nobody says|takes? part in|in order to)\b", re.IGNORECASE)
QUOTING = {"docs/writing.md"}


def files(*folders):
    """The files of the tree: those that git knows, or all if there is no repository."""
    try:
        known = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        places = [ROOT / folder for folder in folders] or [ROOT]
        known = [str(path.relative_to(ROOT)) for place in places for path in ([place] if place.is_file() else place.rglob("*"))
                 if not any(part.startswith((".", "build")) for part in path.relative_to(ROOT).parts)]
    return sorted(path for path in known if path and (ROOT / path).is_file())


def pages():
    return [path for path in files() if path.endswith(".md")]


def outside_code(text):
    """The lines of a page that are not in a code block."""
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            yield line


def links(path):
    """(target, resolved path, anchor) of each relative link of a page, images included."""
    for line in outside_code((ROOT / path).read_text()):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if not re.match(r"[a-z]+:", target):
                place, _, anchor = target.partition("#")
                yield target, ((ROOT / path).parent / place).resolve() if place else (ROOT / path).resolve(), anchor


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = {}
    for line in outside_code(path.read_text()):
        if heading := re.match(r"#{1,6} +(.*)", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            slug = "".join(c for c in text.replace(" ", "-") if c.isalnum() or c in "-_")
            found[slug] = found.get(slug, -1) + 1
    return {slug if not i else f"{slug}-{i}" for slug, count in found.items() for i in range(count + 1)}


def file_comment(path, text):
    """The text of the comment that a file begins with; of a banner line only the part after the file's name."""
    if path.endswith((".py", ".sh")):
        text = re.sub(r"\A#!.*\n", "", text)
        if docstring := re.match(r'\s*"""(.*?)"""', text, re.DOTALL):
            return docstring[1]
        return " ".join(line for line in re.match(r"(?:#.*\n|\s*\n)*", text)[0].splitlines() if line.startswith("#"))
    if block := re.match(r"\s*/\*(.*?)\*/", text, re.DOTALL):
        return block[1]
    words = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        line = re.sub(r"-\*-.*?-\*-", "", line)
        words.append(re.sub(r"^//===-+ *[\w./-]+\.(cpp|h|td|c)\b", "", line))
    return " ".join(words)


class Docs(unittest.TestCase):
    def test_links_resolve(self):
        broken = []
        for page in pages():
            for target, place, anchor in links(page):
                if not place.exists():
                    broken.append(f"{page}: {target}: no such file")
                elif anchor and anchor not in anchors(place):
                    broken.append(f"{page}: {target}: no such heading")
        self.assertEqual(broken, [])

    def test_code_names_pages_that_exist(self):
        """docs/… in comments, messages and scripts."""
        missing = [f"{path}: {name}" for path in files() if path.endswith(TEXTS) for name in
                   re.findall(r"\bdocs/[\w/-]+\.(?:md|svg|png)\b", (ROOT / path).read_text(errors="replace")) if not (ROOT / name).exists()]
        self.assertEqual(missing, [])

    def test_pages_name_sources_that_exist(self):
        """`Frontier.h`, `passes/Common.h`, `test_docs.py`: the end of some file's path, or a file that the page's next block holds."""
        ends = {"/".join(path.split("/")[i:]) for path in files() for i in range(path.count("/") + 1)}
        missing = []
        for page in pages():
            text = (ROOT / page).read_text()
            known = ends | set(re.findall(r"`([\w.-]+)`:\n\n```", text))
            names = re.findall(r"`([\w./-]+\.(?:cpp|h|td|py|proto|sh|cmake))`", text)
            missing += [f"{page}: {name}" for name in names if name not in known]
        self.assertEqual(missing, [])

    def test_every_page_is_two_clicks_from_the_index(self):
        index = (DOCS / "README.md").resolve()
        near = {place for _, place, _ in links("docs/README.md")}
        reached = {index} | near
        for place in near:
            if place.suffix == ".md" and DOCS in place.parents:
                reached |= {further for _, further, _ in links(str(place.relative_to(ROOT)))}
        self.assertEqual([page for page in files("docs") if page.endswith(".md") and (ROOT / page).resolve() not in reached], [])

    def test_the_index_says_what_each_page_answers(self):
        rows = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| (.+) \|$", (DOCS / "README.md").read_text(), re.MULTILINE)
        listed = {name for name, _ in rows}
        held = {page.removeprefix("docs/") for page in files("docs/tutorials", "docs/guide", "docs/design", "docs/measurements") if page.endswith(".md")}
        self.assertEqual(listed, held)
        self.assertEqual([name for name, answer in rows if len(answer.split()) < 3], [])

    def test_measurements_have_a_date_and_a_command(self):
        for page in files("docs/measurements"):
            if page.endswith(".md"):
                with self.subTest(page):
                    text = (ROOT / page).read_text()
                    self.assertRegex(text, r"\b20\d\d-\d\d-\d\d\b", "no date")
                    self.assertRegex(text, r"```sh\n[^`]*\b(python|tcc|trun|tcc-plan|tools/\w+\.sh)\b", "no command in a code block")

    def test_no_stock_phrases(self):
        found = []
        for path in files(*PRODUCT, "docs", "README.md", "DEPENDENCIES.md", "examples"):
            if path.endswith(TEXTS) and path not in QUOTING and "shakespeare" not in path:
                for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
                    if phrase := PHRASES.search(line):
                        found.append(f"{path}:{number}: {phrase[0]}")
        self.assertEqual(found, [], "see docs/writing.md")

    def test_no_merge_is_left_half_done(self):
        found = [f"{path}: {line}" for path in files(*PRODUCT, "docs", "test", "README.md", "DEPENDENCIES.md", "examples")
                 if path.endswith(TEXTS) for line in re.findall(r"^(?:<{7}|>{7}) .*", (ROOT / path).read_text(errors="replace"), re.MULTILINE)]
        self.assertEqual(found, [])

    def test_files_say_what_they_are_for(self):
        silent = [path for path in files(*PRODUCT) if path.endswith(SOURCES)
                  and len(re.findall(r"[A-Za-z]{2,}", file_comment(path, (ROOT / path).read_text()))) < LEAST_WORDS]
        self.assertEqual(silent, [])

    def test_commands_page_names_every_option(self):
        """Every declared option is on the guide's page of commands or on the command's own page."""
        guide = "".join((ROOT / page).read_text() for page in files("docs/guide") if page.endswith(".md"))
        planning = (DOCS / "design" / "planning.md").read_text()
        missing = []
        for path in files("tools/tcc", "tools/trun", "tools/tcc-plan"):
            if path.endswith(".cpp"):
                page = guide + planning if path.startswith("tools/tcc-plan") else guide
                for declared in re.findall(r'add_(?:option|flag)\(\s*"([^"]*--[^"]*)"', (ROOT / path).read_text()):
                    missing += [f"{path}: {name}" for name in re.findall(r"--[\w-]+", declared) if not re.search(re.escape(name) + r"(?![\w-])", page)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
