//===- Kernels.cpp - register the loops of ops with own kernels -----------===//
#include "compiler/kernels/Kernels.h"

#include "compiler/dialect/TrainDialect.h"

using namespace mlir;

namespace tcc::train {

void registerKernels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, TrainDialect *) {
    for (auto *attach : {attachAttention, attachAttentionGrad, attachCtc, attachLoop, attachRecurrent, attachWinograd})
      attach(*context);
  });
}

} // namespace tcc::train
