"""Machine code beside PTX in plans for cards: tcc makes it if ptxas is present, trun loads it if the driver accepts it:
`test_cubins.py STANDIN`."""
import json
import os
import unittest
from pathlib import Path

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
from common import EndToEnd, metrics
from test_cuda import find_ptxas

PTXAS = Path(find_ptxas() or "ptxas")


class Cubins(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "m.onnx")
        self.recipe = self.write("r.toml", models.SQUARES + models.SGD)
        self.bare = {"PATH": "/usr/bin:/bin", "CUDA_HOME": "/nowhere", "VIRTUAL_ENV": "", "TCC_CACHE_DIR": ""}
        self.with_ptxas = self.bare | {"PATH": f"{PTXAS.parent}:/usr/bin:/bin"}

    def compiled(self, name, *words, env, targets=("sm_90",)):
        """(bytes of the plan, what tcc said, machine code in the report)."""
        made = self.succeed("tcc", self.model, "--recipe", self.recipe, "-o", name, *[word for one in targets for word in ("--target", f"cuda:{one}")],
                            *words, env=env)
        return (self.folder / name).read_bytes(), made.err

    def code_of(self, name):
        return json.loads(self.succeed("tcc", "report", name, "--json").out)["card"]["machine_code"]

    def test_where_ptxas_is_present(self):
        plain, said = self.compiled("plain.tplan", env=self.bare)
        self.assertIn("no machine code for sm_90: the card's driver compiles the kernels when it first loads the plan", said)
        self.assertEqual(self.code_of("plain.tplan"), [])
        self.assertIn("PTX alone", self.succeed("tcc", "report", "plain.tplan").out)
        one, said = self.compiled("one.tplan", env=self.with_ptxas)
        self.assertRegex(said, r"machine code for sm_90 by ptxas \d+\.\d+\.\d+\n")
        [code] = self.code_of("one.tplan")
        self.assertEqual(code["architecture"], "sm_90")
        self.assertIn(code["assembler"], said)
        self.assertIn(f"machine code for sm_90 by {code['assembler']}", self.succeed("tcc", "report", "one.tplan").out)
        self.assertEqual(one.count(b"\x7fELF"), 1)
        self.assertEqual(self.compiled("two.tplan", env=self.with_ptxas)[0], one, "the same input gives the same plan")
        self.assertNotIn(b"\x7fELF", plain)
        none, said = self.compiled("none.tplan", "--set", "compiler.cubins=none", env=self.with_ptxas)
        self.assertIn("no machine code", said)
        self.assertNotIn(b"\x7fELF", none)
        both, said = self.compiled("both.tplan", env=self.with_ptxas, targets=("sm_80", "sm_90"))
        self.assertRegex(said, "machine code for sm_80 by .*, machine code for sm_90 by ")
        self.assertEqual(both.count(b"\x7fELF"), 2)
        self.assertEqual(self.compiled("cpu.tplan", env=self.with_ptxas, targets=())[1].count("machine code"), 0)

    def test_the_cache_knows_the_version(self):
        """Another ptxas makes another plan; tcc takes the first that it finds; if that one fails, a message names a way out."""
        cached = self.with_ptxas | {"TCC_CACHE": "all", "TCC_CACHE_DIR": str(self.folder / "cache")}
        one, _ = self.compiled("one.tplan", env=cached)
        again, said = self.compiled("again.tplan", env=cached)
        self.assertIn("(from the cache)", said)
        self.assertEqual(one, again)
        (self.folder / "home/bin").mkdir(parents=True)
        fake = self.write("home/bin/ptxas", "#!/bin/sh\n[ $1 = --version ] && echo 'Cuda compilation tools, release 99.1, V99.1.2' && exit\n"
                                            "[ -e broken ] && echo 'ptxas fatal: no' && exit 1\nprintf '\\177ELF fake' > $4\n")
        fake.chmod(0o755)
        home = self.bare | {"CUDA_HOME": str(self.folder / "home"), "TCC_CACHE_DIR": cached["TCC_CACHE_DIR"]}
        other, said = self.compiled("other.tplan", env=home)
        self.assertIn("machine code for sm_90 by ptxas 99.1.2", said)
        self.assertNotIn("(from the cache)", said)
        self.assertIn(b"\177ELF fake", other)
        self.assertIn("by ptxas 99", self.compiled("known.tplan", env=home)[1])
        self.assertRegex(self.compiled("first.tplan", env=home | {"PATH": self.with_ptxas["PATH"]})[1], r"by ptxas \d\d\.")
        self.write("broken", "")
        said = self.refuse(1, [r"ptxas \(ptxas 99.1.2\) does not assemble the kernels for sm_90: ptxas fatal: no", "compiler.cubins=none"],
                           "tcc", self.model, "--recipe", self.recipe, "--target", "cuda:sm_90", env=home | {"TCC_CACHE_DIR": ""})
        self.assertEqual(said.err.count("error:"), 1)

    def test_what_trun_loads(self):
        """trun first tries machine code of the card's own architecture, then PTX if the driver refuses that; both give the same
        numbers."""
        self.compiled("plain.tplan", env=self.bare)
        self.compiled("code.tplan", env=self.with_ptxas)
        data = self.save("d.safetensors", **models.mlp_data(24))
        losses = []
        for plan, device, wanted in [("plain", "sm_90", ["PTX"]), ("code", "sm_90", ["machine code", "PTX"]), ("code", "sm_100", ["PTX"])]:
            loads = self.folder / f"{plan}-{device}"
            run = self.train(f"{plan}.tplan", data, "--device", "cuda", "--no-release", out=f"run-{plan}-{device}",
                             env=stand_in(mode="checked", device=device, modules=loads))
            self.assertEqual(loads.read_text().splitlines(), wanted)
            losses.append([line["loss"] for line in metrics(run)[0]])
        self.assertTrue(losses[0] == losses[1] == losses[2])
        # trun notices altered machine code before it loads anything.
        damaged = bytearray((self.folder / "code.tplan").read_bytes())
        damaged[damaged.index(b"\x7fELF") + 64] ^= 1
        self.write("damaged.tplan", bytes(damaged))
        self.refuse(1, ["damaged.tplan"], "trun", "damaged.tplan", "--data", data, "--device", "cuda", env=stand_in())


if __name__ == "__main__":
    print(f"ptxas {PTXAS}, {os.environ.get('TCC_BIN')}")
    unittest.main(verbosity=2)
