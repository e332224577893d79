//===- EvaluateModel.h - an imported model through the naive evaluators -*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_EVALUATEMODEL_H
#define TCC_TEST_SUPPORT_EVALUATEMODEL_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/model/ImportedModel.h"
#include "support/Status.h"

#include <map>

namespace tcc::test {

using Tensors = std::map<std::string, train::HostTensor>;

/// Runs @forward op by op with the ops' Reference evaluators and the initial values of variables. `inputs` are by graph
/// input, the results by graph output.
Expected<Tensors> evaluateModel(const ImportedModel &model, const Tensors &inputs);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_EVALUATEMODEL_H
