//===- CodeModel.h - the processor that kernels are generated for -*- C++ -*-===//
//
// The target's description for the code generator, which does not know the names of machine levels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CODEMODEL_H
#define TCC_COMPILER_TARGET_CODEMODEL_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <string>

namespace tcc::target {

/// How a kernel's lanes are executed.
enum class Lanes {
  Vector,  ///< elements of vectors, in functions for a range of tiles
  Threads, ///< threads of a group that exchange values directly (a warp), in kernels of a GPU: code for one thread,
           ///< scalars
};

/// Largest access of a GPU thread in bytes; operands of GPU kernels are aligned to it.
inline constexpr int64_t kAccessBytes = 16;

/// Grids of kernels for warps. They affect speed and scratch; the members about rows also define a reduction's tree.
struct GridModel {
  int64_t blockThreads = 128, mostBlocks = 2048;
  int64_t rowThreads = 512;      ///< most threads of a block that reduces a row, or columns, together
  int64_t residentThreads = 1024; ///< least per multiprocessor if a block has more than `blockThreads`
  int64_t rowThreadElements = 8; ///< least elements of a row or column that each thread adds up
  int64_t busyWarps = 4096;      ///< warps that sum columns at a time share their rows only up to so many
  int64_t walkColumns = 24;      ///< most columns that each thread of a warp sums up while the warp walks over rows
  int64_t walkBlockColumns = 16; ///< the same for a block of several warps
  int64_t walkThreads = 256;     ///< most threads of such a block; two blocks have to be resident
  int64_t walkSums = 72;         ///< most sums of all a thread's columns: they stay in its registers
  int64_t walkParts = 1024;      ///< most parts that rows are cut into, each walked by one warp or block
  int64_t walkRows = 8;          ///< least rows of a part: it writes its sums once
  int64_t walkWarps = 768;       ///< least warps that walk at a time; fewer do not keep the memory busy
  int64_t cachedElements = 8 << 20; ///< most elements of concurrently processed rows that stay in cache between passes
  int64_t loopBlockThreads = 32; ///< threads of a block whose threads take a tile each: loops that an op emits itself
  int64_t scratchThreads = 1024; ///< most threads of a grid whose threads have scratch
};

struct CodeModel {
  std::string processor;        ///< LLVM's name of it: "x86-64-v4"
  std::string features;         ///< LLVM's, beside the processor's own: "-prefer-256-bit"
  int64_t vectorLanes = 0;      ///< of all kernels' vectors or groups, for all element types; defines reduction trees
  bool multipliesPairs = false; ///< pairs of bf16 are multiplied and added in one instruction
  Lanes lanes = Lanes::Vector;
  std::string triple = "x86_64-unknown-linux-gnu"; ///< LLVM's
  plan::CodeObject::Format format = plan::CodeObject::ELF; ///< in which a plan holds the kernels

  GridModel grid = {};

  bool threaded() const { return lanes == Lanes::Threads; }
  /// The number of threads that reduce one of `rows` rows together: a warp, or as many as keep a card busy while each
  /// still has enough elements to add. It is larger if concurrently processed rows would not stay in the card's cache
  /// from one pass to the next. Without warps, the lanes of a vector.
  int64_t threadsOfRow(int64_t rows, int64_t elements) const {
    const int64_t resident = grid.blockThreads * grid.mostBlocks;
    int64_t threads = vectorLanes;
    while (threaded() && 2 * threads <= grid.rowThreads && elements >= 2 * threads * grid.rowThreadElements &&
           (2 * threads * rows <= resident || elements * (resident / threads) > grid.cachedElements))
      threads *= 2;
    return threads;
  }
  /// The number of threads that walk together over rows of `columns` elements: they reduce each row, and keep sums of
  /// the columns in registers. 0: the row has too many elements for that.
  int64_t threadsOfWalk(int64_t columns) const {
    int64_t threads = vectorLanes;
    while (threads <= grid.walkThreads &&
           columns > threads * (threads == vectorLanes ? grid.walkColumns : grid.walkBlockColumns))
      threads *= 2;
    return threads <= grid.walkThreads ? threads : 0;
  }
  /// The least number of parts, each walked by such threads, that keeps a card busy.
  int64_t fewestWalkParts(int64_t columns) const {
    return (grid.walkWarps * vectorLanes + threadsOfWalk(columns) - 1) / threadsOfWalk(columns);
  }
  /// Warps of the largest grid.
  int64_t residentWarps() const { return grid.blockThreads * grid.mostBlocks / vectorLanes; }
  /// Warps that share the rows of the same columns, a power of two that divides the number of rows: one, or as many as
  /// keep a card busy while each still has enough rows to add.
  int64_t warpsOfColumns(int64_t warps, int64_t rows) const {
    int64_t shares = 1;
    while (2 * shares * vectorLanes <= grid.rowThreads && 2 * shares * warps <= grid.busyWarps &&
           rows % (2 * shares) == 0 && rows >= 2 * shares * grid.rowThreadElements)
      shares *= 2;
    return shares;
  }
  /// Vector length in loops that an op emits itself and one thread runs.
  int64_t threadLanes() const { return threaded() ? 4 : vectorLanes; }

  /// All members as text: part of the key of cached code.
  std::string key() const {
    return triple + "/" + plan::CodeObject::Format_Name(format) + "/" + processor + "/" + features + "/" +
           std::to_string(vectorLanes) +
           (threaded() ? "/warps/" + std::to_string(grid.blockThreads) + "/" + std::to_string(grid.loopBlockThreads) +
                             "/" + std::to_string(grid.mostBlocks) + "/" + std::to_string(grid.rowThreads) + "/" +
                             std::to_string(grid.rowThreadElements) + "/" + std::to_string(grid.busyWarps) + "/" +
                             std::to_string(grid.cachedElements) + "/" + std::to_string(grid.residentThreads) + "/" +
                             std::to_string(grid.walkColumns) + "/" + std::to_string(grid.walkBlockColumns) + "/" +
                             std::to_string(grid.walkThreads)
                       : "") +
           (multipliesPairs ? "/pairs" : "");
  }
};

} // namespace tcc::target

#endif // TCC_COMPILER_TARGET_CODEMODEL_H
