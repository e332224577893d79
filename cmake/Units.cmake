# tcc_units(TARGET SIZE): compiles the sources of a library `SIZE` at a time, since reading headers takes most of the time of
# a small file. A type of an anonymous namespace is one type in such a unit, too: the warning is about headers.
function(tcc_units target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# tcc_fast(TARGET...): compiles libraries whose loops run over elements, samples, nodes of a search or updates at -O2.
function(tcc_fast)
  foreach(target ${ARGN})
    if(NOT TCC_SANITIZE)
      target_compile_options(${target} PRIVATE -O2)
    endif()
  endforeach()
endfunction()
