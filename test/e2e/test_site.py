"""The documentation site, as tools/site.sh builds it: links, anchors, navigation, notebooks, width on a narrow screen;
and every command and snippet of the tutorials, as they are written.
"""
import os
import re
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import PROGRAM, Browser
from common import BIN, ROOT, EndToEnd

SITE_PYTHON = ROOT / ".venv-site" / "bin" / "python"
VARIABLES = {"TCC_LIBRARY": str(BIN.parent / "lib" / "libtrun.so"), "TCC_PROGRAM": str(BIN / "tcc")}
OWN = {"search", "genindex", "index"}    # pages that Sphinx adds, and the front page's second name
PHONE = 390                              # CSS pixels


def build(source, out):
    """Runs Sphinx as tools/site.sh does."""
    words = [SITE_PYTHON, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--jobs", "auto",
             "-c", ROOT / "tools/site", "-d", out.parent / "cache", source, out]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | VARIABLES
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, env=environment)


class Page(HTMLParser):
    """Anchors, links, links of the navigation, and what the page loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.navigation, self.loads, self.sidebar, self.titles = set(), [], set(), [], 0, []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.add(values.get("id"))
        if tag == "aside" and "sidebar-drawer" in values.get("class", "").split():
            self.sidebar = 1
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
            if self.sidebar:
                self.navigation.add(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loads.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(values["href"])

    def handle_endtag(self, tag):
        if tag == "aside":
            self.sidebar = 0


@unittest.skipUnless(SITE_PYTHON.exists(), "needs .venv-site: tools/setup.sh site")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="tcc-site-")
        cls.addClassCleanup(cls.holder.cleanup)
        cls.out = Path(cls.holder.name).resolve() / "site"
        done = build(ROOT, cls.out)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.pages = {path.relative_to(cls.out): Page(path) for path in sorted(cls.out.rglob("*.html"))}

    def target(self, page, link):
        """(page or file of the site, anchor), or nothing for an address elsewhere."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        place = (self.out / page.parent / unquote(parts.path)).resolve() if parts.path else self.out / page
        return place.relative_to(self.out), unquote(parts.fragment)

    def test_links_and_anchors_resolve(self):
        broken, count = [], 0
        for page, found in self.pages.items():
            for link in found.links + found.loads:
                if target := self.target(page, link):
                    place, anchor = target
                    count += 1
                    if not (self.out / place).is_file():
                        broken.append(f"{page}: {link}: no such file")
                    elif anchor and place in self.pages and anchor not in self.pages[place].anchors:
                        broken.append(f"{page}: {link}: no such anchor")
        self.assertEqual(broken, [])
        self.assertGreater(count, 5000)

    def test_nothing_is_loaded_from_elsewhere(self):
        self.assertEqual([(str(page), link) for page, found in self.pages.items() for link in found.loads
                          if not self.target(page, link) and not link.startswith("data:")], [])

    def test_the_navigation_has_every_page(self):
        listed = {self.target(Path("index.html"), link)[0] for link in self.pages[Path("index.html")].navigation}
        held = {page for page in self.pages if page.parts[0] != "source" and str(page.with_suffix("")) not in OWN}
        self.assertEqual(held - listed, {Path("README.html")})           # the front page, to which the title leads
        markdown = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
        self.assertEqual(markdown - held, set())
        for page in held:
            self.assertGreaterEqual(len(self.pages[page].navigation), len(held), page)

    def test_source_files_that_pages_link_are_pages_of_code(self):
        code = {page for page in self.pages if page.parts[0] == "source"}
        self.assertIn(Path("source/include/trun/trun.h.html"), code)
        linked = {target[0] for page, found in self.pages.items() for link in found.links
                  if (target := self.target(page, link))}
        self.assertEqual(code - linked, set())
        text = (self.out / "source/test/api/own_loop.c.html").read_text()
        self.assertIn("trun_trainer_step", text)
        self.assertIn("<title>test/api/own_loop.c", text)

    def test_a_link_whose_text_is_a_file_name_shows_the_title(self):
        text = (self.out / "docs/README.html").read_text()
        self.assertNotIn(">install.md<", text)
        self.assertRegex(text, r'href="guide/install\.html"[^>]*>(<[^>]*>)*Installing<')

    def test_notebooks_show_what_their_cells_printed(self):
        text = (self.out / "docs/tutorials/first-model.html").read_text()
        accuracy = re.search(r"accuracy ([\d.]+)", text)
        self.assertGreater(float(accuracy[1]), 0.8)
        text = (self.out / "docs/tutorials/own-loop.html").read_text()
        losses = [float(loss) for loss in re.findall(r"update \d+: loss [\d.]+, held out ([\d.]+)", text)]
        self.assertGreater(len(losses), 2)
        self.assertLess(min(losses), 2.6)
        self.assertIn("9 rows; an update takes 8", text)

    @unittest.skipUnless(PROGRAM, "needs chromium-headless-shell")
    def test_pages_fit_a_narrow_screen(self):
        """Wide tables and code scroll in their own boxes."""
        wide = 0
        with Browser(PHONE, 800) as browser:
            for page in ("index", "docs/README", "docs/guide/recipe", "docs/guide/faq", "docs/guide/shapes", "docs/guide/differences",
                         "docs/guide/ops", "docs/tutorials/own-loop", "docs/measurements/models",
                         "source/include/trun/trun.h"):
                browser.open(self.out / f"{page}.html")
                self.assertEqual(browser.errors, [], page)
                self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), PHONE, page)
                wide += browser.run("[...document.querySelectorAll('.table-wrapper, .highlight pre')]"
                                    ".filter(box => box.scrollWidth > box.clientWidth).length")
            self.assertGreater(wide, 5)
            # Messages wrap, and a first column of code leaves room for the second.
            for page, boxes in (("faq", ".highlight-text pre"), ("shapes", ".table-wrapper")):
                browser.open(self.out / f"docs/guide/{page}.html")
                self.assertGreater(browser.run(f"document.querySelectorAll('{boxes}').length"), 1)
                self.assertEqual(browser.run(f"[...document.querySelectorAll('{boxes}')].filter(box => box.scrollWidth > box.clientWidth).length"), 0)


@unittest.skipUnless(SITE_PYTHON.exists(), "needs .venv-site: tools/setup.sh site")
class Refusals(EndToEnd):
    def test_a_broken_link_and_a_page_without_a_place_in_the_index_are_refused(self):
        source = self.folder / "tree"
        for folder in ("docs/guide", "examples/char-gpt"):
            (source / folder).mkdir(parents=True)
        index = "# Index\n## Guide\n| page | answers |\n| --- | --- |\n| [install.md](guide/install.md) | How? |\n"
        pages = {"README": "# Front\n[a](docs/guide/install.md#absent)\n", "docs/README": index,
                 "docs/guide/install": "# Install\n[gone](gone.md)\n", "docs/guide/data": "# Data\n"}
        pages |= {name: "# Page\n" for name in ("docs/writing", "DEPENDENCIES", "examples/char-gpt/README")}
        for name, text in pages.items():
            (source / f"{name}.md").write_text(text)
        done = build(source, self.folder / "site")
        self.assertNotEqual(done.returncode, 0)
        for problem in ("absent", "gone.md", r"docs/guide/data\.md.*(isn't|not) included in any toctree"):
            self.assertRegex(done.stderr, problem)
        self.assertEqual(len(re.findall("WARNING", done.stderr)), 3, done.stderr)


class Tutorials(EndToEnd):
    """Each page runs in one shell, in a clone made of links. Its blocks of output are lines that the block before
    printed; a command with the comment "refused" must fail."""

    NOTEBOOKS = {"first-model", "own-loop"}                             # run as the site is built
    TORCH = {"from-trainers"}                                           # run by test/e2e/python/torch_modules.py

    def test_every_tutorial_is_run(self):
        own = {name.removeprefix("test_").replace("_", "-") for name in dir(self) if name.startswith("test_page_")}
        pages = {path.stem for path in (ROOT / "docs/tutorials").glob("*.md")}
        self.assertEqual({name.removeprefix("page-") for name in own} | self.NOTEBOOKS | self.TORCH, pages)

    def follow(self, name):
        """Runs a page. Returns all that it printed."""
        clone = self.folder / "clone"
        for link, target in (("build/bin", BIN), ("build/lib", BIN.parent / "lib"), (".venv", ROOT / ".venv"),
                             *((folder, ROOT / folder) for folder in ("examples", "include", "python"))):
            (clone / link).parent.mkdir(parents=True, exist_ok=True)
            (clone / link).symlink_to(target)
        (clone / "tools").mkdir()
        (clone / "tools/build.sh").write_text("#!/bin/sh\n")             # the build under test is there already
        (clone / "tools/build.sh").chmod(0o755)
        page = (ROOT / f"docs/{name}.md").read_text()
        script, expected, mark = ["set -e"], [], "=== block {} of the page"
        for words, language, code in re.findall(r"(?:^([^\n]*)\n\n)?^```(\w+)\n(.*?)^```$", page, re.M | re.S):
            if language == "text":
                self.assertTrue(expected, "output before any command")
                expected[-1].append(code)
                continue
            file = re.search(r"`([\w-]+\.\w+)`:$", words)
            if file:
                script.append(f"cat >{file[1]} <<'END OF FILE'\n{code}END OF FILE")
                continue
            self.assertIn(language, ("sh", "python"), code)
            script.append(f"echo '{mark.format(len(expected))}'")
            code = re.sub(r"^(.*\S) +# refused$", r"if \1; then echo not refused; exit 99; fi", code, flags=re.M)
            script.append(code if language == "sh" else f"python - <<'END OF FILE'\n{code}END OF FILE")
            expected.append([])
        environment = os.environ | VARIABLES | {"PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=clone, stdin=subprocess.DEVNULL, timeout=600,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        for number, texts in enumerate(expected):
            _, _, printed = done.stdout.partition(mark.format(number) + "\n")
            printed = {plain(line) for line in printed.partition("=== block ")[0].splitlines()}
            for line in "".join(texts).splitlines():
                self.assertIn(plain(line), printed, f"{name}, block {number}")
        return done.stdout

    def test_page_budget(self):
        printed = self.follow("tutorials/budget")
        sizes = re.search(r"small\.tplan: ([\d.]+) MiB resident \+ ([\d.]+) MiB transient", printed)
        self.assertLess(sum(map(float, sizes.groups())), 40)

    def test_page_federated(self):
        printed = self.follow("tutorials/federated")
        losses = [float(loss) for loss in re.findall(r"round \d+: ([\d.]+)", printed)]
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], 0.1 * losses[0])

    def test_questions(self):
        printed = self.follow("guide/faq")
        self.assertRegex(printed, r"column 'history', sample 7")

    def test_page_lora(self):
        printed = self.follow("tutorials/lora")
        losses = [float(value) for value in re.findall(r"eval_loss\W+([\d.]+)", printed)]
        self.assertGreater(losses[0], 3)
        self.assertLess(losses[-1], 2.8)

    def test_page_c_program(self):
        printed = self.follow("tutorials/c-program")
        pairs = re.findall(r"([+-][\d.]+), forecast ([+-][\d.]+)", printed)
        self.assertEqual(len(pairs), 8)
        for value, forecast in pairs:
            self.assertAlmostEqual(float(value), float(forecast), delta=0.25)


def plain(line):
    """A line without its numbers, which differ between machines, and with single spaces."""
    return re.sub(r"[\d.]+", "#", " ".join(line.split()))


if __name__ == "__main__":
    unittest.main()
