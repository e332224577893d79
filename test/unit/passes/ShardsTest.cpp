//===- ShardsTest.cpp - sharded updates against one rank ------------------===//
//
// Random models, optimizers, clipping, numbers of ranks and bucket sizes: three updates in each mode, by the naive
// evaluators of all ops, are compared with those of one rank with the global batch, and with mode ddp.
//
//===----------------------------------------------------------------------===//
#include "test/unit/passes/Program.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace tcc::test {
namespace {

constexpr int64_t kRankBatch = 2;

/// Elementwise ops on a batch and parameters of several shapes, some of which are read twice and one never.
std::string shardedModel(unsigned seed, int64_t batch) {
  std::mt19937 random(seed);
  const int64_t width = 1 + int64_t(random() % 7);
  const std::string type = "tensor<" + std::to_string(batch) + "x" + std::to_string(width) + "xf32>";
  std::string variables, reads, body, last = "%x";
  int next = 0;
  auto fresh = [&] { return "%v" + std::to_string(next++); };
  std::vector<std::pair<std::string, int64_t>> parameters; // the value that is read, its rows
  for (int i = 0, count = 2 + int(random() % 4); i < count; ++i) {
    const int64_t rows = 1 + int64_t(random() % 4);
    const std::string name = "p" + std::to_string(i);
    const std::string shape = "tensor<" + std::to_string(rows) + "x" + std::to_string(width) + "xf32>";
    variables += "train.variable @" + name + " : " + shape + " {role = \"parameter\"}\n";
    reads += "  %" + name + " = train.read @" + name + " : " + shape + "\n";
    parameters.push_back({"%" + name, rows});
  }
  for (int i = 0, count = 4 + int(random() % 6); i < count; ++i) {
    // The last parameter is never read.
    const auto &[name, rows] = parameters[i == 0 ? 0 : random() % (parameters.size() - 1)];
    const std::string row = "tensor<1x" + std::to_string(width) + "xf32>";
    const std::string sum = fresh(), wide = fresh(), made = fresh(), bounded = fresh();
    body += "  " + sum + " = train.reduce sum " + name + " [0] : tensor<" + std::to_string(rows) + "x" +
            std::to_string(width) + "xf32> -> " + row + "\n";
    body += "  " + wide + " = train.broadcast " + sum + " : " + row + " -> " + type + "\n";
    body += "  " + made + " = train." + (random() % 2 ? "mul " : "add ") + last + ", " + wide + " : " + type + "\n";
    body += "  " + bounded + " = train.tanh " + made + " : " + type + "\n";
    last = bounded;
  }
  return variables + "func.func @forward(%x: " + type + " {train.name = \"x\", train.sample_axis = 0 : i64}) -> (" +
         type + " {train.name = \"y\"}) {\n" + reads + body + "  return " + last + " : " + type + "\n}\n";
}

/// State by variable: the whole value if all ranks have it, else the concatenated shards of the ranks.
using State = std::map<std::string, Numbers>;

double randomNumber(const std::string &name, size_t index) {
  std::mt19937 random(unsigned(std::hash<std::string>()(name) * 31 + index));
  return double(int(random() % 2001) - 1000) / 1000;
}

class ShardedJob {
public:
  ShardedJob(unsigned seed, const Recipe &recipe, size_t ranks, int64_t bucketBytes)
      : ranks(ranks),
        program(shardedModel(seed, recipe.parallel.distributed() ? kRankBatch : kRankBatch * int64_t(ranks))),
        own(recipe.parallel.distributed() ? ranks : 1),
        holders(recipe.parallel.sharded() ? size_t(recipe.parallel.shardRanks()) : ranks) {
    program.describe(recipe, {"train"});
    EXPECT_TRUE(program.run([&](PassManager &manager) {
      manager.addPass(train::createAttachLossPass());
      manager.addPass(train::createElideUnusedPass());
      manager.addPass(train::createDifferentiatePass());
      manager.addPass(train::createBuildUpdatePass());
      train::DistributePassOptions distribute;
      distribute.bucketBytes = bucketBytes;
      manager.addPass(train::createDistributePass(distribute));
      manager.addPass(train::createDecomposeCompositesPass());
    })) << program.messages;
    for (auto variable : program.module->getOps<train::VariableOp>())
      for (size_t rank = 0; rank < own; ++rank)
        state[rank].emplace(variable.getSymName().str(), firstValue(variable, rank));
  }

  void update(int step) {
    auto function = program.module->lookupSymbol<func::FuncOp>("step");
    ASSERT_TRUE(function);
    std::vector<TensorList> arguments(own);
    for (size_t rank = 0; rank < own; ++rank)
      for (BlockArgument argument : function.getArguments()) {
        const unsigned number = argument.getArgNumber();
        const auto type = cast<RankedTensorType>(argument.getType());
        if (auto variable = function.getArgAttrOfType<StringAttr>(number, "train.variable")) {
          arguments[rank].push_back(state[rank].at(variable.str()));
          continue;
        }
        HostTensor value(type);
        if (function.getArgAttr(number, "train.scalars")) {
          const std::vector<std::string> names = program.scalars();
          for (size_t i = 0; i < names.size(); ++i)
            value.setDouble(int64_t(i), scalarOf(names[i]));
        } else if (auto name = function.getArgAttrOfType<StringAttr>(number, "train.name")) {
          for (int64_t i = 0; i < value.size(); ++i) // the rank's part of the global batch, in its order
            value.setDouble(i,
                            randomNumber(name.str() + std::to_string(step), rank * size_t(value.size()) + size_t(i)));
        }
        arguments[rank].push_back(value);
      }
    const std::vector<TensorList> results = evaluateRanks(function, arguments);
    for (size_t rank = 0; rank < own; ++rank)
      for (auto [i, result] : llvm::enumerate(results[rank])) {
        if (auto variable = function.getResultAttrOfType<StringAttr>(unsigned(i), "train.variable"))
          state[rank].at(variable.str()) = result;
        else if (function.getResultAttrOfType<StringAttr>(unsigned(i), "train.name") == "grad_norm")
          norms.push_back(result.getDouble(0));
      }
  }

  /// The whole state. Fails if ranks differ in values that they all hold, or if a shard has another size than its part.
  State collect() {
    State all;
    for (auto variable : program.module->getOps<train::VariableOp>()) {
      const std::string name = variable.getSymName().str();
      auto whole = variable->getAttrOfType<TypeAttr>("train.whole");
      Numbers &numbers = all[name];
      const size_t elements =
          size_t(cast<RankedTensorType>(whole ? whole.getValue() : variable.getType()).getNumElements());
      for (size_t rank = 0; rank < own; ++rank) {
        const Numbers held = values(state[rank].at(name));
        if (whole && rank >= holders) // the rank's node holds copies of the first node's shards
          EXPECT_EQ(held, values(state[rank % holders].at(name))) << name << " on rank " << rank;
        else if (whole)
          numbers.insert(numbers.end(), held.begin(), held.end());
        else if (rank == 0)
          numbers = held;
        else
          EXPECT_EQ(held, numbers) << name << " on rank " << rank;
        if (whole) {
          EXPECT_EQ(held.size(), (elements + holders - 1) / holders) << name;
          shards += rank == 0;
        }
      }
      numbers.resize(elements); // without the padding
    }
    return all;
  }

  std::vector<double> norms;
  int shards = 0;

private:
  static double scalarOf(const std::string &name) {
    static const std::map<std::string, double> known{{"lr", 0.01},
                                                     {"decay", 0.999},
                                                     {"weight_decay", 0.01},
                                                     {"beta1", 0.9},
                                                     {"one_minus_beta1", 0.1},
                                                     {"beta2", 0.99},
                                                     {"one_minus_beta2", 0.01},
                                                     {"eps", 1e-8},
                                                     {"clip_norm", 0.05},
                                                     {"momentum", 0.9},
                                                     {"one_minus_momentum", 0.1}};
    auto found = known.find(name.substr(name.find('.') == std::string::npos ? 0 : name.find('.') + 1));
    return found == known.end() ? 0.5 : found->second;
  }

  HostTensor firstValue(train::VariableOp variable, size_t rank) {
    HostTensor value(cast<RankedTensorType>(variable.getType()));
    auto whole = variable->getAttrOfType<TypeAttr>("train.whole");
    const int64_t elements = whole ? cast<RankedTensorType>(whole.getValue()).getNumElements() : value.size();
    for (int64_t i = 0; i < value.size(); ++i) {
      const int64_t element = whole ? int64_t(rank % holders) * value.size() + i : i;
      value.setDouble(i, variable.getFill()   ? variable.getFill()->convertToDouble()
                         : element < elements ? randomNumber(variable.getSymName().str(), size_t(element))
                                              : 0);
    }
    return value;
  }

  const size_t ranks;
  Program program;
  const size_t own; ///< ranks of this job
  const size_t holders; ///< number of ranks that together hold all shards
  std::map<size_t, std::map<std::string, HostTensor>> state;
};

void expectSame(const State &found, const State &expected, bool bits, const std::string &what) {
  for (const auto &[name, numbers] : expected) {
    const auto other = found.find(name);
    ASSERT_NE(other, found.end()) << what << ": " << name;
    ASSERT_EQ(other->second.size(), numbers.size()) << what << ": " << name;
    for (size_t i = 0; i < numbers.size(); ++i)
      if (bits)
        ASSERT_EQ(other->second[i], numbers[i]) << what << ": " << name << "[" << i << "]";
      else
        ASSERT_NEAR(other->second[i], numbers[i], 2e-6 + 2e-5 * std::fabs(numbers[i]))
            << what << ": " << name << "[" << i << "]";
  }
}

TEST(Shards, EveryModeMakesTheUpdatesOfOneRank) {
  constexpr unsigned kSeed = 23;
  std::mt19937 random(kSeed);
  int shards = 0, hybrids = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    const unsigned model = unsigned(random());
    const size_t ranks = 2 + random() % 5;
    const int64_t bucketBytes = int64_t(1) << random() % 10;
    Recipe recipe;
    recipe.loss.kind = "mse";
    recipe.loss.target = "t";
    const char *kinds[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb", "muon"};
    plan::Optimizer &optimizer = *recipe.training.mutable_optimizer();
    const std::string kind = kinds[random() % std::size(kinds)];
    optimizer.set_kind(kind);
    if (kind == "sgd")
      (*optimizer.mutable_numbers())["momentum"] = 0.9;
    const bool clips = random() % 2;
    if (clips)
      recipe.training.set_clip_norm(0.05);
    SCOPED_TRACE(kind + (clips ? " with clipping, " : ", ") + std::to_string(ranks) + " ranks, buckets of " +
                 std::to_string(bucketBytes));
    const int64_t nodes = ranks % 3 == 0 && random() % 2 ? 3 : 2;
    auto run = [&](const std::string &mode, std::vector<double> *norms) {
      Recipe own = recipe;
      own.parallel.mode = mode;
      if (own.parallel.replicates())
        own.parallel.shardWithinNode = int64_t(ranks) / nodes;
      else
        own.parallel.ranks = own.parallel.sharded() ? int64_t(ranks) : 0;
      ShardedJob job(model, own, ranks, bucketBytes);
      for (int step = 0; step < 3; ++step)
        job.update(step);
      State state = job.collect();
      shards += job.shards;
      if (norms)
        *norms = job.norms;
      return state;
    };
    std::vector<double> norms;
    const State one = run("none", &norms), ddp = run("ddp", nullptr);
    ASSERT_GT(norms.at(0), 0);
    // Muon's iteration rounds to 16 bits, so that another order of sums gives quite different numbers.
    if (kind != "muon")
      expectSame(ddp, one, /*bits=*/false, "ddp beside one rank");
    // A norm of shards is summed in another order.
    const bool bits = !clips && kind != "lamb";
    for (const char *mode : {"grad_op", "full"})
      if (bits || kind != "muon")
        expectSame(run(mode, nullptr), ddp, bits, std::string(mode) + " beside ddp");
    // With nodes of 2 or 4 ranks, sums within and then across nodes are the tree over all ranks.
    if (const size_t node = ranks / size_t(nodes); node > 1 && ranks % size_t(nodes) == 0) {
      const bool same = bits && node % 3 != 0;
      if (same || kind != "muon")
        expectSame(run("hybrid", nullptr), ddp, same, "hybrid beside ddp");
      ++hybrids;
    }
    if (HasFatalFailure())
      return;
  }
  EXPECT_GT(shards, 200);
  EXPECT_GT(hybrids, 8);
}

} // namespace
} // namespace tcc::test
