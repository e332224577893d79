"""Paths given for output: devices, FIFOs, links, file modes, full or closed streams."""
import os
import stat
import subprocess
import threading
import unittest

import models
from common import BIN, EndToEnd

PROBLEM = "id,lower,upper,size\na,0,2,4\nb,1,3,4\n"
GRAPH = ('{"format": 1, "nodes": [{"cost": 1, "bytes": 8}, {"cost": 1, "bytes": 8}], "edges": [[0, 1]]}')


class Outputs(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "m.onnx")
        self.problem, self.graph = self.write("p.csv", PROBLEM), self.write("g.json", GRAPH)

    def writers(self, path):
        """Every option of tcc and tcc-plan that names a file to write, given this path."""
        plan = self.folder / "plan.tplan"
        if not plan.exists():
            self.compile(self.model)
        return [("tcc", self.model, "--quiet", "-o", path), ("tcc", self.model, "--quiet", "-o", "q.tplan", "--timings", path),
                ("tcc", "report", plan, "--html", path), ("tcc-plan", "pack", self.problem, "-o", path),
                ("tcc-plan", "remat", self.graph, "--budget", "100%", "-o", path)]

    def device(self, name, minor):
        """A device node of our own, so that a command that replaces it does no harm."""
        path = self.folder / name
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            with open(path, "wb") as device:
                device.write(b"")
        except OSError as problem:
            self.skipTest(f"device nodes cannot be made or opened here: {problem}")
        return path

    def test_a_device_is_written_not_replaced(self):
        null = self.device("null", 3)
        for command in self.writers(null):
            self.succeed(*command)
            self.assertTrue(stat.S_ISCHR(null.lstat().st_mode), command)
        self.succeed("trun", "predict", "plan.tplan", "--inputs", self.save("x.safetensors", x=models.random(1, 8, 5)),
                     "--outputs", null)
        self.assertTrue(stat.S_ISCHR(null.lstat().st_mode))
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.endswith(".tmp")], [])

    def test_an_empty_value_is_wrong_usage_everywhere(self):
        """For example from an unset shell variable."""
        before = sorted(self.folder.iterdir())
        for words in (("tcc", "m.onnx", "-o", ""), ("tcc", "m.onnx", "--recipe", ""), ("tcc", ""), ("tcc", "report", ""),
                      ("tcc", "report", "m.tplan", "--html", ""), ("tcc", "inspect", ""), ("tcc-plan", "pack", "p.csv", "--capacity", 1, "-o", ""),
                      ("trun", "m.tplan", "--data", ""), ("trun", "m.tplan", "--data", "d.npz", "--out", ""), ("trun", "--resume", ""),
                      ("trun", "m.tplan", "--data", "d.npz", "--trace="), ("trun", "export", "run", "-o", ""), ("trun", "report", ""),
                      ("trun", "predict", "m.tplan", "--inputs", "i.npz", "--outputs", ""), ("trun", "eval", "m.tplan", "--data", "d", "--from", "")):
            with self.subTest(words=words):
                self.refuse(2, ["the value is empty: give one|1 required|requires"], *words)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_full_device_is_exit_1_everywhere(self):
        full = self.device("full", 7)
        for command in self.writers(full):
            result = self.refuse(1, ["full", "No space left"], *command)
            self.assertEqual(result.err.count("error"), 1, result)
            self.assertTrue(stat.S_ISCHR(full.lstat().st_mode), command)

    def test_standard_output_that_is_full_or_closed(self):
        self.compile(self.model)
        commands = [["tcc", "report", "plan.tplan"], ["tcc", "report", "plan.tplan", "--json"], ["tcc", "--help"],
                    ["tcc", "--version"], ["tcc", "ops"], ["tcc", "inspect", "m.onnx"], ["tcc-plan", "--help"],
                    ["tcc", "m.onnx", "--timings", "-"], ["tcc-plan", "pack", "p.csv"],
                    ["tcc-plan", "remat", "g.json", "--budget", "100%", "--json"]]
        for words in commands:
            for redirection in (">/dev/full", ">&-"):
                done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", BIN / words[0], *words[1:]], cwd=self.folder,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, f"{words} {redirection}: {done.stderr}")
                self.assertEqual(done.stderr.count("error: standard output"), 1, f"{words} {redirection}: {done.stderr}")

    def test_messages_that_cannot_be_written_crash_nothing(self):
        self.compile(self.model)
        expected = (self.folder / "plan.tplan").read_bytes()
        for redirection in ("2>/dev/full", "2>&-", "<&- >&- 2>&-"):
            for words, status in ((["tcc", "m.onnx", "-o", "q.tplan"], 1), (["tcc", "none.onnx"], 1), (["tcc", "--wrong"], 2)):
                done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", BIN / words[0], *words[1:]], cwd=self.folder,
                                      capture_output=True, timeout=60)
                self.assertEqual(done.returncode, status, f"{words} {redirection}")
            self.assertEqual((self.folder / "q.tplan").read_bytes(), expected, "a message ended up in the plan")

    def test_a_fifo_gets_the_bytes(self):
        self.compile(self.model)
        expected = (self.folder / "plan.tplan").read_bytes()
        fifo, got = self.folder / "fifo", []
        os.mkfifo(fifo)
        reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
        reader.start()
        self.succeed("tcc", self.model, "-o", fifo)
        reader.join(60)
        self.assertEqual(got, [expected])
        self.assertTrue(stat.S_ISFIFO(fifo.lstat().st_mode))

    def test_standard_output_by_name(self):
        self.compile(self.model)
        expected = (self.folder / "plan.tplan").read_bytes()
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            done = subprocess.run([BIN / "tcc", self.model, "-o", name], cwd=self.folder, capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, expected), name)
        with open(self.folder / "log", "ab") as log:
            log.write(b"before")
            log.flush()
            subprocess.run([BIN / "tcc", self.model, "-o", "/dev/stdout"], cwd=self.folder, stdout=log, timeout=60, check=True,
                           stderr=subprocess.DEVNULL)
        self.assertEqual((self.folder / "log").read_bytes(), b"before" + expected)

    def test_a_link_stays_and_its_file_is_written(self):
        (self.folder / "far").mkdir()
        for there in (True, False):
            target, link = self.folder / "far" / f"t{there}.tplan", self.folder / f"link{there}.tplan"
            if there:
                self.compile(self.model, plan=target)
            link.symlink_to(target.relative_to(self.folder))
            self.compile(self.model, plan=link.name)
            self.assertTrue(link.is_symlink())
            self.assertFalse(target.is_symlink())
            self.succeed("trun", "verify", target)
        loop = self.folder / "loop.tplan"
        loop.symlink_to("loop.tplan")
        self.refuse(1, ["loop.tplan: cannot write: Too many levels"], "tcc", self.model, "-o", loop)
        self.assertTrue(loop.is_symlink())

    def test_a_file_keeps_its_mode(self):
        plan = self.compile(self.model)
        for mode in (0o600, 0o640, 0o664):
            plan.chmod(mode)
            self.compile(self.model)
            self.assertEqual(stat.S_IMODE(plan.stat().st_mode), mode)
        if os.geteuid() == 0:
            os.chown(plan, 12345, 54321)
            self.compile(self.model)
            self.assertEqual((plan.stat().st_uid, plan.stat().st_gid), (12345, 54321))
        else:
            plan.chmod(0o444)
            self.refuse(1, ["plan.tplan: cannot write: Permission denied"], "tcc", self.model, "-o", plan)

    def test_only_left_over_temporary_files_are_removed(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = self.folder / f".plan.tplan.tcc-{gone.pid}-7.tmp"
        foreign = [self.folder / name for name in
                   (f".plan.tplan.tcc-{os.getpid()}-7.tmp", ".plan.tplan.tmp", ".plan.tplan.tcc-old.tmp", "plan.tplan.tmp-a1b2c3",
                    f".other.tplan.tcc-{gone.pid}-7.tmp", f".plan.tplan.tcc-{gone.pid}-7.tmp.bak")]
        for path in (left, *foreign):
            path.write_text("bytes")
            os.utime(path, (0, 0))
        named = self.folder / f".plan.tplan.tcc-{gone.pid}-8.tmp"
        named.symlink_to(foreign[1])
        self.compile(self.model)
        self.assertFalse(left.exists())
        for path in (*foreign, named):
            self.assertTrue(path.exists() and path.read_text() == "bytes", path)

    def test_dumped_phases_that_cannot_be_written(self):
        self.write("file", "")
        self.refuse(1, ["file/phases: cannot create the folder"], "tcc", self.model, "--dump-phases-to", "file/phases")
        (self.folder / "phases" / "1-import.mlir").mkdir(parents=True)
        self.refuse(1, ["1-import.mlir: cannot write: it is a folder"], "tcc", self.model, "--dump-phases-to", "phases")

    def test_a_fifo_as_input_is_refused_at_once(self):
        self.compile(self.model)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for command in (("tcc", "report", fifo), ("tcc", "report", "plan.tplan", "--diff", fifo), ("tcc-plan", "pack", fifo),
                        ("tcc-plan", "remat", fifo, "--frontier"), ("trun", "verify", fifo)):
            self.refuse(1, ["fifo.*no(t a)? regular file"], *command)
        # A pipe that the caller hands down has a writer.
        done = subprocess.run([BIN / "tcc-plan", "pack", "/dev/stdin"], input=PROBLEM, text=True, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, "id,lower,upper,size,offset"), done.stderr)


if __name__ == "__main__":
    unittest.main()
