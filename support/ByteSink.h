//===- ByteSink.h - bytes handed over piece by piece ---------------------===//
#ifndef TCC_SUPPORT_BYTESINK_H
#define TCC_SUPPORT_BYTESINK_H

#include "support/Status.h"

#include <cstddef>
#include <functional>
#include <span>

namespace tcc {

/// Receives the pieces of a value in order. A piece is valid only during its call; after an error no piece follows.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

} // namespace tcc

#endif // TCC_SUPPORT_BYTESINK_H
