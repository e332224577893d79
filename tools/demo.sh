#!/usr/bin/env bash
# From a bare Debian 12 to a trained model: sets up, builds, compiles examples/char-gpt, trains it on tiny Shakespeare,
# and has onnxruntime score the result. Takes one argument: the folder for what it writes (demo-out; replaced if there).
# Where dist/ has the wheels of tools/wheel.sh, it takes the programs from these, and builds nothing.
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

shopt -s nullglob
wheels=(dist/tcc_train-*.whl dist/tcc_train_compiler-*.whl)
if [ ${#wheels[@]} -eq 2 ]; then
  echo "demo: the programs are those of ${wheels[*]}"
  rm -rf "$out/env"
  /usr/bin/python3 -m venv "$out/env"
  "$out/env/bin/pip" install --quiet "${wheels[@]}" </dev/null
  "$out/env/bin/pip" install --quiet --no-deps --only-binary :all: -r tools/requirements.txt </dev/null
  programs=$out/env/bin python=$out/env/bin/python
else
  tools/build.sh tcc trun
  programs=build/bin python=.venv/bin/python
fi
rm -rf "$out/char-gpt.tplan" "$out/run" "$out/trained.onnx"
show "$programs"/tcc $example/model.onnx --recipe $example/recipe.toml -o "$out/char-gpt.tplan"
show "$programs"/tcc report "$out/char-gpt.tplan" --summary
show "$programs"/trun "$out/char-gpt.tplan" --data $example/shakespeare.txt --steps "$steps" --eval-every 200 --out "$out/run"
show "$python" $example/compare.py "$out/run"
show "$programs"/trun export "$out/run" -o "$out/trained.onnx"
loss=$("$python" -c 'import json, sys
print([v["eval_loss"] for v in map(json.loads, open(sys.argv[1])) if "eval_loss" in v][-1])' "$out/run/metrics.jsonl")
show "$python" $example/score_onnx.py "$out/trained.onnx" --expect "$loss"
show "$programs"/trun report "$out/run"
cat <<END

The trained model: $out/trained.onnx
What to do next:
  $programs/tcc report $out/char-gpt.tplan --html plan.html                       every decision, and memory over time
  $programs/trun $out/char-gpt.tplan --data $example/shakespeare.txt --resume $out/run --steps $((2 * steps))
  $programs/tcc $example/model.onnx --recipe $example/recipe.toml --memory-budget 75MiB -o small.tplan
  docs/guide/your-own-model.md                                                    a model of your own
END
