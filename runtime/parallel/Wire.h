//===- Wire.h - transport of bytes between two ranks ---------------------===//
//
// A wire moves as many bytes of a transfer as it can without blocking, and can wait until it may continue. It reports
// only its own failures; WiredLinks.h handles those of ranks.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_WIRE_H
#define TCC_RUNTIME_PARALLEL_WIRE_H

#include "runtime/parallel/Links.h"

#include <span>
#include <string>

namespace tcc::runtime {

/// How far a transfer is.
struct Progress {
  Transfer *transfer = nullptr;
  size_t part = 0;
  uint64_t offset = 0;     ///< of the part
  bool introduced = false; ///< onFirst was called
  bool begun = false;      ///< set by the wire when it has seen the transfer
  int64_t request = -1;    ///< number of the wire's request; -1: none

  bool done() const { return part == transfer->parts.size(); }

  /// Records that `bytes` more bytes of the transfer have moved.
  void advance(uint64_t bytes) {
    while (!done() && bytes >= transfer->parts[part].bytes - offset) {
      bytes -= transfer->parts[part].bytes - offset;
      ++part;
      offset = 0;
    }
    offset += bytes;
  }
};

enum class Moved { Nothing, Some, Broken };

class Wire {
public:
  virtual ~Wire() = default;

  /// Called before a round of moves: any change after this call ends the next wait.
  virtual void prepare() {}
  /// Moves the bytes that can be moved without blocking. Broken: `reason` says why.
  virtual Moved move(Progress &progress) = 0;
  /// Waits until a transfer may continue or `wakes` is readable, at most `milliseconds`; may return earlier.
  virtual void wait(std::span<const Progress> open, int wakes, int milliseconds) = 0;

  /// Bytes of a receipt that the wire can lend: Links::mostLent.
  virtual uint64_t mostLent() const { return 0; }
  virtual void release() {}

  std::string reason;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_WIRE_H
