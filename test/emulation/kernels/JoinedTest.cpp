//===- JoinedTest.cpp - kernels that share a launch, on the machine -------===//
//
// Kernels that compute elements, rows of a warp, rows of a block and columns, alone and in one launch: the bits are the
// same in every order of threads, and if results overwrite operands in place. Each operand is an allocation of its own,
// so that a table entry of the wrong kernel is found.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/kernels/Compare.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace tcc;
using tcc::emulation::ThreadOrder;
using tcc::train::HostTensor;

namespace {

/// Two elementwise kernels, one of them twice; a row sum with one warp a row; a row sum with one block a row.
constexpr const char *kRows = R"(
func.func @f(%a: tensor<1003xf32>, %b: tensor<1003xf32>, %c: tensor<17x64xbf16>, %d: tensor<40x300xf32>, %e: tensor<3x20000xf32>)
    -> (tensor<1003xf32>, tensor<1003xf32>, tensor<17x64xbf16>, tensor<40x1xf32>, tensor<3x1xf32>) {
  %0 = train.fused(%a) : (tensor<1003xf32>) -> tensor<1003xf32> {
  ^bb0(%p: tensor<1003xf32>):
    %r = train.exp %p : tensor<1003xf32>
    train.yield %r : tensor<1003xf32>
  }
  %1 = train.fused(%b) : (tensor<1003xf32>) -> tensor<1003xf32> {
  ^bb0(%p: tensor<1003xf32>):
    %r = train.exp %p : tensor<1003xf32>
    train.yield %r : tensor<1003xf32>
  }
  %2 = train.fused(%c) : (tensor<17x64xbf16>) -> tensor<17x64xbf16> {
  ^bb0(%p: tensor<17x64xbf16>):
    %r = train.tanh %p : tensor<17x64xbf16>
    train.yield %r : tensor<17x64xbf16>
  }
  %3 = train.fused(%d) : (tensor<40x300xf32>) -> tensor<40x1xf32> {
  ^bb0(%p: tensor<40x300xf32>):
    %r = train.reduce sum %p [1] : tensor<40x300xf32> -> tensor<40x1xf32>
    train.yield %r : tensor<40x1xf32>
  }
  %4 = train.fused(%e) : (tensor<3x20000xf32>) -> tensor<3x1xf32> {
  ^bb0(%p: tensor<3x20000xf32>):
    %r = train.reduce sum %p [1] : tensor<3x20000xf32> -> tensor<3x1xf32>
    train.yield %r : tensor<3x1xf32>
  }
  return %0, %1, %2, %3, %4 : tensor<1003xf32>, tensor<1003xf32>, tensor<17x64xbf16>, tensor<40x1xf32>, tensor<3x1xf32>
}
)";

/// Column sums of a block, with a scalar operand, and an update with two results.
constexpr const char *kColumns = R"(
func.func @f(%a: tensor<4096x8xf32>, %b: tensor<f32>, %c: tensor<70xf32>, %d: tensor<70xf32>)
    -> (tensor<1x8xf32>, tensor<f32>, tensor<70xf32>, tensor<70xf32>) {
  %0 = train.fused(%a) : (tensor<4096x8xf32>) -> tensor<1x8xf32> {
  ^bb0(%p: tensor<4096x8xf32>):
    %r = train.reduce sum %p [0] : tensor<4096x8xf32> -> tensor<1x8xf32>
    train.yield %r : tensor<1x8xf32>
  }
  %1 = train.fused(%b) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%p: tensor<f32>):
    %r = train.sqrt %p : tensor<f32>
    train.yield %r : tensor<f32>
  }
  %2:2 = train.fused(%c, %d) : (tensor<70xf32>, tensor<70xf32>) -> (tensor<70xf32>, tensor<70xf32>) {
  ^bb0(%p: tensor<70xf32>, %q: tensor<70xf32>):
    %r = train.mul %p, %q : tensor<70xf32>
    %s = train.sub %p, %r : tensor<70xf32>
    train.yield %s, %r : tensor<70xf32>, tensor<70xf32>
  }
  return %0, %1, %2#0, %2#1 : tensor<1x8xf32>, tensor<f32>, tensor<70xf32>, tensor<70xf32>
}
)";

/// All kernels of @f in one launch.
void joinAll(ModuleOp module) {
  auto function = *module.getOps<func::FuncOp>().begin();
  SmallVector<train::FusedOp> kernels(function.getOps<train::FusedOp>());
  SmallVector<Value> operands, results;
  SmallVector<Type> types;
  for (train::FusedOp kernel : kernels) {
    llvm::append_range(operands, kernel->getOperands());
    llvm::append_range(results, kernel->getResults());
    llvm::append_range(types, kernel->getResultTypes());
  }
  OpBuilder builder(kernels.front());
  auto joined = train::JoinedOp::create(builder, module.getLoc(), types, operands);
  for (auto [old, now] : llvm::zip_equal(results, joined->getResults()))
    old.replaceAllUsesWith(now);
  Block &body = joined.getBody().emplaceBlock();
  builder.setInsertionPointToStart(&body);
  for (train::FusedOp kernel : kernels) {
    kernel->remove();
    builder.insert(kernel);
    for (OpOperand &operand : kernel->getOpOperands())
      operand.set(body.addArgument(operand.get().getType(), module.getLoc()));
  }
  ASSERT_TRUE(succeeded(joined.verify()));
}

std::vector<HostTensor> argumentsOf(ModuleOp module) {
  std::vector<HostTensor> arguments;
  for (Type type : (*module.getOps<func::FuncOp>().begin()).getArgumentTypes()) {
    HostTensor tensor(cast<RankedTensorType>(type));
    for (int64_t i = 0; i < tensor.size(); ++i)
      tensor.setDouble(i, 0.25 + double((i * 2654435761u) % 1000) / 700);
    arguments.push_back(std::move(tensor));
  }
  return arguments;
}

class JoinedKernels : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    alone = parseSourceString<ModuleOp>(GetParam(), &test::testContext());
    together = parseSourceString<ModuleOp>(GetParam(), &test::testContext());
    ASSERT_TRUE(alone && together);
    joinAll(*together);
    emulated.add(*alone);
    emulated.add(*together);
    ASSERT_TRUE(emulated.compile());
  }

  OwningOpRef<ModuleOp> alone, together;
  test::EmulatedFunctions emulated{{true, ThreadOrder::Ascending, 1}};
};

TEST_P(JoinedKernels, HaveTheirOwnBits) {
  const std::vector<HostTensor> arguments = argumentsOf(*alone);
  const std::vector<HostTensor> expected = emulated.run(*alone, arguments);
  ASSERT_FALSE(expected.empty());
  for (auto [order, placement] : {std::pair(ThreadOrder::Ascending, test::Placement::Aligned),
                                  std::pair(ThreadOrder::Descending, test::Placement::InPlace),
                                  std::pair(ThreadOrder::Seeded, test::Placement::InPlace)}) {
    emulated.options().order = order;
    const std::vector<HostTensor> got = emulated.run(*together, arguments, placement);
    ASSERT_EQ(got.size(), expected.size());
    for (auto [one, wanted] : llvm::zip_equal(got, expected))
      test::expectSameBits(one, wanted);
  }
}

TEST_P(JoinedKernels, APointerOfAnotherKernelIsFound) {
  // The first kernel gets the third one's operand, which is shorter.
  emulated.tamper = [&](std::vector<uint64_t> &pointers) { pointers[0] = pointers[4]; };
  (void)emulated.run(*together, argumentsOf(*together));
  ASSERT_TRUE(emulated.found);
  EXPECT_EQ(emulated.found->kind, emulation::FaultKind::OutOfBounds) << emulated.found->message();
}

INSTANTIATE_TEST_SUITE_P(Launches, JoinedKernels, testing::Values(kRows, kColumns),
                         [](const auto &info) { return info.index ? "Columns" : "Rows"; });

} // namespace
