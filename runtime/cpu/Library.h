//===- Library.h - contractions and convolutions by oneDNN ---------------===//
//
// The one place that decides how a contraction or convolution is cut into tiles and which library primitives run them.
// `tcc` asks when it compiles; the CPU device asks again when it loads a plan, and refuses one whose answers differ.
// Tiles follow from shapes alone. Each primitive is made and executed with one OpenMP thread; our pool hands out the
// tiles, so the number of threads never reaches the library.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_LIBRARY_H
#define TCC_RUNTIME_CPU_LIBRARY_H

#include "runtime/plan/Status.h"
#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <string>

namespace tcc::runtime {

/// What a library call needs beside its operands.
struct LibraryNeeds {
  uint64_t scratchSlotBytes = 0;   ///< for each slot: Instruction.scratch_slot_bytes; a multiple of 64
  uint64_t scratchSharedBytes = 0; ///< before the slots, for all tiles; a multiple of 64
  uint64_t scratchSlots = 1;       ///< as many workers as there are can use: the tiles

  /// Of a plan for at most so many workers.
  uint64_t scratchBytes(uint64_t workers) const {
    return scratchSharedBytes + scratchSlotBytes * (scratchSlots < workers ? scratchSlots : workers);
  }

  uint64_t partialBytes = 0; ///< size of the last operand, the partial sums; 0: no such operand
  uint64_t reorderedBytes = 0; ///< of activations that each call copies into the library's own layout, or back
  bool ownKernels = false; ///< not oneDNN's: they read operands as they lie
};

/// "oneDNN 2.6.3", for Plan.library.
std::string libraryName();

/// Holds the library to one machine level ("cpu:v3", "cpu:v4", "cpu:v4-bf16", "cpu:amx") for the life of the process,
/// against what the environment says. Must come before the first query; a second call with the same level is fine, with
/// another one an error, as is a level that this machine lacks.
plan::Status selectLevel(const std::string &target);

/// The default target on this machine: cpu:v3 or cpu:v4; with `bf16Products` cpu:v4-bf16 where it has instructions for
/// them that are faster than f32's, which is measured once a process, in less than a millisecond. No higher than a
/// program needs, so that a plan in f32 runs on every machine with AVX-512. cpu:amx is taken when it is asked for.
std::string machineLevel(bool bf16Products = false);

/// True for the name of a machine level.
bool isLevel(const std::string &target);

/// True where a level has instructions for bf16 products; on others they are widened to f32.
bool multipliesBf16(const std::string &target);

/// True where the library computes this element type natively on the selected level; else the call is compiled.
bool librarySupports(plan::DType dtype);

/// Decides the tiles of a call from its shapes, makes its primitives, and fills tile_m, tile_n, tile_batch, chunk_k and
/// kernels. Error: a dtype that is not supported, sizes below 1 or too large, a shape the library has no kernel for.
plan::Expected<LibraryNeeds> query(plan::MatmulCall &call);

/// Likewise; fills tile_batch, kernels and layout. The error names the dimension that does not fit.
plan::Expected<LibraryNeeds> query(plan::ConvolutionCall &call);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LIBRARY_H
