//===- VerifierGridTest.cpp - kernels of a GPU and their grids -----------===//
#include "TestPlan.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Spaces.h"

#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::test;

namespace {
plan::Instruction &kernelCall(plan::Plan &plan) { return *plan.mutable_entries(0)->mutable_instructions(1); }
plan::CodeObject &code(plan::Plan &plan) { return *plan.mutable_code_objects(0); }

void bind(plan::Plan &plan) { bindCode(code(plan), kNoCode); }

/// The plan of TestPlan.h for a card: its kernels are PTX on grids, and the product is gone.
plan::Plan makeCudaPlan() {
  plan::Plan plan = makeTestPlan();
  plan.set_target("cuda:sm_90");
  plan.set_execution(plan::Plan::GRIDS);
  code(plan).set_format(plan::CodeObject::PTX);
  code(plan).set_processor("sm_90");
  for (plan::KernelSignature &kernel : *code(plan).mutable_kernels())
    kernel.set_tile_threads(32);
  for (plan::Instruction &instruction : *plan.mutable_entries(0)->mutable_instructions()) {
    if (instruction.has_kernel()) {
      instruction.mutable_kernel()->mutable_grid()->set_blocks(2);
      instruction.mutable_kernel()->mutable_grid()->set_threads(64);
    } else if (instruction.has_matmul()) {
      instruction.clear_operands();
      instruction.clear_tiles();
      instruction.clear_scratch_slot_bytes();
      instruction.clear_scratch_offset();
      instruction.mutable_copy();
      addOperand(instruction, kT, 1, -1);
      addOperand(instruction, kZ, -1, 1);
    }
  }
  plan.mutable_entries(0)->set_transient_bytes(1024);
  plan::setSpaceBytes(plan, plan::TRANSIENT, 1024);
  bind(plan);
  return plan;
}

/// The first kernel takes scratch, a thread a tile.
void giveScratch(plan::Plan &plan, uint64_t slot) {
  const std::string symbol = kernelCall(plan).kernel().symbol();
  for (plan::KernelSignature &kernel : *code(plan).mutable_kernels())
    if (kernel.symbol() == symbol) {
      kernel.set_scratch_bytes(slot);
      kernel.set_tile_threads(1);
    }
  kernelCall(plan).set_scratch_slot_bytes(slot);
  kernelCall(plan).set_scratch_offset(1024);
  uint64_t bytes = 1024 + std::min<uint64_t>(4, plan.max_workers()) * slot;
  plan.mutable_entries(0)->set_transient_bytes(bytes);
  plan::setSpaceBytes(plan, plan::TRANSIENT, bytes);
  bind(plan);
}
} // namespace

TEST(VerifierGrid, AProductOfCublasLt) {
  auto planWith = [](auto &&change) {
    plan::Plan plan = makeTestPlan();
    const plan::Plan cuda = makeCudaPlan();
    plan.set_target("cuda:sm_90");
    plan.set_execution(plan::Plan::GRIDS);
    *plan.mutable_code_objects() = cuda.code_objects();
    for (plan::Instruction &instruction : *plan.mutable_entries(0)->mutable_instructions()) {
      if (instruction.has_kernel()) {
        instruction.mutable_kernel()->mutable_grid()->set_blocks(2);
        instruction.mutable_kernel()->mutable_grid()->set_threads(64);
      } else if (instruction.has_matmul()) {
        plan::MatmulCall &call = *instruction.mutable_matmul();
        call.set_implementation(plan::MatmulCall::BLAS);
        call.set_tile_batch(call.batch());
        call.set_tile_m(call.m());
        call.set_tile_n(call.n());
        call.set_chunk_k(call.k());
        uint64_t slot = instruction.scratch_slot_bytes(), lost = plan::kLibraryWorkspaceAlignment;
        call.set_library_scratch_bytes(slot > lost ? slot - lost : 0);
        instruction.set_tiles(1);
        // One tile has one slot.
        plan.mutable_entries(0)->set_transient_bytes(instruction.scratch_offset() + slot);
        plan::setSpaceBytes(plan, plan::TRANSIENT, instruction.scratch_offset() + slot);
        change(instruction, call);
      }
    }
    std::string all;
    for (const std::string &problem : plan::verifyPlan(plan, 20))
      all += problem + "\n";
    return all;
  };
  auto none = [](plan::Instruction &, plan::MatmulCall &) {};
  EXPECT_EQ(planWith(none), "");
  auto finds = [&](auto &&change, const char *words) {
    EXPECT_NE(planWith(change).find(words), std::string::npos) << words << "\n" << planWith(change);
  };
  finds([](auto &, plan::MatmulCall &call) { call.set_implementation(plan::MatmulCall::LIBRARY); },
        "a call of a CPU's library, the plan is for cuda:sm_90");
  finds([](auto &, plan::MatmulCall &call) { call.set_tile_m(1); }, "it is cut along m");
  finds([](plan::Instruction &instruction,
           plan::MatmulCall &call) { call.set_library_scratch_bytes(instruction.scratch_slot_bytes()); },
        "does not hold an aligned workspace");
  finds([](auto &, plan::MatmulCall &call) { call.set_widened(true); }, "cuBLASLt does not convert operands");
  finds([](auto &, plan::MatmulCall &call) { call.set_dtype(plan::BF16), call.set_tf32(true); }, "in TF32");
  finds([](auto &, plan::MatmulCall &call) { call.mutable_epilogue()->set_kind(plan::Epilogue::BIAS); },
        "a matmul with this epilogue takes 4 operands");
  finds([](auto &, plan::MatmulCall &call) { call.mutable_epilogue(); }, "an epilogue that no library has");
  finds(
      [](auto &, plan::MatmulCall &call) {
        call.mutable_epilogue()->set_kind(plan::Epilogue::BIAS);
        call.mutable_epilogue()->set_sums(plan::Epilogue::OF_RESULT);
      },
      "an epilogue that no library has");
  finds(
      [](auto &, plan::MatmulCall &call) {
        call.mutable_epilogue()->set_kind(plan::Epilogue::GELU_GRADIENT);
        call.set_n(call.n() + 1), call.set_tile_n(call.n());
      },
      "in multiples of 8");
  finds([](auto &, plan::MatmulCall &call) {
    call.mutable_epilogue()->set_kind(plan::Epilogue::GELU);
    call.mutable_epilogue()->set_bias_of_each(true);
  }, "an epilogue that no library has");
  finds([](auto &, plan::MatmulCall &call) {
    call.mutable_epilogue()->set_kind(plan::Epilogue::GELU);
    call.set_batch(2), call.set_tile_batch(2);
  }, "an epilogue that no library has");
  // Factors have their own type; a bias has the result's, a vector for each product of a batch if the call says so.
  auto withBias = [&](plan::DType factors, int64_t batch, bool ofEach, int64_t biases) {
    return planWith([&](plan::Instruction &instruction, plan::MatmulCall &call) {
      call.mutable_epilogue()->set_kind(plan::Epilogue::BIAS);
      call.mutable_epilogue()->set_bias_of_each(ofEach);
      call.set_result_dtype(plan::F32);
      call.set_dtype(factors);
      call.set_batch(batch), call.set_tile_batch(batch);
      call.set_m(call.m() / batch), call.set_tile_m(call.m());
      call.set_k(call.k() / batch), call.set_chunk_k(call.k());
      *instruction.add_operands() = instruction.operands(2);
      plan::Operand &bias = *instruction.mutable_operands(2);
      bias = instruction.operands(1);
      bias.set_byte_offset(16 * 32 * 4 - uint64_t(biases) * 4);
    });
  };
  EXPECT_EQ(withBias(plan::F32, 1, false, 32), "");
  EXPECT_EQ(withBias(plan::BF16, 1, false, 32), "");
  EXPECT_EQ(withBias(plan::F32, 2, false, 32), "");
  EXPECT_EQ(withBias(plan::F32, 2, true, 64), "");
  for (auto [batch, ofEach, biases] : {std::tuple(1, false, 31), {2, true, 63}})
    EXPECT_NE(withBias(plan::F32, batch, ofEach, biases).find("the bias"), std::string::npos) << batch;
  // No call on a CPU computes epilogues.
  plan::Plan cpu = makeTestPlan();
  for (plan::Instruction &instruction : *cpu.mutable_entries(0)->mutable_instructions())
    if (instruction.has_matmul())
      instruction.mutable_matmul()->mutable_epilogue();
  EXPECT_NE(fmt::format("{}", fmt::join(plan::verifyPlan(cpu, 20), "\n")).find("only cuBLASLt has epilogues"),
            std::string::npos);
  for (plan::Instruction &instruction : *cpu.mutable_entries(0)->mutable_instructions())
    if (instruction.has_matmul())
      instruction.mutable_matmul()->set_implementation(plan::MatmulCall::BLAS);
  std::string all;
  for (const std::string &problem : plan::verifyPlan(cpu, 20))
    all += problem;
  EXPECT_NE(all.find("a call of cuBLASLt, the plan is for"), std::string::npos) << all;
}

TEST(VerifierGrid, AConvolutionOfCudnn) {
  auto problems = [](const plan::Plan &plan) { return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 20), "\n")); };
  auto planWith = [&](auto &&change) {
    plan::Plan plan = makeTestPlan();
    plan::ConvolutionCall &call = makeConvolution(plan);
    plan.mutable_entries(0)->mutable_buffers(kZ)->mutable_type()->set_dims(0, 4);
    const plan::Plan cuda = makeCudaPlan();
    plan.set_target("cuda:sm_90");
    plan.set_execution(plan::Plan::GRIDS);
    *plan.mutable_code_objects() = cuda.code_objects();
    for (plan::Instruction &instruction : *plan.mutable_entries(0)->mutable_instructions()) {
      if (instruction.has_kernel()) {
        instruction.mutable_kernel()->mutable_grid()->set_blocks(2);
        instruction.mutable_kernel()->mutable_grid()->set_threads(64);
      } else if (instruction.has_convolution()) {
        call.set_implementation(plan::ConvolutionCall::CUDNN);
        call.set_tf32(true);
        const uint64_t slot = instruction.scratch_slot_bytes(), lost = plan::kLibraryWorkspaceAlignment;
        call.set_library_scratch_bytes(slot > lost ? slot - lost : 0);
        instruction.set_tiles(1);
        plan.mutable_entries(0)->set_transient_bytes(instruction.scratch_offset() + slot);
        plan::setSpaceBytes(plan, plan::TRANSIENT, instruction.scratch_offset() + slot);
        change(instruction, call);
      }
    }
    return problems(plan);
  };
  EXPECT_EQ(planWith([](auto &, auto &) {}), "");
  auto finds = [&](auto &&change, const char *words) {
    EXPECT_NE(planWith(change).find(words), std::string::npos) << words << "\n" << planWith(change);
  };
  finds([](auto &, plan::ConvolutionCall &call) { call.set_implementation(plan::ConvolutionCall::OWN); },
        "a convolution of a CPU's kernels, the plan is for cuda:sm_90");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_dtype(plan::BF16); }, "only cuDNN convolves f32 in TF32");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_dtype(plan::F64); }, "cuDNN makes no F64 of F64");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_dtype(plan::BF16), call.set_result_dtype(plan::F32); },
        "cuDNN makes no F32 of BF16");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_block_words(8); }, "in one piece");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_form(plan::ConvolutionCall::PLANES); }, "in one piece");
  finds([](auto &, plan::ConvolutionCall &call) { call.set_x_dims(0, int64_t(1) << 32); }, "is more than cuDNN takes");
  finds([](plan::Instruction &instruction,
           plan::ConvolutionCall &call) { call.set_library_scratch_bytes(instruction.scratch_slot_bytes() + 1); },
        "does not hold an aligned workspace");
  // A bias is one more operand, of y's type and channels; gradients have none.
  auto withBias = [&](plan::ConvolutionCall::Finish finish, uint64_t missing) {
    return planWith([&](plan::Instruction &instruction, plan::ConvolutionCall &call) {
      call.set_finish(finish);
      *instruction.add_operands() = instruction.operands(2);
      *instruction.mutable_operands(2) = instruction.operands(1);
      instruction.mutable_operands(2)->set_byte_offset(16 * 32 * 4 - 8 + missing);
    });
  };
  EXPECT_EQ(withBias(plan::ConvolutionCall::BIAS, 0), "");
  EXPECT_NE(withBias(plan::ConvolutionCall::BIAS, 4).find("the bias"), std::string::npos);
  // Of earlier versions: with ReLU, which hid NaN.
  EXPECT_NE(withBias(static_cast<plan::ConvolutionCall::Finish>(2), 0).find("bias that no library has"),
            std::string::npos);
  finds([](auto &, plan::ConvolutionCall &call) { call.set_finish(plan::ConvolutionCall::BIAS); },
        "a convolution with a bias takes 4 operands");
  finds([](auto &, plan::ConvolutionCall &call) {
    call.set_finish(plan::ConvolutionCall::BIAS), call.set_kind(plan::ConvolutionCall::INPUT_GRADIENT);
  }, "bias that no library has");
  // No call on a CPU adds a bias or rounds to TF32.
  plan::Plan cpu = makeTestPlan();
  makeConvolution(cpu).set_tf32(true);
  EXPECT_NE(problems(cpu).find("only cuDNN convolves f32 in TF32"), std::string::npos);
  cpu.mutable_entries(0)->mutable_instructions(3)->mutable_convolution()->set_implementation(plan::ConvolutionCall::CUDNN);
  EXPECT_NE(problems(cpu).find("a convolution of cuDNN, the plan is for"), std::string::npos) << problems(cpu);
}

TEST(VerifierGrid, APlanForACard) {
  plan::Plan plan = makeCudaPlan();
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
  giveScratch(plan, 64);
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
}

TEST(VerifierGrid, GridsThatNoCardHas) {
  for (auto [blocks, threads] : {std::pair(0u, 64u), {1u, 0u}, {1u, 33u}, {1u, 1056u}, {1u << 31, 64u}}) {
    plan::Plan plan = makeCudaPlan();
    kernelCall(plan).mutable_kernel()->mutable_grid()->set_blocks(blocks);
    kernelCall(plan).mutable_kernel()->mutable_grid()->set_threads(threads);
    expectProblem(plan, {"instruction 1", fmt::format("a grid of {} blocks of {} threads", blocks, threads)});
  }
  plan::Plan plan = makeCudaPlan();
  kernelCall(plan).mutable_kernel()->clear_grid();
  expectProblem(plan, {"instruction 1", "a grid of 0 blocks"});
}

/// The verifier's messages about the test plan's product with a bias, which a kernel adds where no library does. The
/// bias is the last 32 elements of w; `change` gets the instruction, its call and the kernel's signature.
template <typename Change> std::string problemsOfFinish(Change &&change) {
  plan::Plan plan = makeCudaPlan();
  plan::Instruction *product = nullptr;
  for (plan::Instruction &instruction : *plan.mutable_entries(0)->mutable_instructions())
    if (instruction.has_copy() && instruction.operands(1).buffer() == kZ)
      product = &instruction;
  product->clear_operands();
  plan::MatmulCall &call = *product->mutable_matmul();
  call.set_implementation(plan::MatmulCall::BLAS);
  call.set_dtype(plan::F32);
  call.set_batch(1), call.set_m(4), call.set_n(32), call.set_k(16);
  call.set_tile_batch(1), call.set_tile_m(4), call.set_tile_n(32), call.set_chunk_k(16);
  product->set_tiles(1);
  addOperand(*product, kT, 1, -1);
  addOperand(*product, kW, 0, -1);
  addOperand(*product, kW, 0, -1);
  product->mutable_operands(2)->set_byte_offset(16 * 32 * 4 - 32 * 4);
  addOperand(*product, kZ, -1, 1);
  plan::Epilogue &epilogue = *call.mutable_epilogue();
  epilogue.set_kind(plan::Epilogue::BIAS);
  plan::KernelCall &kernel = *epilogue.add_kernels();
  plan::KernelSignature &signature = *code(plan).add_kernels();
  signature.set_symbol("finish"), kernel.set_symbol("finish");
  signature.set_tiles(1), kernel.set_tiles(1);
  signature.set_tile_threads(32);
  kernel.mutable_grid()->set_blocks(1), kernel.mutable_grid()->set_threads(64);
  for (auto [bytes, written] : {std::pair(512, false), {128, false}, {512, true}}) {
    plan::KernelSignature::Operand &operand = *signature.add_operands();
    operand.set_bytes(uint64_t(bytes));
    operand.set_alignment(16);
    operand.set_read(!written);
    operand.set_write(written);
  }
  signature.add_in_place()->set_destination(2);
  change(*product, call, signature);
  bind(plan);
  return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 20), "\n"));
}

TEST(VerifierGrid, KernelsInPlaceOfAnEpilogue) {
  using Instruction = plan::Instruction;
  using Call = plan::MatmulCall;
  using Signature = plan::KernelSignature;
  EXPECT_EQ(problemsOfFinish([](auto &&...) {}), "");
  auto finds = [&](auto &&change, const char *words) {
    const std::string problems = problemsOfFinish(change);
    EXPECT_NE(problems.find(words), std::string::npos) << words << "\n" << problems;
  };
  finds([](Instruction &, Call &, Signature &kernel) { kernel.clear_in_place(); },
        "kernel 'finish' cannot write its operand 2 in place of 0");
  finds([](Instruction &, Call &, Signature &kernel) { kernel.mutable_operands(1)->set_bytes(256); },
        "operand 1 of kernel 'finish' needs 256 bytes");
  finds(
      [](Instruction &, Call &, Signature &kernel) {
        kernel.mutable_operands(1)->set_read(false), kernel.mutable_operands(1)->set_write(true);
      },
      "is written, the plan says it is read");
  finds([](Instruction &, Call &,
           Signature &kernel) { kernel.mutable_operands()->RemoveLast(), kernel.clear_in_place(); },
        "takes 2 operands, it is given 3");
  finds([](Instruction &, Call &, Signature &kernel) { kernel.set_scratch_bytes(64); }, "has scratch of its own");
  finds([](Instruction &, Call &call,
           Signature &) { *call.mutable_epilogue()->add_kernels() = call.epilogue().kernels(0); },
        "2 kernels compute the epilogue, 1 were expected");
  finds([](Instruction &, Call &call, Signature &) { call.mutable_epilogue()->set_exact_bias(true); },
        "a matmul with this epilogue takes 5 operands");
  finds([](Instruction &, Call &call, Signature &) { call.mutable_epilogue()->set_sum_parts(4); },
        "an epilogue that no library has");
  // With gelu's input kept, the plain product is behind it: C is written by the kernel alone.
  auto keeps = [](Instruction &instruction, Call &call, bool writes, Signature &kernel) {
    call.mutable_epilogue()->set_kind(plan::Epilogue::GELU);
    call.mutable_epilogue()->set_keeps_input(true);
    *instruction.add_operands() = instruction.operands(3);
    kernel.mutable_operands(2)->set_write(writes);
    kernel.mutable_operands(2)->set_read(!writes);
  };
  finds([&](Instruction &instruction, Call &call, Signature &kernel) { keeps(instruction, call, false, kernel); },
        "its kernels do not write operand 3");
  EXPECT_EQ(problemsOfFinish([&](Instruction &instruction, Call &call, Signature &kernel) {
              keeps(instruction, call, true, kernel);
            }).find("its kernels"),
            std::string::npos);
  // Sums of an operand in parts: the parts' results are at the start of the scratch.
  auto sums = [](Instruction &instruction, Call &call, uint64_t scratch) {
    plan::Epilogue &epilogue = *call.mutable_epilogue();
    epilogue.set_kind(plan::Epilogue::NONE);
    epilogue.set_sums(plan::Epilogue::OF_B);
    epilogue.set_sum_parts(8);
    *instruction.mutable_operands(2) = instruction.operands(3);
    *epilogue.add_kernels() = epilogue.kernels(0);
    instruction.set_scratch_slot_bytes(scratch);
  };
  finds([&](Instruction &instruction, Call &call, Signature &) { sums(instruction, call, 1024); },
        "scratch of 1024 bytes does not hold aligned sums of 1024");
  finds(
      [&](Instruction &instruction, Call &call, Signature &kernel) {
        sums(instruction, call, 2048);
        kernel.mutable_operands()->RemoveLast(), kernel.clear_in_place();
        kernel.mutable_operands(1)->set_read(false), kernel.mutable_operands(1)->set_write(true);
        kernel.mutable_operands(1)->set_bytes(4096);
      },
      "is written and of 4096 bytes, the sums in the scratch are written and take 1024");
}

TEST(VerifierGrid, KernelsThatShareALaunch) {
  auto planWith = [](auto &&change) {
    plan::Plan plan = makeCudaPlan();
    const std::string before = kernelCall(plan).kernel().symbol(), symbol = "j" + before;
    code(plan).set_abi(plan::kJoinedAbiVersion);
    for (plan::KernelSignature &kernel : *code(plan).mutable_kernels())
      if (kernel.symbol() == before) {
        kernel.set_symbol(symbol);
        kernel.set_tile_threads(64);
        for (plan::Instruction &instruction : *plan.mutable_entries(0)->mutable_instructions())
          if (instruction.kernel().symbol() == before) {
            instruction.mutable_kernel()->set_symbol(symbol);
            instruction.mutable_kernel()->mutable_grid()->set_blocks(uint32_t(kernel.tiles()));
          }
        change(plan, *kernelCall(plan).mutable_kernel(), kernel);
      }
    bind(plan);
    return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 20), "\n"));
  };
  EXPECT_EQ(planWith([](auto &&...) {}), "");
  auto finds = [&](auto &&change, const char *words) {
    EXPECT_NE(planWith(change).find(words), std::string::npos) << words << "\n" << planWith(change);
  };
  finds([](auto &, plan::KernelCall &call, auto &) { call.mutable_grid()->set_blocks(call.grid().blocks() + 1); },
        "blocks of kernels that share a launch");
  finds([](plan::Plan &plan, auto &, auto &) { code(plan).set_abi(plan::kKernelAbiVersion); },
        "which kernel ABI version 1 does not know");
  finds(
      [](auto &, auto &, plan::KernelSignature &signature) {
        while (signature.operands_size() <= plan::kMostTablePointers)
          *signature.add_operands() = signature.operands(0);
      },
      "operands and 0 bytes of scratch");
}

TEST(VerifierGrid, ThreadsWithoutScratchOfTheirOwn) {
  plan::Plan plan = makeCudaPlan();
  plan.set_max_workers(3);
  giveScratch(plan, 64);
  expectProblem(plan, {"4 threads", "slots for 3"});
  plan = makeCudaPlan();
  giveScratch(plan, 128);
  kernelCall(plan).set_scratch_slot_bytes(192);
  expectProblem(plan, {"a slot of 128 bytes"});
}

TEST(VerifierGrid, CodeOfAnotherKind) {
  plan::Plan plan = makeCudaPlan();
  code(plan).set_format(plan::CodeObject::ELF);
  bind(plan);
  expectProblem(plan, {"code object 0", "ELF", "cuda:sm_90"});
  plan = makeCudaPlan();
  code(plan).set_processor("sm_80");
  bind(plan);
  expectProblem(plan, {"code object 0", "'sm_80'", "cuda:sm_90"});
  plan = makeCudaPlan();
  code(plan).mutable_kernels(0)->set_tile_threads(96);
  bind(plan);
  expectProblem(plan, {"96 threads of kernel", "share a tile, its blocks have 64"});
  code(plan).mutable_kernels(0)->set_tile_threads(7);
  bind(plan);
  expectProblem(plan, {"code object 0", "7 threads share a tile"});
  plan = makeTestPlan();
  code(plan).set_format(plan::CodeObject::PTX);
  bind(plan);
  expectProblem(plan, {"code object 0", "PTX", plan.target()});
  plan = makeCudaPlan();
  plan.set_execution(plan::Plan::WORKERS); // whatever its target is called
  expectProblem(plan, {"code object 0", "PTX", "by workers"});
  plan = makeTestPlan();
  kernelCall(plan).mutable_kernel()->mutable_grid()->set_blocks(1);
  expectProblem(plan, {"instruction 1", "has a grid"});
}

TEST(VerifierGrid, AnyTargetMayRunOnGrids) {
  plan::Plan plan = makeCudaPlan();
  plan.set_target("abacus:sm_90");
  EXPECT_TRUE(plan::verifyPlan(plan).empty()) << plan::verifyPlan(plan).front();
}

TEST(VerifierGrid, SignaturesAreBoundToFormatAndThreads) {
  for (int changed : {0, 1}) {
    plan::Plan plan = makeCudaPlan();
    if (changed)
      code(plan).set_processor("sm_80");
    else
      code(plan).mutable_kernels(0)->set_tile_threads(1);
    expectProblem(plan, {"signatures", "do not belong to its code"});
  }
}

TEST(VerifierGrid, CallsOfAProcessorsLibrary) {
  plan::Plan plan = makeTestPlan(), card = makeCudaPlan();
  plan.set_target("cuda:sm_90");
  plan.set_execution(plan::Plan::GRIDS);
  *plan.mutable_code_objects(0) = card.code_objects(0);
  expectProblem(plan, {"instruction 3", "a call of a CPU's library"});
}
