"""`tcc keys`: the table of recipe keys for people and for programs, and that what it says is what the commands do."""
import json
import re
import unittest

import models
from common import ROOT, EndToEnd


def fits(value, schema):
    """Whether a value fits a schema, in those words of JSON Schema that `tcc keys --json` uses."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kind = schema.get("type")
    if kind in ("number", "integer"):
        return (isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
                and value >= schema.get("minimum", value) and value <= schema.get("maximum", value)
                and value > schema.get("exclusiveMinimum", value - 1) and value < schema.get("exclusiveMaximum", value + 1))
    if kind == "array":
        return (isinstance(value, list) and all(fits(one, schema["items"]) for one in value)
                and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
    return {"boolean": bool, "string": str, "object": dict}.get(kind, object) in type(value).__mro__


class Keys(EndToEnd):
    def listed(self, *words):
        return {entry["key"]: entry for entry in json.loads(self.succeed("tcc", "keys", *words, "--json").out)}

    def test_json_holds_the_table_of_the_page(self):
        text = (ROOT / "docs" / "guide" / "recipe.md").read_text()
        table = re.search(r"<!-- keys:.*?-->\n(.*?)<!-- end -->", text, re.DOTALL)[1]
        rows = {cells[1].strip("` "): cells for cells in (re.split(r" ?(?<!\\)\| ?", line) for line in table.splitlines()[2:])}
        keys = self.listed()
        self.assertEqual(list(keys), list(rows))
        for name, cells in rows.items():
            self.assertEqual(keys[name]["trun"], cells[4].strip() == "yes", name)
            self.assertIn(keys[name]["meaning"], "|".join(cells), name)

    def test_defaults_fit_their_schema(self):
        entries = self.listed().values()
        given = [entry for entry in entries if "default" in entry]
        self.assertGreater(len(given), 80)
        for entry in given:
            self.assertTrue(fits(entry["default"], entry["schema"]), entry)
        for entry in entries:
            self.assertFalse("default" in entry and "default_text" in entry, entry)
        keys = self.listed()
        self.assertTrue(fits(0.5, keys["optimizer.lr"]["schema"]))
        self.assertFalse(fits(-1, keys["optimizer.lr"]["schema"]))
        self.assertFalse(fits("sgdd", keys["optimizer.kind"]["schema"]))
        self.assertEqual(keys["train.ema.every"]["needs"], "train.ema.decay")

    def test_a_kind_takes_the_keys_that_are_said_to_be_its_own(self):
        """Each key of [optimizer], [loss] and [schedule] that belongs to some kinds is refused with another."""
        models.mlp(self.folder / "m.onnx")
        tried = 0
        for section in ("loss", "optimizer", "schedule"):
            kinds = self.listed(f"{section}.kind")[f"{section}.kind"]["schema"]["enum"]
            for name, entry in self.listed(section).items():
                other = [kind for kind in kinds if kind not in entry.get("kinds", kinds)]
                schema = entry["schema"].get("anyOf", [entry["schema"]])[0]
                value = {"number": str(max(0.5, schema.get("minimum", 0))), "integer": "1", "boolean": "true"}.get(schema.get("type"))
                if "enum" in schema:
                    value = json.dumps(schema["enum"][-1])
                if not other or value is None:
                    continue
                loss = ["--set", "loss.kind=mse", "--set", "loss.target=y"] if section != "loss" else []
                self.refuse(1, [rf"{re.escape(name)} does not apply to {other[0]}|takes no {re.escape(name)}"], "tcc", "m.onnx", *loss,
                            "--set", f"{section}.kind={other[0]}", "--set", f"{name}={value}")
                tried += 1
        self.assertGreater(tried, 25)

    def test_lines_for_people(self):
        text = self.succeed("tcc", "keys", "schedule.gamma").out
        self.assertIn("schedule.gamma  (also trun --set)", text)
        self.assertIn("default: 0.1", text)
        self.assertIn("of: step, multi_step, exponential", text)
        self.assertIn("needs: train.ema.decay", self.succeed("tcc", "keys", "train.ema").out)
        self.assertNotIn("optimizer.", self.succeed("tcc", "keys", "schedule").out)
        self.refuse(2, ["unknown key schedule.gama; the nearest known one is schedule.gamma"], "tcc", "keys", "schedule.gama")


if __name__ == "__main__":
    unittest.main()
