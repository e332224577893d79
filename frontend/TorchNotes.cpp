//===- TorchNotes.cpp - what torch's exporters note at nodes --------------===//
#include "frontend/TorchNotes.h"

#include <algorithm>
#include <onnx/onnx_pb.h>
#include <set>

namespace tcc::frontend {

std::string withoutNumber(const std::string &name) {
  size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9')
    --end;
  return end < name.size() && end > 1 && name[end - 1] == '_' ? name.substr(0, end - 1) : name;
}

bool isTransposition(const std::string &operation) {
  static const std::set<std::string> names = {"t",       "numpy_t",  "numpy_T",  "mT",     "transpose",
                                              "permute", "swapaxes", "swapdims", "adjoint"};
  return names.count(withoutNumber(operation)) != 0;
}

TracedCall tracedCall(const onnx::NodeProto &node) {
  TracedCall call;
  for (const onnx::StringStringEntryProto &note : node.metadata_props()) {
    if (note.key() != "pkg.torch.onnx.fx_node")
      continue;
    const std::string &text = note.value();
    auto between = [&](const std::string &head, const char *ends) {
      size_t begin = text.find(head);
      begin = begin == text.npos ? text.size() : begin + head.size();
      return text.substr(begin, std::min(text.find_first_of(ends, begin), text.size()) - begin);
    };
    call.target = between("target=torch.ops.", "]");
    const std::string list = between("args = (", ")");
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(", ", begin), list.size());
      call.arguments.push_back(list.substr(begin, end - begin));
      begin = end + 2;
    }
  }
  return call;
}

} // namespace tcc::frontend
