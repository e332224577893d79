//===- without_avx512.cpp - trun as on a processor without AVX-512 --------===//
//
// Linked to trun's Main.cpp it makes trun-avx2, which runs plans for cpu:v3 with the kernels that a processor below
// AVX-512 would take. Otherwise trun's own products use AVX-512 where they can, even for plans of lower levels: the
// bits are equal.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/calls/CpuLevel.h"

namespace {
tcc::runtime::CpuFeatures featuresWithout() {
  tcc::runtime::CpuFeatures features = tcc::runtime::detectFeatures();
  features.avx512 = features.bf16 = features.amx = false;
  return features;
}

const tcc::runtime::ScopedFeatures scoped(featuresWithout());
} // namespace
