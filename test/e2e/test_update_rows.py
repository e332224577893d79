"""Tables of which a batch reads few rows: only those rows are updated, to the values that updating all rows would give."""
import re
import unittest

import numpy as np
import onnx
import onnx.helper as oh

import models
from common import EndToEnd, metrics

ROWS, WIDTH, BATCH, IDS, STEPS, RATE = 8192, 32, 6, 4, 5, 0.5
# A scatter that sets a row of the table for each id: the op with which update-rows ends.
SETS_ROWS = re.compile(rf"train.scatter set .*tensor<{ROWS}x{WIDTH}xf32>, tensor<{BATCH * IDS}x{WIDTH}xi64>")


class UpdateRows(EndToEnd):
    def setUp(self):
        super().setUp()
        self.table = models.random(1, ROWS, WIDTH)
        self.table[7] = -0.0
        generator = np.random.default_rng(2)
        self.ids = generator.integers(0, ROWS, (BATCH * STEPS, IDS))
        self.ids[:, 1] = self.ids[:, 0]         # the first id occurs twice in its sample
        self.ids[:, 2] = 11                     # one id in all samples
        self.ids[::2, 3] = ROWS - 1
        nodes = [oh.make_node("Cast", ["x"], ["ids"], "whole", to=onnx.TensorProto.INT64),
                 oh.make_node("Gather", ["table", "ids"], ["rows"], "lookup"), oh.make_node("Mul", ["rows", "rows"], ["squares"], "square"),
                 oh.make_node("ReduceMean", ["squares"], ["loss"], "mean", keepdims=0)]
        self.model = models.save(self.folder / "table.onnx", nodes, {"x": [BATCH, IDS]}, {"loss": []}, {"table": self.table})
        self.data = self.save("d.safetensors", x=self.ids.astype(np.float32))

    def trained(self, recipe, rows):
        """The table and the gradient norms after an epoch; `rows`: whether the plan must set single rows."""
        path = self.write("recipe.toml", '[loss]\noutput = "loss"\n' + recipe)
        plan = self.compile(self.model, "--recipe", path, "--entry", "train", "--dump-phases-to", "ir")
        ir = next((self.folder / "ir").glob("*-memory.mlir")).read_text()
        self.assertEqual(bool(SETS_ROWS.search(ir)), rows, recipe)
        run = self.train(plan, self.data, steps=STEPS, out=f"run-{len(list(self.folder.iterdir()))}")
        return self.weights(run)["table"], [line["grad_norm"] for line in metrics(run)[0]]

    def gradients(self, table, step):
        gradient = np.zeros_like(table)
        for index in self.ids[step * BATCH:(step + 1) * BATCH].flatten():
            gradient[index] += 2 * table[index] / (BATCH * IDS * WIDTH)
        return gradient

    def test_sgd(self):
        for clip in (None, 1e-3):
            got, norms = self.trained(f'[optimizer]\nkind = "sgd"\nlr = {RATE}\n' + (f"[train]\nclip_norm = {clip}\n" if clip else ""), True)
            table = self.table.astype(np.float64)
            for step, norm in enumerate(norms):
                gradient = self.gradients(table, step)
                expected = np.sqrt((gradient ** 2).sum())
                self.assertAlmostEqual(norm / expected, 1, 5)
                table -= RATE * gradient * (min(1, clip / expected) if clip else 1)
            np.testing.assert_allclose(got, table, rtol=1e-5, atol=1e-7)
            others = np.setdiff1d(np.arange(ROWS), self.ids)
            self.assertEqual(got[others].tobytes(), self.table[others].tobytes())  # bytes, since row 7 holds negative zeros

    def test_many_tables_of_one_shape(self):
        count = 50
        nodes = [oh.make_node("Cast", ["x"], ["ids"], "whole", to=onnx.TensorProto.INT64)]
        for i in range(count):
            nodes += [oh.make_node("Gather", [f"table{i}", "ids"], [f"rows{i}"], f"lookup{i}"),
                      oh.make_node("ReduceSumSquare", [f"rows{i}"], [f"t{i}"], f"squares{i}", keepdims=0)]
        nodes.append(oh.make_node("Sum", [f"t{i}" for i in range(count)], ["loss"], "sum"))
        tables = {f"table{i}": models.random(i, 1024, WIDTH) for i in range(count)}
        model = models.save(self.folder / "tables.onnx", nodes, {"x": [BATCH, IDS]}, {"loss": []}, tables)
        self.compile(model, "--set", "loss.output=loss", "--set", "optimizer.kind=sgd", "--entry", "train", "--dump-phases-to", "ir")
        ir = next((self.folder / "ir").glob("*-memory.mlir")).read_text()
        self.assertEqual(len(re.findall(rf"train.scatter set .*tensor<1024x{WIDTH}xf32>, tensor<{BATCH * IDS}x{WIDTH}xi64>", ir)), count)

    def test_other_optimizers_stay_dense(self):
        for recipe in ('kind = "sgd"\nmomentum = 0.9', 'kind = "sgd"\nweight_decay = 0.01', 'kind = "adamw"', 'kind = "adagrad"'):
            self.trained(f"[optimizer]\n{recipe}\nlr = 0.01\n", False)


if __name__ == "__main__":
    unittest.main()
