"""The report's page: its content, names that must not break it, and what it shows and does in a browser."""
import json
import re
import unittest
from html.parser import HTMLParser

import models
from browser import PROGRAM, Browser
from common import EndToEnd, case
from onnx import helper

HOSTILE = ["</script><script>window.broken = 1</script>", "<img src=x onerror=alert(1)>", "\"'`&lt;&amp;<!--", "-->]]>${1+1}\\u003c",
           "層/Ω naïve\u202eevil\u2028line\nnew\ttab", "x" * 10_000]


def json_of(page):
    return re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)[1]


def data_of(page):
    return json.loads(json_of(page))


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


class Pages(EndToEnd):
    def page(self, plan, name="report.html"):
        self.succeed("tcc", "report", plan, "--html", name)
        return (self.folder / name).read_text()

    compiled = {}                        # case → its plan: compiled once for all tests

    def zoo(self, name="nano-gpt"):
        if name not in self.compiled:
            model, recipe, _, _ = case(name)
            self.compiled[name] = self.compile(model, "--recipe", recipe).read_bytes()
        return self.write("plan.tplan", self.compiled[name])

    def hostile(self):
        """A chain of layers whose nodes, parameters and target have names made to break a page."""
        nodes, weights, value = [], {}, "x"
        for index, name in enumerate(HOSTILE):
            result = f"h{index}" if index + 1 < len(HOSTILE) else "prediction"
            weights[name + " weight"] = models.random(index, 5, 5)
            nodes += [helper.make_node("MatMul", [value, name + " weight"], [f"m{index}"], name), helper.make_node("Tanh", [f"m{index}"], [result], name + " tanh")]
            value = result
        models.save(self.folder / "hostile.onnx", nodes, {"x": [4, 5]}, {"prediction": [4, 5]}, weights)
        return self.compile("hostile.onnx", "--recipe", self.write("r.toml", models.SQUARES + models.SGD), plan="hostile.tplan")


class Structure(Pages):
    def test_it_holds_what_the_report_says(self):
        plan = self.zoo()
        data, report = data_of(self.page(plan)), self.report(plan)
        for key in ("model", "target", "entries", "recompute", "zero_fill", "parameters", "kernels", "flops_per_step", "notes"):
            self.assertEqual(data["report"][key], report[key], key)
        programs = {name: program for entry in report["memory"]["entries"].values() for name, program in entry["programs"].items()}
        self.assertEqual([p["name"] for p in data["programs"]], list(programs))
        text = data["strings"]
        for program in data["programs"]:
            told = programs[program["name"]]
            self.assertEqual(program["live"], [row["live_bytes"] for row in told["timeline"]])
            self.assertEqual([text[i] for i in program["node"]], [row["node"] for row in told["timeline"]])
            columns = program["buffers"]
            self.assertEqual([(text[n], text[d], text[w], b, o, f, l) for n, d, w, b, o, f, l in
                              zip(*(columns[key] for key in ("name", "node", "why", "bytes", "offset", "first", "last")))],
                             [tuple(row[key] for key in ("name", "node", "why_alive", "bytes", "offset", "first", "last")) for row in told["buffers"]])

    def test_it_needs_nothing_else(self):
        page = self.page(self.zoo())
        shell = re.sub(r'(<script type="application/json" id="report">).*?(</script>)', r"\1\2", page, flags=re.DOTALL)
        for sign in ("http:", "https:", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "WebSocket", "innerHTML", "eval("):
            self.assertNotIn(sign, shell)
        for tag, attributes in Tags(page).tags:
            self.assertNotIn("src", attributes, tag)
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "base"))
        self.assertIn("default-src 'none'", page)

    def test_names_of_any_kind_stay_text(self):
        page, plain = self.page(self.hostile()), self.page(self.zoo(), "plain.html")
        self.assertEqual(Tags(page).tags, Tags(plain).tags)
        data = data_of(page)
        for name in HOSTILE:
            # The import turns a node's name into one line of visible text; a weight's name is a key and stays unchanged.
            shown = re.sub("[\x00-\x1f\u2028-\u202e]", lambda c: f"\\u{ord(c[0]):04x}", name)
            self.assertIn(shown, data["strings"])
        self.assertNotIn("<", re.search(r'id="report">(.*?)</script>', page, re.DOTALL)[1])

    def test_the_same_plan_gives_the_same_bytes(self):
        plan = self.zoo()
        (self.folder / "elsewhere").mkdir()
        self.assertEqual(self.page(plan), self.page(plan, "elsewhere/other.html"))

    def test_wrong_usage(self):
        plan = self.zoo("mlp")
        self.refuse(1, ["no/such/folder"], "tcc", "report", plan, "--html", "no/such/folder/r.html")
        self.refuse(2, ["html"], "tcc", "report", plan, "--html", "r.html", "--json")
        self.refuse(2, ["--html shows one plan"], "tcc", "report", plan, "--html", "r.html", "--diff", plan)
        self.refuse(2, ["holds 1 plan"], "tcc", "report", plan, "--variant", "1")


@unittest.skipUnless(PROGRAM, "no Chromium on the PATH: tools/setup.sh installs one")
class InABrowser(Pages):
    def show(self, plan, width=1280, height=900):
        self.page(plan)
        self.told = self.report(plan)
        browser = Browser(width, height)
        browser.__enter__()
        self.addCleanup(browser.__exit__)
        browser.open(self.folder / "report.html")
        self.assertEqual(browser.errors, [])
        return browser

    def program(self, name="step"):
        return next(e["programs"][name] for e in self.told["memory"]["entries"].values() if name in e["programs"])

    def place(self, browser, buffer, part=0.5):
        """Where the middle of a buffer on the map is in the window."""
        return browser.run(f"""(() => {{
            map.canvas.scrollIntoView({{block: "center"}});
            const box = map.canvas.getBoundingClientRect(), end = Math.min({buffer["last"]}, view.program.count) + 1;
            return [box.x + map.x({buffer["first"]} + (end - {buffer["first"]}) * {part}), box.y + map.y({buffer["offset"]} + {buffer["bytes"]} / 2)];
        }})()""")

    def range(self, browser):
        return browser.run("[view.from, view.to, view.low, view.high]")

    def test_pointing_at_a_buffer_names_it(self):
        browser = self.show(self.zoo())
        buffers = [b for b in self.program()["buffers"] if b["arena"] == "transient" and b["last"] > b["first"]]
        for buffer in sorted(buffers, key=lambda b: -b["bytes"] * (b["last"] - b["first"]))[:8]:
            browser.move(*self.place(browser, buffer))
            tip = browser.run('document.getElementById("tip").hidden ? "" : document.getElementById("tip").innerText')
            for word in (buffer["name"], buffer["why_alive"], f"{buffer['offset']:,}", f"#{buffer['first']}" if buffer["first"] >= 0 else "entry"):
                self.assertIn(word, tip)
        browser.move(5, 5)
        self.assertTrue(browser.run('document.getElementById("tip").hidden'))

    def test_a_click_chooses_a_buffer_and_lists_its_readers(self):
        browser = self.show(self.zoo())
        buffer = max((b for b in self.program()["buffers"] if b["purpose"] == "saved"), key=lambda b: b["bytes"] * (b["last"] - b["first"]))
        browser.click(*self.place(browser, buffer))
        details = browser.run('document.querySelector(".inspector").innerText')
        for word in (buffer["name"], "saved for", "made by", "read by", f"#{buffer['first']}", f"#{buffer['last']}"):
            self.assertIn(word, details)
        self.assertIn(buffer["name"], browser.run('document.querySelector("tr.chosen").innerText'))

    def test_wheel_drag_and_keys_change_the_range(self):
        browser = self.show(self.zoo())
        x, y = browser.run('(() => { map.canvas.scrollIntoView({block: "center"}); const b = map.canvas.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()')
        whole = self.range(browser)
        self.assertEqual(whole[:2], [-1, len(self.program()["timeline"]) + 1])
        browser.wheel(x, y, -400)
        near = self.range(browser)
        self.assertLess(near[1] - near[0], 0.7 * (whole[1] - whole[0]))
        self.assertEqual(near[2:], whole[2:])
        browser.wheel(x, y, -400, shift=True)
        nearer = self.range(browser)
        self.assertEqual(nearer[:2], near[:2])
        self.assertLess(nearer[3] - nearer[2], 0.7 * (whole[3] - whole[2]))
        browser.drag(x, y, x - 80, y + 40)
        moved = self.range(browser)
        self.assertGreater(moved[0], nearer[0])
        self.assertGreater(moved[2], nearer[2])
        self.assertAlmostEqual(moved[1] - moved[0], nearer[1] - nearer[0], places=6)
        browser.key("0")
        self.assertEqual(self.range(browser), whole)
        # Zoomed out, the wheel scrolls the page.
        browser.run("scrollTo(0, 0)")
        browser.wheel(x, y, 300)
        self.assertEqual(self.range(browser), whole)

    def test_keys_walk_over_instructions_and_buffers(self):
        browser = self.show(self.zoo())
        browser.run("map.canvas.focus()")
        peak = browser.run("view.cursor")
        live = [row["live_bytes"] for row in self.program()["timeline"]]
        self.assertEqual(peak, live.index(max(live)))
        browser.key("ArrowRight")
        self.assertEqual(browser.run("view.cursor"), peak + 1)
        browser.key("p")
        browser.key("ArrowUp")
        chosen = browser.run("view.selected.name")
        lowest = min((b for b in self.program()["buffers"] if b["arena"] == "transient" and b["first"] <= peak <= b["last"]), key=lambda b: b["offset"])
        self.assertEqual(chosen, lowest["name"])
        self.assertIn(chosen, browser.run('document.querySelector(".inspector").innerText'))
        browser.key("z")
        self.assertLess(*map(lambda r: r[3] - r[2], (self.range(browser), [0, 0, 0, self.program()["arena_bytes"]])))
        browser.key("Escape")
        self.assertIsNone(browser.run("view.selected"))

    def test_tables_sort_and_filter(self):
        browser = self.show(self.zoo())
        kernels = self.told["kernels"]
        column = '[...document.querySelectorAll("#kernels tbody tr")].map(row => row.cells[1].textContent)'
        header = '[...document.querySelectorAll("#kernels th button")].find(b => b.textContent.startsWith("calls"))'
        for order in (-1, 1):
            browser.click_on(header)
            shown = [int(text.replace(",", "")) for text in browser.run(column)]
            self.assertEqual(shown, sorted((k["count"] for k in kernels), key=lambda c: order * c)[:len(shown)])
        node = kernels[0]["nodes"][0]
        browser.click_on('document.querySelector("#kernels input")')
        browser.write(node)
        self.assertEqual(browser.run('document.querySelectorAll("#kernels tbody tr").length'), min(25, sum(any(node.lower() in n.lower() for n in [", ".join(k["nodes"]), k["name"]]) for k in kernels)))

    def test_another_program_can_be_shown(self):
        browser = self.show(self.zoo())
        browser.click_on('document.querySelector("input[value=evaluate]")')
        evaluate = self.program("evaluate")
        self.assertEqual(browser.run("[view.program.name, view.program.count, view.program.arena]"), ["evaluate", len(evaluate["timeline"]), evaluate["arena_bytes"]])
        buffer = max((b for b in evaluate["buffers"] if b["arena"] == "transient"), key=lambda b: b["bytes"] * (b["last"] - b["first"]))
        browser.move(*self.place(browser, buffer))
        self.assertIn(buffer["name"], browser.run('document.getElementById("tip").innerText'))

    def test_the_timeline_adds_up(self):
        """The bytes drawn for all kinds add up to the live bytes."""
        browser = self.show(self.zoo("in-graph-loss"))
        for name, live in browser.run('programs.map(p => [p.name, p.live.map((bytes, step) => bytes - memory.resident_bytes - STACK.reduce((sum, kind) => sum + p.stack[kind][step], 0))])'):
            self.assertEqual(set(live), {0}, name)

    def test_thousands_of_buffers_are_no_thousands_of_elements(self):
        """The page of a plan that is 40 times as deep: the same buffers repeat, later and at higher addresses."""
        plan = self.zoo()
        page = self.page(plan)
        data, times = data_of(page), 40
        for program in data["programs"]:
            count, arena, buffers = len(program["live"]), program["arena_bytes"], program["buffers"]
            width = len(buffers["bytes"])
            for key in ("live", "kernel", "node", "nodes", "flops", "bytes", "cost"):
                program[key] = program[key] * times
            program["phase"] *= times
            for key in ("reads", "writes"):
                program[key] = [[i + k * width for i in ids] for k in range(times) for ids in program[key]]
            for key, step in (("first", count), ("last", count), ("offset", arena)):
                buffers[key] = [value + k * step for k in range(times) for value in buffers[key]]
            for key in ("name", "node", "type", "why", "purpose", "bytes"):
                buffers[key] = buffers[key] * times
            program["arena_bytes"] *= times
        path = self.write("deep.html", page.replace(json_of(page), json.dumps(data).replace("<", "\\u003c")))
        browser = Browser().__enter__()
        self.addCleanup(browser.__exit__)
        browser.open(path)
        self.assertEqual(browser.errors, [])
        self.assertGreater(browser.run("view.program.placed.length"), 5000)
        self.assertLess(browser.run('document.querySelectorAll("*").length'), 4000)
        # The page finds the last buffer, in the corner of the map, by its position.
        last = browser.run("""(() => { const all = view.program.placed, b = all.filter(b => b.first > view.program.count * 0.98)
            .sort((a, b) => b.bytes * (b.last - b.first) - a.bytes * (a.last - a.first))[0];
            return {name: b.name, first: b.first, last: b.last, offset: b.offset, bytes: b.bytes}; })()""")
        browser.run(f"zoomTo(view.program.placed.find(b => b.offset === {last['offset']} && b.first === {last['first']}))")
        browser.frames()
        browser.move(*self.place(browser, last))
        tip = browser.run('document.getElementById("tip").innerText')
        self.assertIn(last["name"], tip)
        self.assertIn(f"{last['offset']:,}", tip)

    def test_it_fits_its_window_in_light_and_dark(self):
        browser = self.show(self.zoo("unused-params"))
        for width in (1280, 800, 400):
            browser.resize(width, 900)
            browser.frames()
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
        background = "getComputedStyle(document.body).backgroundColor"
        browser.scheme("light")
        light = browser.run(background)
        browser.scheme("dark")
        dark = browser.run(background)
        self.assertNotEqual(light, dark)
        browser.click_on('document.getElementById("theme")')
        self.assertEqual(browser.run(background), light)

    def test_paper_gets_every_row(self):
        browser = self.show(self.zoo())
        rows = 'document.querySelectorAll("#memory tbody tr").length'
        live = browser.run("view.program.liveAt(view.cursor).length")
        self.assertLess(browser.run(rows), live)
        browser.run('dispatchEvent(new Event("beforeprint"))')
        self.assertEqual(browser.run(rows), live)
        browser.run('dispatchEvent(new Event("afterprint"))')
        self.assertLess(browser.run(rows), live)
        self.assertTrue(browser.pdf().startswith(b"%PDF"))

    def test_names_of_any_kind_do_nothing(self):
        browser = self.show(self.hostile(), width=800)
        self.assertEqual((browser.dialogs, browser.run("window.broken"), browser.run('document.querySelectorAll("main img, main b b, main script").length')), ([], None, 0))
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 800)
        for name in HOSTILE[:4]:
            self.assertIn(name, browser.run("document.body.textContent"))
        self.assertEqual([r for r in browser.requests if not r.startswith("file:")], [])
        self.assertEqual(len(browser.requests), 1, browser.requests)


if __name__ == "__main__":
    unittest.main(verbosity=2)
