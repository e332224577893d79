//===- DistributeTest.cpp - buckets change no bit ---------------------------===//
//
// Random entries with sums over ranks, before and after distribute: every rank's results, by the naive evaluators of all
// ops, have the same bits for any size of buckets and any number of ranks, and no rank waits for what is not complete.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace tcc::test {
namespace {

MLIRContext &ranksContext() {
  static MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<train::TrainDialect, func::FuncDialect>();
  return context;
}

/// An entry of random ops on vectors of 1 to 6 elements, f32 and bf16, about a third of them sums over ranks.
std::string randomEntry(std::mt19937 &random) {
  struct Known {
    std::string name, type;
    int size;
  };
  std::vector<Known> values;
  std::string arguments, body;
  auto typeOf = [](int size, const std::string &element) { return "tensor<" + std::to_string(size) + "x" + element + ">"; };
  const int count = 2 + int(random() % 3);
  for (int i = 0; i < count; ++i) {
    const int size = 1 + int(random() % 6);
    values.push_back({"%a" + std::to_string(i), typeOf(size, random() % 4 ? "f32" : "bf16"), size});
    arguments += (i ? ", " : "") + values.back().name + ": " + values.back().type;
  }
  const int ops = 5 + int(random() % 25);
  for (int i = 0; i < ops; ++i) {
    const Known from = values[random() % values.size()];
    const std::string name = "%v" + std::to_string(i);
    Known made{name, from.type, from.size};
    switch (random() % 6) {
    case 0:
    case 1:
      body += "  " + name + " = train.all_reduce(" + from.name + ") : (" + from.type + ") -> " + from.type + "\n";
      break;
    case 2:
      body += "  " + name + " = train.neg " + from.name + " : " + from.type + "\n";
      break;
    case 3:
      body += "  " + name + " = train.mul " + from.name + ", " + from.name + " : " + from.type + "\n";
      break;
    case 4:
      made.type = typeOf(from.size, from.type.find("bf16") == std::string::npos ? "bf16" : "f32");
      body += "  " + name + " = train.cast " + from.name + " : " + from.type + " -> " + made.type + "\n";
      break;
    case 5:
      body += "  " + name + " = train.rank_broadcast(" + from.name + ") : (" + from.type + ") -> " + from.type + "\n";
      break;
    }
    values.push_back(made);
  }
  std::string names, types;
  for (const Known &value : values) {
    names += (names.empty() ? "" : ", ") + value.name;
    types += (types.empty() ? "" : ", ") + value.type;
  }
  return "func.func @step(" + arguments + ") -> (" + types + ") attributes {train.entry = \"step\"} {\n" + body +
         "  return " + names + " : " + types + "\n}\n";
}

using Tensors = std::vector<train::HostTensor>;

/// Every rank's results, op by op in the order of the program.
std::vector<Tensors> evaluateRanks(func::FuncOp function, const std::vector<Tensors> &arguments) {
  std::vector<llvm::DenseMap<Value, train::HostTensor>> known(arguments.size());
  for (size_t rank = 0; rank < arguments.size(); ++rank)
    for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments[rank]))
      known[rank][argument] = value;
  auto operandsOf = [&](Operation *op, size_t rank) {
    Tensors operands;
    for (Value operand : op->getOperands())
      operands.push_back(known[rank].at(operand));
    return operands;
  };
  auto resultsOf = [](Operation *op) {
    Tensors results;
    for (Type type : op->getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    return results;
  };
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator()) {
    std::vector<Tensors> operands, results;
    for (size_t rank = 0; rank < arguments.size(); ++rank) {
      operands.push_back(operandsOf(&op, rank));
      results.push_back(resultsOf(&op));
    }
    if (auto collective = dyn_cast<train::Collective>(op))
      collective.evaluateRanks(operands, results);
    else
      for (size_t rank = 0; rank < arguments.size(); ++rank)
        cast<train::Reference>(op).evaluate(operands[rank], results[rank]);
    for (size_t rank = 0; rank < arguments.size(); ++rank)
      for (auto [result, value] : llvm::zip_equal(op.getResults(), results[rank]))
        known[rank][result] = value;
  }
  std::vector<Tensors> returned;
  for (size_t rank = 0; rank < arguments.size(); ++rank)
    returned.push_back(operandsOf(block.getTerminator(), rank));
  return returned;
}

TEST(Distribute, BucketsChangeNoBitOnAnyRank) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  int joined = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    const std::string text = randomEntry(random);
    auto module = parseSourceString<ModuleOp>(text, ParserConfig(&ranksContext()));
    ASSERT_TRUE(module) << text;
    auto function = *module->getOps<func::FuncOp>().begin();
    const size_t ranks = 1 + random() % 5;
    std::vector<Tensors> arguments(ranks);
    for (Tensors &own : arguments)
      for (Type type : function.getArgumentTypes()) {
        own.emplace_back(cast<RankedTensorType>(type));
        for (int64_t i = 0; i < own.back().size(); ++i)
          own.back().setDouble(i, std::ldexp(double(int(random() % 2001) - 1000), int(random() % 20) - 15));
      }
    const std::vector<Tensors> expected = evaluateRanks(function, arguments);
    PassManager passes(&ranksContext());
    train::DistributePassOptions options;
    options.bucketBytes = int64_t(1) << random() % 9;
    passes.addPass(train::createDistributePass(options));
    ASSERT_TRUE(succeeded(passes.run(*module))) << text; // The pass manager verifies the result: each operand is defined before its reader.
    module->walk([&](train::AllReduceOp op) {
      joined += op.getInputs().size() > 1;
      int64_t bytes = 0;
      for (Value input : op.getInputs())
        bytes += train::tensorBytes(input.getType());
      EXPECT_TRUE(op.getInputs().size() == 1 || bytes <= options.bucketBytes);
    });
    const std::vector<Tensors> found = evaluateRanks(function, arguments);
    for (size_t rank = 0; rank < ranks; ++rank)
      for (auto [a, b] : llvm::zip_equal(expected[rank], found[rank]))
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.sizeBytes()), 0) << "rank " << rank << " of " << ranks << "\n" << text;
  }
  EXPECT_GT(joined, 100);
}

} // namespace
} // namespace tcc::test
