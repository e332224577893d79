//===- EveryLevel.h - loops for each machine level -------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_EVERYLEVEL_H
#define TCC_RUNTIME_DATA_TRANSFORMS_EVERYLEVEL_H

/// A function that is compiled for each level of x86-64; the loader selects this machine's version at start. For loops
/// of integers, whose results are the same at all levels. Off in a portable build, and with sanitizers, which would
/// instrument the selection before they can run.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__) && !defined(TCC_PORTABLE)
#define TCC_EVERY_LEVEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TCC_EVERY_LEVEL
#endif

#endif // TCC_RUNTIME_DATA_TRANSFORMS_EVERYLEVEL_H
