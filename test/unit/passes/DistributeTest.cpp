//===- DistributeTest.cpp - buckets change no bit ---------------------------===//
//
// Random entries with sums over ranks, before and after distribute: every rank's results, by the naive evaluators of
// all ops, have the same bits for any bucket size and any number of ranks, and no sum runs before its operands are
// complete.
//
//===----------------------------------------------------------------------===//
#include "test/unit/passes/Program.h"

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

/// An entry of random ops on vectors of 1 to 6 elements, f32 and bf16, about half of them collectives.
std::string randomEntry(std::mt19937 &random, size_t ranks) {
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
    auto shards = [&](const char *op, const std::string &type) {
      body += "  " + name + " = train." + op + "(" + from.name + ") ranks = " + std::to_string(ranks) + " : (" +
              from.type + ") -> " + type + "\n";
      made.type = type;
    };
    const std::string element = from.type.find("bf16") == std::string::npos ? "f32" : "bf16";
    switch (random() % 9) {
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
    case 6:
    case 7: {
      made.size = (from.size + int(ranks) - 1) / int(ranks);
      shards(random() % 3 ? "reduce_scatter" : "own_shard", typeOf(made.size, element));
      break;
    }
    case 8: // an all-gather to one of the sizes whose shards have the size of `from`
      made.size = (from.size - 1) * int(ranks) + 1 + int(random() % ranks);
      if (made.size > 24)
        made.size = from.size, body += "  " + name + " = train.abs " + from.name + " : " + from.type + "\n";
      else
        shards("all_gather", typeOf(made.size, element));
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

TEST(Distribute, BucketsChangeNoBitOnAnyRank) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  int joined = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    const size_t ranks = 1 + random() % 5;
    const std::string text = randomEntry(random, ranks);
    auto module = parseSourceString<ModuleOp>(text, ParserConfig(&ranksContext()));
    ASSERT_TRUE(module) << text;
    auto function = *module->getOps<func::FuncOp>().begin();
    std::vector<TensorList> arguments(ranks);
    for (TensorList &own : arguments)
      for (Type type : function.getArgumentTypes()) {
        own.emplace_back(cast<RankedTensorType>(type));
        for (int64_t i = 0; i < own.back().size(); ++i)
          own.back().setDouble(i, std::ldexp(double(int(random() % 2001) - 1000), int(random() % 20) - 15));
      }
    const std::vector<TensorList> expected = evaluateRanks(function, arguments);
    PassManager passes(&ranksContext());
    train::DistributePassOptions options;
    options.bucketBytes = int64_t(1) << random() % 9;
    passes.addPass(train::createDistributePass(options));
    ASSERT_TRUE(succeeded(passes.run(*module))) << text; // The pass manager verifies the result: each operand is defined before its reader.
    module->walk([&](train::Collective op) {
      joined += op->getNumOperands() > 1;
      int64_t bytes = 0;
      for (auto [input, result] : llvm::zip_equal(op->getOperands(), op->getResults()))
        bytes += std::max(train::tensorBytes(input.getType()), train::tensorBytes(result.getType()));
      EXPECT_TRUE(op->getNumOperands() == 1 || bytes <= options.bucketBytes);
    });
    const std::vector<TensorList> found = evaluateRanks(function, arguments);
    for (size_t rank = 0; rank < ranks; ++rank)
      for (auto [a, b] : llvm::zip_equal(expected[rank], found[rank]))
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.sizeBytes()), 0) << "rank " << rank << " of " << ranks << "\n" << text;
  }
  EXPECT_GT(joined, 100);
}

TEST(Collectives, ABroadcastIsFromARank) {
  for (int root : {0, 3, -1}) {
    std::string message;
    ScopedDiagnosticHandler handler(&ranksContext(), [&](Diagnostic &diagnostic) {
      message += diagnostic.str();
      return success();
    });
    const std::string text = "func.func @step(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
                             "  %b = train.rank_broadcast(%a) {root = " +
                             std::to_string(root) +
                             " : i64} : (tensor<2xf32>) -> tensor<2xf32>\n"
                             "  return %b : tensor<2xf32>\n}\n";
    EXPECT_EQ(bool(parseSourceString<ModuleOp>(text, ParserConfig(&ranksContext()))), root >= 0) << message;
    EXPECT_EQ(message.find("needs a rank that is not negative") != std::string::npos, root < 0) << message;
  }
}

} // namespace
} // namespace tcc::test
