//===- SampleAxes.cpp - the sample axes of a static export's outputs ------===//
#include "frontend/SampleAxes.h"

#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {

void findGrownAxes(MLIRContext &context, const std::string &path, const ImportOptions &options, func::FuncOp forward) {
  auto dimsOf = [](func::FuncOp function, unsigned i) {
    return cast<RankedTensorType>(function.getFunctionType().getResult(i)).getShape();
  };
  auto isOpen = [&](unsigned i) {
    return !forward.getResultAttr(i, "train.sample_axis") && !forward.getResultAttr(i, "train.inner") &&
           !dimsOf(forward, i).empty();
  };
  if (llvm::none_of(llvm::seq(forward.getNumResults()), isOpen))
    return;
  ImportOptions trial = options;
  trial.isTrial = true;
  int64_t batch = 0;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto axis = forward.getArgAttrOfType<IntegerAttr>(i, "train.sample_axis");
    Shape shape(train::shapeOf(forward.getArgument(i)));
    if (!axis || axis.getInt() < 0 || axis.getInt() >= int64_t(shape.size()))
      continue;
    int64_t &samples = shape[size_t(axis.getInt())];
    batch = batch ? batch : samples;
    if (samples != batch)
      continue;
    ++samples;
    trial.shapes[forward.getArgAttrOfType<StringAttr>(i, "train.name").str()] = {shape.begin(), shape.end()};
  }
  if (!batch)
    return;
  Expected<ImportedModel> grown = importModel(context, path, trial);
  if (!grown)
    return;
  auto other = grown->module->lookupSymbol<func::FuncOp>(forward.getSymName());
  if (!other || other.getNumResults() != forward.getNumResults())
    return;
  for (unsigned i = 0; i < forward.getNumResults(); ++i) {
    if (!isOpen(i))
      continue;
    llvm::ArrayRef<int64_t> old = dimsOf(forward, i), now = dimsOf(other, i);
    for (size_t d = 0; d < old.size() && old.size() == now.size(); ++d)
      if (old[d] == batch && now[d] == batch + 1) {
        forward.setResultAttr(i, "train.sample_axis", Builder(&context).getI64IntegerAttr(int64_t(d)));
        break;
      }
  }
}

} // namespace tcc::frontend
