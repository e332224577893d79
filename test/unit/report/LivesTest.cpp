//===- LivesTest.cpp - why a buffer is alive ------------------------------===//
#include "compiler/emit/Lives.h"
#include "test/unit/report/HandMadePlan.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::emit;
using namespace tcc::test;

namespace {

/// One training step of y = act(x·w):
///
///   0 product  x → h           forward
///   1 act      h → y           forward
///   2 loss     y → loss, dy    forward: the loss depends on it
///   3 act      h → y2          again
///   4 act      y2, dy → dh     backward
///   5 product  x, dh → dw      backward
///   6 w        dw → w          update
struct Step {
  plan::Plan plan = handMadePlan();
  plan::Entry &entry = *plan.mutable_entries(0);

  Step() {
    entry.clear_buffers();
    entry.clear_instructions();
    add("x", -1, 5).set_kind(plan::Buffer::INPUT);
    for (auto [name, first, last] :
         {std::tuple("h", 0, 3), {"y", 1, 2}, {"dy", 2, 4}, {"y2", 3, 4}, {"dh", 4, 5}, {"dw", 5, 6}})
      add(name, first, last);
    add("loss", 2, 7).set_kind(plan::Buffer::OUTPUT);
    plan::Buffer &w = add("w", -1, 7);
    w.set_kind(plan::Buffer::STATE);
    w.set_arena(plan::RESIDENT);
    w.set_variable(0);
    add("unread", 4, 4);
    add("partial sums", 5, 5).set_kind(plan::Buffer::PARTIAL_SUMS);
    plan::Port &loss = *entry.add_outputs();
    loss.set_name("loss_sum");
    loss.set_buffer(7);
    run("product", {0}, {1});
    run("act", {1}, {2});
    run("loss", {2}, {7, 3});
    run("act", {1}, {4}).set_recompute(true);
    run("act", {4, 3}, {5, 9});
    run("product", {0, 5}, {6, 10});
    run("w", {6, 8}, {8});
  }

  plan::Buffer &add(const std::string &name, int first, int last) { return addBuffer(entry, name, 0, 64, first, last); }

  plan::Instruction &run(const std::string &node, std::vector<uint32_t> reads, std::vector<uint32_t> writes) {
    plan::Instruction &instruction = addInstruction(entry, node, 1, 1);
    for (uint32_t id : reads) {
      plan::Operand &operand = *instruction.add_operands();
      operand.set_buffer(id);
      operand.set_read(true);
      operand.set_version(id == 8 || id == 0 ? 0 : 1);
    }
    for (uint32_t id : writes) {
      plan::Operand &operand = *instruction.add_operands();
      operand.set_buffer(id);
      operand.set_write(true);
      operand.set_version_written(1);
    }
    return instruction;
  }

  std::string why(const std::string &name) {
    EntryLives lives = analyzeLives(plan, entry);
    for (int id = 0; id < entry.buffers_size(); ++id)
      if (entry.buffers(id).name() == name)
        return whyAlive(plan, entry, lives, id);
    return "no such buffer";
  }
};

} // namespace

TEST(Lives, InstructionsLieOnOneSideOfTheLoss) {
  Step step;
  using enum Phase;
  EXPECT_EQ(analyzeLives(step.plan, step.entry).phases,
            (std::vector<Phase>{Forward, Forward, Forward, Recompute, Backward, Backward, Update}));
}

TEST(Lives, TheOrderOfInstructionsDecidesNothing) {
  Step step;
  // The loss is summed at the very end; the instructions that it depends on still count as forward.
  step.add("partial", 2, 7);
  step.entry.mutable_instructions(2)->mutable_operands(1)->set_buffer(11);
  step.run("sum", {11}, {7});
  using enum Phase;
  EXPECT_EQ(analyzeLives(step.plan, step.entry).phases,
            (std::vector<Phase>{Forward, Forward, Forward, Recompute, Backward, Backward, Update, Forward}));
}

TEST(Lives, EachBufferHasItsPurpose) {
  Step step;
  using enum Purpose;
  std::vector<Purpose> purposes;
  for (const BufferLife &life : analyzeLives(step.plan, step.entry).buffers)
    purposes.push_back(life.purpose);
  //                                          x      h      y           dy     y2          dh        dw        loss    w
  //                                          unread    partial sums
  EXPECT_EQ(purposes, (std::vector<Purpose>{Input, Saved, Activation, Saved, Recomputed, Gradient, Gradient, Output,
                                            State, Gradient, Scratch}));
}

TEST(Lives, TheReasonNamesTheLastReader) {
  Step step;
  EXPECT_EQ(step.why("x"), "input, kept for the gradient at product");
  EXPECT_EQ(step.why("h"), "saved for the recomputation of act, 3 instructions later");
  EXPECT_EQ(step.why("y"), "read by loss");
  EXPECT_EQ(step.why("dy"), "saved for the gradient at act, 2 instructions later");
  EXPECT_EQ(step.why("y2"), "recomputed for the gradient at act");
  EXPECT_EQ(step.why("dh"), "read by the gradient at product");
  EXPECT_EQ(step.why("dw"), "waits for the update of w");
  EXPECT_EQ(step.why("loss"), "a result of the entry");
  EXPECT_EQ(step.why("w"), "state");
  EXPECT_EQ(step.why("unread"), "read by nobody");
  EXPECT_EQ(step.why("partial sums"), "used by one instruction");
}

TEST(Lives, WhatTheForwardPassReadsLastIsNotSavedForIt) {
  Step step;
  // dy is made with the loss, and is also read at the very end by a sum that the loss depends on.
  step.add("partial", 2, 7);
  step.entry.mutable_instructions(2)->mutable_operands(1)->set_buffer(11);
  step.run("sum", {3, 11}, {7});
  EXPECT_EQ(analyzeLives(step.plan, step.entry).buffers[3].purpose, Purpose::Saved);
  EXPECT_EQ(step.why("dy"), "read by sum, 5 instructions later");
}

TEST(Lives, WithoutALossAllIsForward) {
  Step step;
  step.entry.clear_outputs();
  step.entry.mutable_instructions()->DeleteSubrange(3, 4);
  step.entry.mutable_buffers(1)->set_last(1);
  using enum Phase;
  EXPECT_EQ(analyzeLives(step.plan, step.entry).phases, (std::vector<Phase>{Forward, Forward, Forward}));
  EXPECT_EQ(step.why("h"), "read by act");
}

TEST(Lives, OperandsThatNameNoBufferArePassedOver) {
  Step step;
  step.entry.mutable_instructions(0)->mutable_operands(0)->set_buffer(4000000000u);
  step.entry.mutable_buffers(8)->set_variable(1000);
  EXPECT_EQ(analyzeLives(step.plan, step.entry).buffers.size(), 11u);
}
