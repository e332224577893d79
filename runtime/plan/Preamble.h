//===- Preamble.h - how a plan file begins -------------------------------===//
#ifndef TCC_RUNTIME_PLAN_PREAMBLE_H
#define TCC_RUNTIME_PLAN_PREAMBLE_H

#include <cstdint>
#include <string_view>

namespace tcc::plan {

/// The first bytes of every plan file.
constexpr std::string_view kMagic("TCCPLAN\0", 8);
/// Magic, format version, and the header's length.
constexpr uint64_t kPreambleBytes = 16;
constexpr uint64_t kMaxHeaderBytes = uint64_t(1) << 30;

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_PREAMBLE_H
