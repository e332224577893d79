"""tcc-plan, on public instances; the answers are judged by planning/check_plan.py, which shares no code with the planner."""
import subprocess
import sys
import unittest
from pathlib import Path

from common import EndToEnd

INSTANCES = Path(__file__).resolve().parent / "planning"
CAPACITY = 1048576


class Pack(EndToEnd):
    def judged(self, problem, answer):
        """The size of the arena that an answer needs."""
        run = subprocess.run([sys.executable, INSTANCES / "check_plan.py", "pack", problem, answer], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return int(run.stdout.split()[1])

    def test_public_instances_fit_their_capacity(self):
        """minimalloc's challenging set: the buffers fill the arena to the last byte at some time, in all but one."""
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
        # Seven buffers of which no moment holds more than 4 bytes, and which do not pack into 4.
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
                              (head + "a,0,1,4\na,0,1,4\n", "p.csv:3: the id a is there twice")]:
            with self.subTest(message):
                self.refuse(1, [message], "tcc-plan", "pack", self.write("p.csv", text.encode()))
        self.refuse(1, ["cannot be read"], "tcc-plan", "pack", "nothing.csv")
        self.refuse(2, ["a command is missing"], "tcc-plan")


if __name__ == "__main__":
    unittest.main()
