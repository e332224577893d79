#!/usr/bin/env bash
# Tests that are too slow for every change: sanitizers, fuzzing, crash sweeps. `tools/nightly.sh` runs all stages, eight to
# nine hours on two cores; `tools/nightly.sh STAGE...` only those:
#   address   AddressSanitizer and UndefinedBehaviorSanitizer: every test but those that measure memory or time, then
#             TCC_SANITIZED_GRAPHS (300) random graphs and 40 random recipes, as in the stage `graphs`
#   thread    ThreadSanitizer of trun: its unit tests, and every case of the zoo trained
#   fuzz      each fuzz target for TCC_FUZZ_SECONDS (1200) from the seeds, the corpora and the inputs that earlier nights found
#   plans     thousands of mutated plans; each one that is accepted runs between guard pages
#   cuda      the models of the zoo compiled for every CUDA architecture, all PTX assembled
#   emulation every model of the zoo trained by the PTX of its CUDA plan, one update of each with all checks;
#             budgets of eight of them; a GPT within twelve pairs of budgets of card and host; TCC_RANDOM_ROUNDS (100)
#             draws of a model and settings, beside the CPU
#   graphs    TCC_RANDOM_GRAPHS (20000) random graphs and TCC_RANDOM_RECURRENCES (1000) with a recurrence against PyTorch in f64:
#             forward, gradients, updates, in every way to compile them, for the former an emulated card among them;
#             TCC_RANDOM_RECIPES (500) recipes and data sets beside PyTorch's loop; every plan that the end-to-end tests
#             compile and those of the benchmarks, between guard pages
#   phases    every phase of every model of the zoo for three targets, run again by tcc-opt on the dump before it
#   levels    plans of every machine level, made on a Haswell that QEMU emulates, must equal those made on this machine
#   portable  trun without x86 instructions of its own (-DTCC_PORTABLE=ON), in a build of its own: its unit tests, and every
#             model of the zoo trained for cpu:v3, whose state must have the bits of the ordinary trun
#   length    tcc's instructions for each node of a graph, counted by valgrind, must not grow in graphs twice as long
#   ranks     every model of the zoo on several ranks, in every mode; splits of ranks over nodes; ranks in two and three
#             network namespaces: uneven nodes, loopback names, IPv6, strangers, a link that goes down; ranks that Slurm
#             starts (slurm-wlm, munge)
#   python    the Python package on torch modules, beside PyTorch; the tutorial for users of Lightning and Transformers
#   packages  wheels and the Debian package made, checked, and trained with on clean Debian 12, Debian 13 and Ubuntu 22.04
#             (debootstrap; as root); an installed tree found by a program of CMake; `pip install .`
#   crash     kill -9, full disks and signals at every point of short runs of three plans (two of several shapes), each
#             resumed bit for bit
# A stage that fails does not stop the others; the last line names those that failed. Findings are in build-nightly/findings.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

known=(address thread fuzz plans cuda emulation graphs phases levels portable length ranks python packages crash)
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=("${known[@]}")
for stage in "${stages[@]}"; do
  [[ " ${known[*]} " == *" $stage "* ]] || { echo "nightly: no stage $stage; there are ${known[*]}" >&2 && exit 2; }
done

tools/setup.sh nightly || exit 1
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# LLVM's shared libraries never free some memory, so leaks are not checked; a report ends a process with a status that no test expects.
export ASAN_OPTIONS=detect_leaks=0:exitcode=86 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=exitcode=86
python=.venv/bin/python
jobs=$(nproc)
out=build-nightly
findings=$out/findings
mkdir -p "$findings"

# One build serves the sanitized tests and the fuzzers; the other is the runtime alone.
build_address() {
  cmake -S . -B $out/address -G Ninja -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
    -DTCC_SANITIZE=address -DTCC_FUZZ=ON >/dev/null && cmake --build $out/address -j "$jobs" ${1:+--target "$@"}
}

stage_address() {
  build_address || return 1
  local failed=0 first=$((100000 * 10#$(date +%j) + 50000))
  ctest --test-dir $out/address -j "$jobs" --output-on-failure --timeout 3600 -LE 'measures|^case$' || failed=1
  TCC_CACHE_DIR= .venv-nightly/bin/python test/e2e/graph_fuzz.py --bin $out/address/bin --jobs "$jobs" --first $first \
    --count "${TCC_SANITIZED_GRAPHS:-300}" || failed=1
  .venv-nightly/bin/python test/e2e/recipe_fuzz.py --bin $out/address/bin --first $first --count 40 || failed=1
  return $failed
}

stage_thread() {
  cmake -S . -B $out/thread -G Ninja -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
    -DTCC_SANITIZE=thread -DTCC_BUILD_COMPILER=OFF >/dev/null &&
    cmake --build $out/thread -j "$jobs" && tools/build.sh tcc || return 1
  # Plans come from the ordinary compiler.
  ln -sf "$PWD/build/bin/tcc" $out/thread/bin/tcc
  ctest --test-dir $out/thread -j "$jobs" --output-on-failure --timeout 3600 -LE 'measures|^case$' || return 1
  $python test/e2e/zoo/check.py --bin $out/thread/bin --timeout 1200 -j "$jobs" test/e2e/zoo
}

stage_fuzz() {
  local targets target status=0
  targets=$(grep -oP '^ *tcc_fuzz_target\(\K\w+' test/fuzz/CMakeLists.txt)
  build_address tcc $(printf 'fuzz-%s ' $targets) || return 1
  export TCC_BIN=$PWD/$out/address/bin TCC_CACHE_DIR= # compiles the seeds of the target that takes plans
  fuzz_one() {
    mkdir -p "$out/corpus/$1"
    $python test/fuzz/corpus.py make "$1" "$out/seeds/$1" || return 1
    $out/address/bin/fuzz-$1 -max_total_time="${TCC_FUZZ_SECONDS:-1200}" -timeout=60 -rss_limit_mb=4096 \
      -print_final_stats=1 -artifact_prefix="$findings/$1-" "$out/corpus/$1" "$out/seeds/$1" test/fuzz/corpus/"$1" \
      >"$out/fuzz-$1.log" 2>&1
    local failed=$?
    printf 'fuzz %-12s %s, %s\n' "$1" "$(grep -oP 'stat::number_of_executed_units: *\K\d+' "$out/fuzz-$1.log") inputs" \
      "$([ $failed = 0 ] && echo 'no finding' || echo "FINDING: $out/fuzz-$1.log")"
    return $failed
  }
  for target in $targets; do
    mkdir -p test/fuzz/corpus/"$target"
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || status=1; done
    fuzz_one "$target" &
  done
  while [ -n "$(jobs -rp)" ]; do wait -n || status=1; done
  return $status
}

stage_cuda() {
  tools/build.sh tcc trun && TCC_CUDA_ALL=1 TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/e2e/test_cuda.py
}

stage_plans() {
  tools/build.sh tcc trun plan-mutations &&
    TCC_MUTATION_ROUNDS=${TCC_MUTATION_ROUNDS:-1000} TCC_MUTATION_SEED=${TCC_MUTATION_SEED:-$(date +%j)} \
      TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/e2e/test_plan_mutations.py
}

stage_emulation() {
  tools/build.sh tcc trun cuda-stand-in &&
    LD_LIBRARY_PATH=build/emulation TCC_EMULATION_MODE=fast TCC_CACHE_DIR= $python test/e2e/test_op_cases.py --bin build/bin \
      --target cuda:sm_90 --device cuda --values &&
    TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/emulation/test_models.py build/emulation --all &&
    TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/emulation/test_budgets.py build/emulation --all &&
    TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/emulation/test_offload.py build/emulation --all &&
    TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/emulation/test_host_gpt.py build/emulation --all &&
    TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/emulation/test_cards.py build/emulation --all &&
    TCC_BIN=$PWD/build/bin $python test/emulation/random_settings.py build/emulation --rounds "${TCC_RANDOM_ROUNDS:-100}" \
      --seed "${TCC_RANDOM_SEED:-$((1000 * 10#$(date +%j)))}"
}

stage_graphs() {
  tools/build.sh || return 1
  local failed=0
  TCC_CACHE_DIR= .venv-nightly/bin/python test/e2e/graph_fuzz.py --bin build/bin --emulation build/emulation --jobs "$jobs" \
    --first "${TCC_RANDOM_SEED:-$((100000 * 10#$(date +%j)))}" --count "${TCC_RANDOM_GRAPHS:-20000}" || failed=1
  # Seeds from 1,000,000,000 on are recurrences.
  TCC_CACHE_DIR= .venv-nightly/bin/python test/e2e/graph_fuzz.py --bin build/bin --jobs "$jobs" \
    --first "$((1000000000 + ${TCC_RANDOM_SEED:-$((10000 * 10#$(date +%j)))}))" --count "${TCC_RANDOM_RECURRENCES:-1000}" || failed=1
  .venv-nightly/bin/python test/e2e/recipe_fuzz.py --bin build/bin --first "${TCC_RANDOM_SEED:-$((100000 * 10#$(date +%j)))}" \
    --count "${TCC_RANDOM_RECIPES:-500}" || failed=1
  TCC_TEST_ISOLATED=1 ctest --test-dir build -j "$jobs" --output-on-failure --timeout 3600 -R '^e2e' || failed=1
  .venv-nightly/bin/python test/bench/performance.py --bin build/bin --isolated || failed=1
  return $failed
}

stage_phases() {
  tools/build.sh tcc tcc-opt && TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/e2e/test_reruns.py --all
}

stage_levels() {
  tools/build.sh tcc || return 1
  local folder level name made=0 differ=0
  made_by() { # COMMAND... OUT: a plan of $folder for $level
    local out=${*: -1}
    TCC_CACHE_DIR= "${@:1:$#-1}" build/bin/tcc "$folder/model.onnx" --recipe "$folder/recipe.toml" --target "$level" -o "$out" >"$out.log" 2>&1
  }
  for folder in test/e2e/zoo/*/; do
    name=$(basename "$folder")
    for level in cpu:v3 cpu:v4 cpu:v4-bf16 cpu:amx; do
      made_by env "$out/native.tplan" && made_by qemu-x86_64 -cpu Haswell "$out/emulated.tplan" || { echo "levels: $name, $level: not made: $out/*.tplan.log" && return 1; }
      made=$((made + 1))
      cmp -s "$out/native.tplan" "$out/emulated.tplan" || { differ=$((differ + 1)) && echo "levels: $name for $level differs"; }
    done
  done
  echo "levels: $made plans, $differ differ"
  [ $differ = 0 ] && [ $made -gt 0 ]
}

stage_portable() {
  cmake -S . -B $out/portable -G Ninja -DTCC_PORTABLE=ON -DTCC_BUILD_COMPILER=OFF >/dev/null &&
    cmake --build $out/portable -j "$jobs" && tools/build.sh tcc trun || return 1
  objdump -d --no-show-raw-insn $out/portable/lib/libTccCpu.a | grep -q '%[yz]mm' && echo "portable: kernels use AVX" && return 1
  ctest --test-dir $out/portable -j "$jobs" --output-on-failure --timeout 3600 -LE 'measures|^case$' || return 1
  local folder name build trained=0 differ=0 run=$out/portable-runs
  rm -rf "$run" && mkdir -p "$run" || return 1
  for folder in test/e2e/zoo/*/; do
    name=$(basename "$folder")
    TCC_CACHE_DIR= build/bin/tcc "$folder/model.onnx" --recipe "$folder/recipe.toml" --target cpu:v3 -o "$run/$name.tplan" \
      >"$run/log" 2>&1 || { echo "portable: $name: not compiled: $run/log" && return 1; }
    for build in build $out/portable; do
      $build/bin/trun "$run/$name.tplan" --data "$folder/data.safetensors" --no-shuffle --steps 4 \
        --out "$run/$name-$(basename $build)" >"$run/log" 2>&1 || { echo "portable: $name: $build: $run/log" && return 1; }
    done
    trained=$((trained + 1))
    cmp "$run/$name-build"/checkpoints/*/state.safetensors "$run/$name-portable"/checkpoints/*/state.safetensors ||
      differ=$((differ + 1))
  done
  echo "portable: $trained models, $differ differ"
  [ $differ = 0 ] && [ $trained -gt 0 ]
}

stage_ranks() {
  tools/build.sh || return 1
  local suite failed=0
  TCC_RANKS_ALL=1 build/bin/ParallelTest --gtest_filter='Communicator.*' || failed=1
  for suite in rank_faults ranks ranks_agree shards hybrid virtual_ranks mpi two_machines slurm; do
    TCC_RANKS_ALL=1 TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/e2e/test_$suite.py || failed=1
  done
  return $failed
}

stage_length() {
  tools/build.sh tcc && .venv-nightly/bin/python test/bench/graph_length.py --bin build/bin --instructions
}

stage_python() {
  tools/build.sh tcc trun libtrun && TCC_BIN=$PWD/build/bin .venv-nightly/bin/python test/e2e/python/torch_modules.py
}

stage_packages() {
  rm -rf dist
  tools/build.sh tcc tcc-plan trun libtrun plugins manual && tools/wheel.sh && $python test/e2e/check_wheels.py dist &&
    (cd build-standalone && rm -f ./*.deb && cpack --config CPackConfig.cmake >/dev/null && dpkg-deb --info tcc-train_*.deb) &&
    $python test/e2e/check_roots.py dist --deb build-standalone/tcc-train_*.deb --build build --roots $out/roots &&
    $python test/e2e/check_wheels.py .
}

stage_crash() {
  tools/build.sh tcc trun && TCC_BIN=$PWD/build/bin TCC_CACHE_DIR= $python test/e2e/crash_sweep.py --full
}

failed=()
for stage in "${stages[@]}"; do
  printf '\n== %s\n' "$stage"
  "stage_$stage" || failed+=("$stage")
done
[ ${#failed[@]} -eq 0 ] && echo "nightly: all of ${stages[*]} passed" && exit 0
echo "nightly: failed: ${failed[*]}"
exit 1
