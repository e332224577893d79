#!/usr/bin/env bash
# From a bare Debian 12 to a trained model: sets up, builds, compiles examples/char-gpt, trains it on tiny Shakespeare,
# and has onnxruntime score the result. Takes one argument: the folder for what it writes (demo-out; replaced if there).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$root/demo-out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"
example=examples/char-gpt
steps=$(sed -n 's/^total_steps = //p' $example/recipe.toml)

# Prints a command as a user would type it, then runs it.
show() { printf '\n$ %s\n' "${*//$root\//}"; "$@" </dev/null; }

tools/build.sh tcc trun
rm -rf "$out/char-gpt.tplan" "$out/run" "$out/trained.onnx"
show build/bin/tcc $example/model.onnx --recipe $example/recipe.toml -o "$out/char-gpt.tplan"
show build/bin/tcc report "$out/char-gpt.tplan" --summary
show build/bin/trun "$out/char-gpt.tplan" --data $example/shakespeare.txt --steps "$steps" --eval-every 200 --out "$out/run"
show .venv/bin/python $example/compare.py "$out/run"
show build/bin/trun export "$out/run" -o "$out/trained.onnx"
loss=$(.venv/bin/python -c 'import json, sys
print([v["eval_loss"] for v in map(json.loads, open(sys.argv[1])) if "eval_loss" in v][-1])' "$out/run/metrics.jsonl")
show .venv/bin/python $example/score_onnx.py "$out/trained.onnx" --expect "$loss"
show build/bin/trun report "$out/run"
cat <<END

The trained model: $out/trained.onnx
What to do next:
  build/bin/tcc report $out/char-gpt.tplan --html plan.html                       every decision, and memory over time
  build/bin/trun $out/char-gpt.tplan --data $example/shakespeare.txt --resume $out/run --steps $((2 * steps))
  build/bin/tcc $example/model.onnx --recipe $example/recipe.toml --memory-budget 75MiB -o small.tplan
  docs/guide/your-own-model.md                                                    a model of your own
END
