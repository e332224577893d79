//===- ScanLine.h - a line on the terminal while data is scanned -----------===//
#ifndef TCC_RUNTIME_TRAIN_SCANLINE_H
#define TCC_RUNTIME_TRAIN_SCANLINE_H

#include "runtime/train/Metrics.h"

#include <cstdio>
#include <fmt/format.h>

namespace tcc::runtime {

/// Rewritten at most ten times per second, and erased at the end.
class ScanLine {
public:
  /// `out`: a terminal, or null to say nothing.
  explicit ScanLine(std::FILE *out) : out(out) {}
  ~ScanLine() {
    if (shown > 0)
      print("\r\033[K");
  }
  ScanLine(const ScanLine &) = delete;
  ScanLine &operator=(const ScanLine &) = delete;

  void hear(uint64_t done, uint64_t files, uint64_t samples) {
    const double now = monotonicSeconds();
    if (!out || now - shown < 0.1)
      return;
    shown = now;
    print(fmt::format("\r\033[Kreading data: {} of {}{}", done, files,
                      samples ? fmt::format(", {} samples", samples) : std::string()));
  }

private:
  void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), out);
    std::fflush(out);
  }
  std::FILE *out;
  double shown = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SCANLINE_H
