# Instrumented builds, each in a build folder of its own; docs/design/testing.md shows how to run them.
#   -DTCC_SANITIZE=address   AddressSanitizer and UndefinedBehaviorSanitizer
#   -DTCC_SANITIZE=thread    ThreadSanitizer
#   -DTCC_FUZZ=ON            libFuzzer targets in build/bin; needs clang, and TCC_SANITIZE=address beside it
set(TCC_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty: none")
option(TCC_FUZZ "Build the fuzz targets for libFuzzer instead of replaying their corpora" OFF)
if(TCC_SANITIZE STREQUAL "")
  if(TCC_FUZZ)
    message(FATAL_ERROR "TCC_FUZZ needs -DTCC_SANITIZE=address: without it a fuzzer sees crashes alone")
  endif()
  return()
endif()

if(TCC_SANITIZE STREQUAL "address")
  # LLVM has no RTTI, which the vptr check needs. A report ends the process, so that no test passes with one.
  set(tcc_sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
elseif(TCC_SANITIZE STREQUAL "thread")
  set(tcc_sanitizers -fsanitize=thread)
else()
  message(FATAL_ERROR "TCC_SANITIZE=${TCC_SANITIZE}: use address or thread")
endif()
if(TCC_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TCC_FUZZ needs clang: -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22")
  endif()
  list(APPEND tcc_sanitizers -fsanitize=fuzzer-no-link)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O1")
add_compile_options(${tcc_sanitizers} -fno-omit-frame-pointer -g1)
add_link_options(${tcc_sanitizers})
if(TCC_SANITIZE STREQUAL "thread")
  # protobuf's header gives maps one more member under this macro, which its library was compiled without.
  add_compile_options(-U__SANITIZE_THREAD__)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # The runtime asks OpenMP for one thread; clang comes without the header and the library that GCC has.
  execute_process(COMMAND gcc -print-file-name=include/omp.h OUTPUT_VARIABLE omp_header OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND gcc -print-file-name=libgomp.so OUTPUT_VARIABLE omp_library OUTPUT_STRIP_TRAILING_WHITESPACE)
  configure_file(${omp_header} ${CMAKE_BINARY_DIR}/openmp/omp.h COPYONLY)
  include_directories(SYSTEM ${CMAKE_BINARY_DIR}/openmp)
  set(OpenMP_CXX_FLAGS -fopenmp=libgomp)
  set(OpenMP_CXX_LIB_NAMES gomp)
  set(OpenMP_gomp_LIBRARY ${omp_library})
  add_compile_options(-fsanitize-ignorelist=${CMAKE_SOURCE_DIR}/cmake/sanitize-ignore.txt)
  # What GCC and clang warn of differs; this build is for its reports.
  add_compile_options(-Wno-everything)
endif()

# Headers of LLVM and protobuf poison the arenas that their own, uninstrumented code hands out: every access to one would be
# reported. The linker leads these calls to functions that do nothing.
if(TCC_SANITIZE STREQUAL "address")
  add_library(TccSharedArenas OBJECT ${CMAKE_SOURCE_DIR}/cmake/SharedArenas.c)
  add_link_options(-Wl,--wrap=__asan_poison_memory_region -Wl,--wrap=__asan_unpoison_memory_region)
  link_libraries($<TARGET_OBJECTS:TccSharedArenas>)
endif()
