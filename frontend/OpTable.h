//===- OpTable.h - from ONNX op to train ops --------------------*- C++ -*-===//
//
// One line per op and range of versions. To add an op: write a function that builds train ops from a NodeImport, in the
// file of its family under frontend/ops/, and add its line to the table at the end of that file.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_OPTABLE_H
#define TCC_FRONTEND_OPTABLE_H

#include "support/Status.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace tcc::frontend {

class NodeImport;

struct OpEntry {
  std::string_view op;
  int minInputs = 0;             ///< number of required inputs
  Status (*import)(NodeImport &) = nullptr;
  int64_t since = 1;             ///< first version of the domain's opset that the function implements …
  int64_t until = 28;            ///< … and the last
  std::string_view domain = "";  ///< "" is ai.onnx
  bool sequences = false;        ///< takes sequences of tensors as inputs
  bool ofConstants = false;      ///< takes only constants, since the result's shape depends on their values
  uint32_t numbers = 0;          ///< one bit per input: the input may be floating-point and is read at compile time
  bool fourBits = false;         ///< takes tensors of 4-bit integers
  int codes = -1; ///< an input of UINT8 that is a weight in 4 bits, two elements in each byte; −1: none

  /// The entry of an importer that reads these inputs at compile time, so that they are no weights. Integer inputs
  /// never are weights, and need not be listed.
  template <typename... Positions> constexpr OpEntry reading(Positions... positions) const {
    OpEntry entry = *this;
    entry.numbers = (0u | ... | (1u << positions));
    return entry;
  }
  /// The entry of an importer that reads tensors of 4-bit integers, and one input that may hold two in each byte.
  constexpr OpEntry packed(int position = -1) const {
    OpEntry entry = *this;
    entry.fourBits = true;
    entry.codes = position;
    return entry;
  }
  bool reads(int input) const { return input >= 0 && input < 32 && (numbers >> input & 1); }
};

// The families.
std::span<const OpEntry> activationOps();
std::span<const OpEntry> arithmeticOps();
std::span<const OpEntry> attentionOps();
std::span<const OpEntry> constantOps();
std::span<const OpEntry> contribAttentionOps();
std::span<const OpEntry> contribOps();
std::span<const OpEntry> contractionOps();
std::span<const OpEntry> controlFlowOps();
std::span<const OpEntry> fourBitOps();
std::span<const OpEntry> gridOps();
std::span<const OpEntry> indexingOps();
std::span<const OpEntry> lossOps();
std::span<const OpEntry> modeOps();
std::span<const OpEntry> movementOps();
std::span<const OpEntry> normalizationOps();
std::span<const OpEntry> patchOps();
std::span<const OpEntry> quantizationOps();
std::span<const OpEntry> recurrentOps();
std::span<const OpEntry> randomOps();
std::span<const OpEntry> reductionOps();
std::span<const OpEntry> selectionOps();
std::span<const OpEntry> regionOps();
std::span<const OpEntry> resampleOps();
std::span<const OpEntry> sequenceOps();
std::span<const OpEntry> shapeOps();
std::span<const OpEntry> signalOps();
std::span<const OpEntry> textOps();
std::span<const OpEntry> trainingOps();
std::span<const OpEntry> windowOps();

/// All of them.
std::span<const std::span<const OpEntry>> opFamilies();

/// The entry for an op at a version of its domain's opset; null if there is none.
const OpEntry *findOp(std::string_view domain, std::string_view op, int64_t version);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPTABLE_H
