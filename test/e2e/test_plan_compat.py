"""Plans of earlier versions: each either gives bit for bit the losses recorded when it was frozen, or is refused with
"recompile" and both versions (test/plan-compat/README.md)."""
import json
import re
import struct
import sys
import unittest

from common import BIN, ROOT, EndToEnd

FROZEN = ROOT / "test" / "plan-compat"
sys.path.insert(0, str(FROZEN))
import freeze  # noqa: E402

PRESENT = int(re.search(r"kPlanFormatVersion = (\d+)", (ROOT / "runtime/plan/KernelAbi.h").read_text()).group(1))


class PlanCompat(EndToEnd):
    def test_every_frozen_plan_gives_its_losses_or_is_refused(self):
        versions = sorted(int(path.name) for path in FROZEN.iterdir() if path.name.isdigit())
        self.assertIn(PRESENT, versions, "freeze.py has not been run for the present format version")
        for version in versions:
            expected = json.loads((FROZEN / str(version) / "losses.json").read_text())
            for case, wanted in expected.items():
                with self.subTest(version=version, case=case):
                    plan = FROZEN / str(version) / f"{case}.tplan"
                    self.assertEqual(freeze.format_version(plan), version)
                    got = freeze.losses(BIN / "trun", plan, case, self.folder / f"{version}-{case}")
                    if isinstance(got, list):
                        self.assertEqual(got, wanted)
                        continue
                    self.assertNotEqual(version, PRESENT, got)
                    self.assertIn("recompile", got)
                    self.assertRegex(got, rf"version {version}\b.*\b{PRESENT}\b")

    def test_a_newer_plan_names_both_versions(self):
        newer = bytearray((FROZEN / str(PRESENT) / "mlp.tplan").read_bytes())
        struct.pack_into("<I", newer, 8, PRESENT + 1)
        (self.folder / "newer.tplan").write_bytes(newer)
        refused = self.command("trun", "newer.tplan", "--data", "none.safetensors")
        self.assertEqual(refused.status, 1)
        self.assertRegex(refused.err, rf"format version {PRESENT + 1}, newer than {PRESENT}\b")
        self.assertNotIn("Traceback", refused.err)


if __name__ == "__main__":
    unittest.main()
