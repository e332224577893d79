# How GoogleTest programs are registered with ctest.
include(GoogleTest)

# Cases that may share a process: each is a test of the label `case`, for ctest -R, and SHARDS tests of the label `shard` run
# them all, in as many processes. Whoever runs everything leaves out one of the labels. For programs that load LLVM, whose start
# takes longer than most cases; not for cases that select a machine level, count allocations, fork or set limits.
# tcc_shared_process_tests(PROGRAM SHARDS [PREFIX])
function(tcc_shared_process_tests program shards)
  set(prefix "${ARGN}")
  gtest_discover_tests(${program} TEST_PREFIX "${prefix}" DISCOVERY_TIMEOUT 60 PROPERTIES LABELS case)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    set(name shard.${program}.${shard})
    add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/.venv/bin/python ${CMAKE_SOURCE_DIR}/test/run_shard.py
      $<TARGET_FILE:${program}> "--prefix=${prefix}" --shard=${shard} --of=${shards}
      --results=${CMAKE_BINARY_DIR}/shards/${name}.jsonl)
    set_tests_properties(${name} PROPERTIES LABELS shard)
  endforeach()
endfunction()
