//===- Signatures.h - a hash of kernel signatures and code ---------------===//
#ifndef TCC_RUNTIME_PLAN_SIGNATURES_H
#define TCC_RUNTIME_PLAN_SIGNATURES_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <span>

namespace tcc::plan {

/// XXH3-64 over the size and XXH3-64 of a code object's bytes, every field of its signatures, and the same of its
/// assembled code, in a fixed byte order: `CodeObject.signatures_xxh3`. It detects damage and mixed-up code, not
/// malice: whoever can replace machine code can also compute a hash.
struct CodeBytes {
  uint64_t bytes = 0, xxh3 = 0;
  static CodeBytes of(const Payload &payload) { return {payload.bytes(), payload.xxh3()}; }
};
uint64_t hashSignatures(const CodeObject &object, CodeBytes code, std::span<const CodeBytes> assembled = {});

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SIGNATURES_H
