"""tcc-plan on public instances; planning/check_plan.py, which shares no code with the planner, checks the answers."""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

from common import EndToEnd

INSTANCES = Path(__file__).resolve().parent / "planning"
CAPACITY = 1048576


class Pack(EndToEnd):
    def judged(self, problem, answer):
        """The size of the arena that an answer needs, by check_plan.py."""
        run = subprocess.run([sys.executable, INSTANCES / "check_plan.py", "pack", problem, answer], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return int(run.stdout.split()[1])

    def test_public_instances_fit_their_capacity(self):
        """minimalloc's challenging set: in all instances but one the buffers at some time fill the arena to the last byte."""
        for problem in sorted(INSTANCES.glob("*.csv")):
            with self.subTest(problem.name):
                self.succeed("tcc-plan", "pack", problem, "--capacity", CAPACITY, "-o", "answer.csv")
                self.assertLessEqual(self.judged(problem, self.folder / "answer.csv"), CAPACITY)

    def test_without_a_capacity_the_arena_is_as_small_as_what_is_live(self):
        self.succeed("tcc-plan", "pack", INSTANCES / "C.1048576.csv", "-o", "answer.csv")
        self.assertEqual(self.judged(INSTANCES / "C.1048576.csv", self.folder / "answer.csv"), 1039360)

    def test_the_answer_keeps_the_table(self):
        problem = self.write("p.csv", b"note,size,id,upper,lower\nx,10,a,5,0\ny,20,b,3,2\n")
        result = self.succeed("tcc-plan", "pack", problem)
        lines = result.out.splitlines()
        self.assertEqual(lines[0], "note,size,id,upper,lower,offset")
        self.assertTrue(lines[1].startswith("x,10,a,5,0,") and lines[2].startswith("y,20,b,3,2,"), result.out)
        self.assertEqual({line.rsplit(",", 1)[1] for line in lines[1:]} & {"0"}, {"0"})

    def test_what_does_not_fit_is_refused(self):
        self.refuse(3, ["does not fit into 1048575 bytes", "1048576 are live"], "tcc-plan", "pack", INSTANCES / "A.1048576.csv",
                    "--capacity", CAPACITY - 1)
        # Seven buffers: at no moment are more than 4 bytes live, and yet they do not pack into 4.
        rows = [(2, 1, 2), (2, 0, 4), (1, 2, 6), (2, 5, 8), (1, 2, 5), (1, 4, 7), (2, 7, 8)]
        text = "id,size,lower,upper\n" + "".join(f"b{i},{s},{l},{u}\n" for i, (s, l, u) in enumerate(rows))
        problem = self.write("hard.csv", text.encode())
        self.refuse(3, ["does not fit into 4 bytes, as the search proved"], "tcc-plan", "pack", problem, "--capacity", 4)
        self.succeed("tcc-plan", "pack", problem, "--capacity", 5)

    def test_bad_problems_are_located(self):
        head = "id,lower,upper,size\n"
        for text, message in [("", "is empty"), ("id,lower,upper\n", "p.csv:1: the header has no column `size`"),
                              (head + "a,0,1\n", "p.csv:2: 3 cells, but the header has 4"),
                              (head + "a,0,x,4\n", "p.csv:2: lower and upper must be integers"),
                              (head + "a,3,3,4\n", "p.csv:2: a lives from 3 to 3"),
                              (head + "a,0,1,-4\n", "p.csv:2: size must be"),
                              (head + "a,0,1,4\na,0,1,4\n", "p.csv:3: the id a occurs twice")]:
            with self.subTest(message):
                self.refuse(1, [message], "tcc-plan", "pack", self.write("p.csv", text.encode()))
        self.refuse(1, ["nothing.csv: cannot open"], "tcc-plan", "pack", "nothing.csv")
        self.refuse(2, ["a command is missing"], "tcc-plan")


class Remat(EndToEnd):
    """Checkmate's and Moccasin's graphs; the limit on work keeps the tests quick, and so the gaps are not small."""

    def judged(self, graph, answer):
        run = subprocess.run([sys.executable, INSTANCES / "check_plan.py", "remat", graph, answer], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def solve(self, name, budget, *options, work=100_000_000):
        graph = INSTANCES / f"{name}.json"
        result = self.succeed("tcc-plan", "remat", graph, "--budget", budget, "--json", "--work", work, *options)
        answer = json.loads(result.out)
        self.judged(graph, self.write("answer.json", result.out.encode()))
        self.assertLessEqual(answer["lower_bound_cost"], answer["lower_bound_cost_given_order"])
        return answer

    def given(self, name):
        """Cost of executing each node once."""
        return sum(node["cost"] for node in json.loads((INSTANCES / f"{name}.json").read_text())["nodes"])

    def test_budgets_of_public_instances(self):
        for name, budget, extra in [("resnet50", "80%", 0.004), ("resnet50", "50%", 0.022), ("resnet50", "30%", 0.05),
                                    ("vgg16", "90%", 0.02), ("random100", "80%", 0.03), ("random500", "80%", 0.05)]:
            with self.subTest(f"{name} at {budget}"):
                answer = self.solve(name, budget)
                self.assertLessEqual(answer["cost"], self.given(name) * (1 + extra))

    def test_the_given_order_can_be_kept(self):
        answer = self.solve("random100", "80%", "--keep-order")
        first = list(dict.fromkeys(answer["schedule"]))
        self.assertEqual(first, sorted(first))
        self.assertGreater(answer["cost"], self.given("random100"))
        self.assertGreaterEqual(answer["cost"], answer["lower_bound_cost_given_order"])

    def test_the_given_order_can_be_kept_where_nodes_have_to_run_again_and_again(self):
        answer = self.solve("random100", "57%", "--keep-order", work=200_000_000)
        first = list(dict.fromkeys(answer["schedule"]))
        self.assertEqual(first, sorted(first))
        # A budget that no schedule in any order meets is not met in the given order; the message says which of the two it proved.
        self.refuse(3, ["no schedule in the given order within", "as a bound of the peak proves"], "tcc-plan", "remat",
                    INSTANCES / "random100.json", "--budget", "50%", "--keep-order", "--work", 10_000_000)

    def test_answers_are_the_same_each_time_and_go_to_a_file(self):
        first = self.solve("vgg16", "90%")
        graph = INSTANCES / "vgg16.json"
        self.succeed("tcc-plan", "remat", graph, "--budget", first["budget_bytes"], "--work", 100_000_000, "-o", "answer.json")
        second = json.loads((self.folder / "answer.json").read_text())
        for key in ("schedule", "cost", "peak_bytes", "lower_bound_cost", "lower_bound_cost_given_order"):
            self.assertEqual(first[key], second[key])

    def test_less_than_one_step_is_refused_with_the_least_budget(self):
        graph = INSTANCES / "vgg16.json"
        result = self.refuse(3, ["as a bound of the peak proves", "the least budget that can be met is 13153337344 bytes"],
                             "tcc-plan", "remat", graph, "--budget", "80%", "--work", 10_000_000)
        self.assertEqual(result.out, "")
        self.solve("vgg16", "13153337344B")

    def measured(self, name, answer, link):
        """Cost and peak of an answer with fetches, computed as docs/design/planning.md defines them."""
        graph = json.loads((INSTANCES / f"{name}.json").read_text())
        nodes, schedule, fetched = graph["nodes"], answer["schedule"], set(answer["fetched"])
        inputs = [[] for _ in nodes]
        for source, target in graph["edges"]:
            inputs[target].append(source)
        self.assertEqual(set(schedule), set(range(len(nodes))))
        made, last, cost, stored = {}, list(range(len(schedule))), 0, set()
        for step, node in enumerate(schedule):
            if step in fetched:
                self.assertIn(node, made)
                cost += -(-nodes[node]["bytes"] // link) * (1 if node in stored else 2)
                stored.add(node)
            else:
                cost += nodes[node]["cost"]
                for source in inputs[node]:
                    last[made[source]] = step
            made[node] = step
        live = [0] * len(schedule)
        for step, node in enumerate(schedule):
            for alive in range(step, last[step] + 1):
                live[alive] += nodes[node]["bytes"]
        return cost, max(live)

    def test_a_link_to_the_host_is_an_alternative(self):
        without, link = self.solve("resnet50", "50%"), 10_000_000
        graph = INSTANCES / "resnet50.json"
        run = self.succeed("tcc-plan", "remat", graph, "--budget", "50%", "--json", "--work", 100_000_000, "--link", link)
        answer = json.loads(run.out)
        self.assertTrue(answer["fetched"])
        self.assertEqual(self.measured("resnet50", answer, link), (answer["cost"], answer["peak_bytes"]))
        self.assertLessEqual(answer["peak_bytes"], answer["budget_bytes"])
        self.assertLess(answer["cost"], without["cost"])
        self.assertGreaterEqual(answer["cost"], answer["lower_bound_cost_given_order"])
        # A budget that no recomputation meets may be met by copies to the host.
        self.refuse(3, ["the least budget"], "tcc-plan", "remat", INSTANCES / "random100.json", "--budget", "50%", "--work", 10_000_000)
        self.succeed("tcc-plan", "remat", INSTANCES / "random100.json", "--budget", "50%", "--work", 10_000_000, "--link", 100)
        self.refuse(2, ["--link"], "tcc-plan", "remat", graph, "--budget", "50%", "--link", 0)

    def test_a_frontier_is_monotone(self):
        graph = INSTANCES / "vgg16.json"
        points = json.loads(self.succeed("tcc-plan", "remat", graph, "--frontier", "--json", "--work", 20_000_000).out)
        self.assertGreater(len(points), 2)
        self.assertEqual(points[0]["cost"], self.given("vgg16"))
        for larger, smaller in zip(points, points[1:]):
            self.assertGreater(larger["peak_bytes"], smaller["peak_bytes"])
            self.assertLess(larger["cost"], smaller["cost"])
            self.assertLessEqual(larger["lower_bound_cost_given_order"], smaller["lower_bound_cost_given_order"])
        for point in points:
            self.judged(graph, self.write("point.json", json.dumps(point).encode()))
        table = self.succeed("tcc-plan", "remat", graph, "--frontier", "--work", 20_000_000).out
        self.assertIn("ResNet" if "resnet" in graph.name else "VGG16", table)

    def test_segments_cost_more(self):
        ours = self.solve("resnet50", "50%")
        for baseline in ("sqrt-n", "greedy"):
            self.assertGreater(self.solve("resnet50", "50%", "--baseline", baseline)["cost"], ours["cost"])

    def test_bad_graphs_are_located(self):
        node = {"name": "a", "cost": 1, "bytes": 2}
        for graph, message in [("{", "is not JSON"), ({"format": 1}, "needs the lists `nodes` and `edges`"),
                               ({"format": 2, "nodes": [], "edges": []}, "`format` is 2"),
                               ({"format": 1, "nodes": [node, {"name": "b", "cost": -1, "bytes": 0}], "edges": []}, "node 1 (b): `cost`"),
                               ({"format": 1, "nodes": [{"name": "c", "cost": 1, "bytes": 1 << 60}], "edges": []}, "node 0 (c): costs or"),
                               ({"format": 1, "nodes": [node, node], "edges": [[1, 0]]}, "edge 0 [1,0]"),
                               ({"format": 1, "nodes": [node, node], "edges": [[0, 1], [0, 7]]}, "edge 1 [0,7]: there are 2 nodes"),
                               ({"format": 1, "nodes": [node, node], "edges": [[0, 1], [0, 1]]}, "the edge [0, 1] occurs twice"),
                               ({"format": 1, "nodes": [node], "edges": [["x", 0]]}, "edge 0: must be")]:
            with self.subTest(message):
                text = graph if isinstance(graph, str) else json.dumps(graph)
                self.refuse(1, [re.escape(message)], "tcc-plan", "remat", self.write("g.json", text.encode()), "--budget", 10)
        self.refuse(2, ["--budget or --frontier is missing"], "tcc-plan", "remat", INSTANCES / "vgg16.json")
        self.refuse(2, ["--budget much: expected a size"], "tcc-plan", "remat", INSTANCES / "vgg16.json", "--budget", "much")


if __name__ == "__main__":
    unittest.main()
