//===- VerifierCode.cpp - code objects and their kernels' signatures -----===//
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Signatures.h"
#include "runtime/plan/VerifierImpl.h"

#include <bit>

namespace tcc::plan::verifier {

namespace {
/// True if a generated kernel can have this signature.
bool verifySignature(int object, const KernelSignature &signature, Reporter &report) {
  std::string where = fmt::format("code object {}, kernel '{}'", object, signature.symbol());
  bool good = true;
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    report("{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
    good = false;
  };
  if (signature.symbol().empty() || signature.symbol().find('\0') != std::string::npos)
    fail("it is no name of a symbol");
  if (signature.tiles() <= 0 || signature.tiles() >= (int64_t(1) << 31))
    fail("it has {} tiles", signature.tiles());
  if (signature.scratch_bytes() % kAlignmentBytes != 0)
    fail("its scratch of {} bytes is no multiple of {}", signature.scratch_bytes(), kAlignmentBytes);
  for (int i = 0; i < signature.operands_size(); ++i) {
    const KernelSignature::Operand &operand = signature.operands(i);
    if (!std::has_single_bit(operand.alignment()) || operand.alignment() > kAlignmentBytes)
      fail("operand {} is aligned to {} bytes", i, operand.alignment());
    if (operand.read() == operand.write())
      fail("operand {} is neither read nor written, or both", i);
  }
  auto exists = [&](uint32_t operand) { return operand < static_cast<uint32_t>(signature.operands_size()); };
  for (const KernelSignature::Pair &pair : signature.in_place())
    if (!exists(pair.source()) || !exists(pair.destination()) ||
        !signature.operands(static_cast<int>(pair.source())).read() ||
        !signature.operands(static_cast<int>(pair.destination())).write())
      fail("operands {} and {} of {} are no pair of a read and a written one", pair.source(), pair.destination(),
           signature.operands_size());
  return good;
}
} // namespace

SignatureIndex verifyCode(const Plan &plan, Reporter &report) {
  SignatureIndex index(static_cast<size_t>(plan.code_objects_size()));
  for (int i = 0; i < plan.code_objects_size(); ++i) {
    const CodeObject &code = plan.code_objects(i);
    if (code.abi() != kKernelAbiVersion && !(code.abi() == kJoinedAbiVersion && code.format() == CodeObject::PTX)) {
      report("code object {}: it was made for kernel ABI version {}, this program has version {}; recompile the model "
             "with tcc",
             i, code.abi(), kKernelAbiVersion);
      continue;
    }
    if (code.payload() >= static_cast<uint32_t>(plan.payloads_size())) {
      report("code object {}: payload {} does not exist, the plan has {}", i, code.payload(), plan.payloads_size());
      continue;
    }
    std::vector<CodeBytes> assembled;
    for (const CodeObject::Assembled &one : code.assembled()) {
      if (one.payload() >= static_cast<uint32_t>(plan.payloads_size())) {
        report("code object {}: its machine code is payload {}, which does not exist; the plan has {}", i,
               one.payload(), plan.payloads_size());
        break;
      }
      assembled.push_back(CodeBytes::of(plan.payloads(static_cast<int>(one.payload()))));
    }
    if (assembled.size() != static_cast<size_t>(code.assembled_size()))
      continue;
    const CodeBytes bytes = CodeBytes::of(plan.payloads(static_cast<int>(code.payload())));
    if (hashSignatures(code, bytes, assembled) != code.signatures_xxh3()) {
      report("code object {}: the signatures of its kernels do not belong to its code; recompile the model with tcc",
             i);
      continue;
    }
    verifyFormat(plan, i, report);
    for (const KernelSignature &signature : code.kernels())
      if (verifySignature(i, signature, report) &&
          !index[static_cast<size_t>(i)].emplace(signature.symbol(), &signature).second)
        report("code object {}: kernel '{}' has two signatures", i, signature.symbol());
  }
  return index;
}

} // namespace tcc::plan::verifier
