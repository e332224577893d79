//===- Evaluate.cpp - PTX text run in a test -----------------------------===//
#include "test/emulation/tests/Evaluate.h"

namespace tcc::emulation {

Evaluated evaluate(const std::string &body, char result, const std::vector<Inputs> &inputs, bool checked) {
  static const std::string head = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<8>;
  .reg .b64 %d<8>;
  .reg .b32 %at<4>;
  .reg .b64 %from, %to;
  ld.param.b64 %from, [from];
  ld.param.b64 %to, [to];
  mov.u32 %at0, %tid.x;
  mov.u32 %at1, %ctaid.x;
  mad.lo.s32 %at2, %at1, 256, %at0;
  mad.wide.u32 %from, %at2, 32, %from;
  mad.wide.u32 %to, %at2, 8, %to;
)";
  std::string text = head;
  for (int i = 1; i <= 4; ++i) {
    text += fmt::format("  ld.global.b64 %d{}, [%from+{}];\n", i, 8 * (i - 1));
    text += fmt::format("  cvt.u32.u64 %r{0}, %d{0};\n  cvt.u16.u64 %h{0}, %d{0};\n", i);
    text += fmt::format("  setp.ne.u32 %p{0}, %r{0}, 0;\n", i);
  }
  text += "  " + body + "\n";
  text += result == 'h'   ? "  cvt.u64.u16 %d0, %h0;\n"
          : result == 'r' ? "  cvt.u64.u32 %d0, %r0;\n"
          : result == 'p' ? "  selp.b64 %d0, 1, 0, %p0;\n"
                          : "";
  text += "  st.global.b64 [%to], %d0;\n  ret;\n}\n";

  Bench bench({checked, ThreadOrder::Ascending, 1});
  Evaluated evaluated;
  if (evaluated.problem = bench.load(text); !evaluated.problem.empty())
    return evaluated;
  auto blocks = static_cast<uint32_t>((inputs.size() + 255) / 256);
  auto *from = bench.buffer<Inputs>(blocks * 256, "inputs");
  auto *to = bench.buffer<uint64_t>(blocks * 256, "results");
  std::memcpy(from, inputs.data(), inputs.size() * sizeof(Inputs));
  for (size_t i = inputs.size(); i < blocks * 256; ++i)
    from[i] = inputs[0];
  evaluated.problem = bench.launch("k", {blocks}, {256}, {Bench::at(from), Bench::at(to)});
  evaluated.results.assign(to, to + inputs.size());
  return evaluated;
}

std::string kernelText(const std::string &body, const std::string &declared) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n" + declared + R"(
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b, .param .u64 c)
{
  .reg .pred %p<32>;
  .reg .b16 %h<32>;
  .reg .b32 %r<32>;
  .reg .b64 %d<32>;
  ld.param.b64 %d1, [a];
  ld.param.b64 %d2, [b];
  ld.param.b64 %d3, [c];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
)" + body +
         "\n  ret;\n}\n";
}

std::string Bench::load(std::string_view text) {
  auto loaded = Program::load(text, machine.options.checked, machine.memory());
  if (!loaded)
    return loaded.message();
  program = loaded.take();
  return "";
}

std::string Bench::launch(std::string_view kernel, Extent grid, Extent block, std::vector<uint64_t> parameters,
                          uint32_t dynamicShared, uint32_t work) {
  auto code = program->compile(kernel);
  if (!code)
    return code.message();
  if (!*code)
    return fmt::format("no kernel '{}'", kernel);
  auto *bytes = reinterpret_cast<const std::byte *>(parameters.data());
  Launch launch{grid, block, dynamicShared, {bytes, (*code)->parameterBytes}, work};
  auto fault = machine.launch(**code, launch);
  return fault ? fault->message() : "";
}

} // namespace tcc::emulation
