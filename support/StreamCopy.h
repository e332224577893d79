//===- StreamCopy.h - copies that leave the caches alone --------*- C++ -*-===//
#ifndef TCC_SUPPORT_STREAMCOPY_H
#define TCC_SUPPORT_STREAMCOPY_H

#include <cstddef>

namespace tcc {

/// Copies bytes that are read only much later. Where the processor has non-temporal stores, they neither read the
/// destination first nor evict what the caches hold; elsewhere, and in a portable build, it is std::memcpy. The ranges
/// must not overlap.
void copyPastCaches(void *to, const void *from, size_t bytes);

} // namespace tcc

#endif // TCC_SUPPORT_STREAMCOPY_H
