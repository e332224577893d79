//===- HandMadeCode.h - signatures of kernels that no compiler made ------===//
#ifndef TCC_TEST_SUPPORT_HANDMADECODE_H
#define TCC_TEST_SUPPORT_HANDMADECODE_H

#include "runtime/plan/DType.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Signatures.h"

#include <algorithm>
#include <string_view>

namespace tcc::test {

/// Stores the hash that binds a code object's signatures to its bytes.
inline void bindCode(plan::CodeObject &object, std::string_view code) {
  object.set_signatures_xxh3(plan::hashSignatures(object, {code.size(), plan::hashBytes(code.data(), code.size())}));
}

/// Gives each kernel of code object 0 the signature that fits its calls in the plan: each operand is as long as the
/// shortest buffer that a call passes for it, and all in-place pairs that some call declares are allowed.
inline void describeKernels(plan::Plan &plan) {
  plan::CodeObject &object = *plan.mutable_code_objects(0);
  object.clear_kernels();
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &call : entry.instructions()) {
      if (!call.has_kernel())
        continue;
      auto &list = *object.mutable_kernels();
      auto known = std::find_if(list.begin(), list.end(),
                                [&](const auto &kernel) { return kernel.symbol() == call.kernel().symbol(); });
      bool isNew = known == list.end();
      plan::KernelSignature &signature = isNew ? *object.add_kernels() : *known;
      signature.set_symbol(call.kernel().symbol());
      signature.set_tiles(call.kernel().tiles());
      for (int i = 0; i < call.operands_size(); ++i) {
        const plan::Operand &given = call.operands(i);
        uint64_t bytes = plan::tensorBytes(entry.buffers(static_cast<int>(given.buffer())).type()).value_or(0);
        plan::KernelSignature::Operand &operand = isNew ? *signature.add_operands() : *signature.mutable_operands(i);
        operand.set_bytes(isNew ? bytes : std::min(operand.bytes(), bytes));
        operand.set_read(given.read());
        operand.set_write(given.write());
        operand.set_alignment(4);
      }
      for (const plan::InPlace &pair : call.in_place()) {
        if (std::any_of(signature.in_place().begin(), signature.in_place().end(), [&](const auto &known) {
              return known.source() == pair.source() && known.destination() == pair.destination();
            }))
          continue;
        plan::KernelSignature::Pair &allowed = *signature.add_in_place();
        allowed.set_source(pair.source());
        allowed.set_destination(pair.destination());
      }
    }
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_HANDMADECODE_H
