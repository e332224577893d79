//===- Signatures.cpp - a hash of kernel signatures and code --------------===//
#include "runtime/plan/Signatures.h"

#include "runtime/plan/PlanFile.h"

namespace tcc::plan {

namespace {
/// Numbers are eight bytes, little-endian; texts and lists are preceded by their lengths, so that different signatures
/// give different bytes.
class Bytes {
public:
  void number(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      text.push_back(static_cast<char>(value >> shift));
  }
  void name(const std::string &value) {
    number(value.size());
    text += value;
  }
  uint64_t hash() const { return hashBytes(text.data(), text.size()); }

private:
  std::string text;
};
} // namespace

uint64_t hashSignatures(const CodeObject &object, CodeBytes code, std::span<const CodeBytes> assembled) {
  Bytes bytes;
  bytes.number(code.bytes);
  bytes.number(code.xxh3);
  bytes.number(object.abi());
  // ELF objects keep the hash of the time before other formats, so that old plans stay valid.
  if (object.format() != CodeObject::ELF) {
    bytes.number(static_cast<uint64_t>(object.format()));
    bytes.name(object.processor());
  }
  bytes.number(static_cast<uint64_t>(object.kernels_size()));
  for (const KernelSignature &kernel : object.kernels()) {
    bytes.name(kernel.symbol());
    bytes.number(static_cast<uint64_t>(kernel.tiles()));
    bytes.number(kernel.scratch_bytes());
    bytes.number(static_cast<uint64_t>(kernel.operands_size()));
    for (const KernelSignature::Operand &operand : kernel.operands()) {
      bytes.number(operand.bytes());
      bytes.number(operand.read());
      bytes.number(operand.write());
      bytes.number(operand.alignment());
      bytes.number(operand.tile_bytes());
    }
    bytes.number(static_cast<uint64_t>(kernel.in_place_size()));
    for (const KernelSignature::Pair &pair : kernel.in_place()) {
      bytes.number(pair.source());
      bytes.number(pair.destination());
      bytes.number(pair.required());
    }
    if (object.format() != CodeObject::ELF)
      bytes.number(kernel.tile_threads());
  }
  for (size_t i = 0; i < assembled.size(); ++i) {
    const CodeObject::Assembled &one = object.assembled(static_cast<int>(i));
    bytes.name(one.architecture());
    bytes.name(one.assembler());
    bytes.number(assembled[i].bytes);
    bytes.number(assembled[i].xxh3);
  }
  return bytes.hash();
}

} // namespace tcc::plan
