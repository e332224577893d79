//===- Program.cpp - PTX text → machine code of this computer ------------===//
//
// Kernels become LLVM modules of their own, added to ORC's JIT; looking a kernel up optimises and compiles it.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/ptx/Program.h"

#include "test/emulation/ptx/Emitter.h"
#include "test/emulation/ptx/Numbers.h"
#include "test/emulation/ptx/Parser.h"

#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <mutex>

using namespace llvm;

namespace tcc::emulation {

namespace {
struct Kernel final : Code {
  const ptx::Entry *tree = nullptr;

  std::string site(uint32_t number) const override {
    if (number >= tree->body.size())
      return fmt::format("PTX entry {}", tree->name);
    const ptx::Instruction &at = tree->body[number];
    return fmt::format("PTX line {}: '{}'", at.line, at.text);
  }
};

uint16_t roundTo16(double value, uint32_t fraction, bool towardZero) {
  return ptx::roundTo16(value, fraction, towardZero);
}
uint16_t fusedTo16(double a, double b, double c, uint32_t fraction) { return ptx::fusedTo16(a, b, c, fraction); }

/// 2^x; subnormal operands and results are flushed to zero.
float powerOfTwo(float x) {
  double result = std::exp2(std::fpclassify(x) == FP_SUBNORMAL ? 0.0 : double(x));
  return result < double(FLT_MIN) ? 0.0f : float(result);
}

uint64_t roundUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

/// Runs enough passes to turn PTX registers into machine registers; more would cost more time than they save.
void optimise(llvm::Module &module) {
  PassBuilder passes;
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  FunctionPassManager pipeline;
  pipeline.addPass(SROAPass(SROAOptions::ModifyCFG));
  pipeline.addPass(EarlyCSEPass());
  pipeline.addPass(InstCombinePass());
  pipeline.addPass(SimplifyCFGPass());
  for (Function &function : module)
    if (!function.isDeclaration())
      pipeline.run(function, functions);
}

std::string textOf(llvm::Error error) { return llvm::toString(std::move(error)); }

class JitProgram final : public Program {
public:
  Status prepare(std::string_view text, bool checked, Memory &memory);

  std::vector<std::string_view> kernels() const override {
    std::vector<std::string_view> names;
    for (const ptx::Entry &entry : module->entries)
      names.push_back(entry.name);
    return names;
  }
  std::string_view target() const override { return module->target; }
  unsigned version() const override { return module->versionMajor * 10 + module->versionMinor; }

  const Code *describe(std::string_view name) const override {
    auto found = code.find(name);
    return found == code.end() ? nullptr : found->second.get();
  }

  tcc::Expected<const Code *> compile(std::string_view name) override {
    auto found = code.find(name);
    if (found == code.end())
      return static_cast<const Code *>(nullptr);
    Kernel &kernel = *found->second;
    if (!kernel.entry) {
      auto symbol = jit->lookup(StringRef(name.data(), name.size()));
      if (!symbol)
        return error("kernel '{}': {}", name, textOf(symbol.takeError()));
      kernel.entry = symbol->toPtr<KernelEntry>();
    }
    return static_cast<const Code *>(&kernel);
  }

private:
  Status makeJit();
  Status translate(const ptx::Entry &entry, bool checked);

  std::unique_ptr<ptx::Module> module;
  std::map<std::string_view, uint64_t> addresses;
  std::map<std::string_view, std::unique_ptr<Kernel>> code;
  std::unique_ptr<orc::LLJIT> jit;
};

Status JitProgram::makeJit() {
  static std::once_flag once;
  std::call_once(once, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
  });
  auto host = orc::JITTargetMachineBuilder::detectHost();
  if (!host)
    return error("the JIT: {}", textOf(host.takeError()));
  host->getOptions().AllowFPOpFusion = FPOpFusion::Strict;
  // Most kernels run for a shorter time than it takes to compile them.
  host->setCodeGenOptLevel(CodeGenOptLevel::None);
  auto made = orc::LLJITBuilder().setJITTargetMachineBuilder(*host).create();
  if (!made)
    return error("the JIT: {}", textOf(made.takeError()));
  jit = std::move(*made);
  jit->getIRTransformLayer().setTransform([](orc::ThreadSafeModule one, const orc::MaterializationResponsibility &) {
    one.withModuleDo(optimise);
    return llvm::Expected<orc::ThreadSafeModule>(std::move(one));
  });
  auto functions = Machine::runtimeFunctions();
  functions.insert(functions.end(),
                   {{"tccEmulationRoundTo16", reinterpret_cast<void *>(&roundTo16)},
                    {"tccEmulationFusedTo16", reinterpret_cast<void *>(&fusedTo16)},
                    {"tccEmulationPowerOfTwo", reinterpret_cast<void *>(&powerOfTwo)},
                    {"tccEmulationRoundToF32TowardZero", reinterpret_cast<void *>(&ptx::roundToF32TowardZero)},
                    {"memset", reinterpret_cast<void *>(&std::memset)},
                    {"memcpy", reinterpret_cast<void *>(&std::memcpy)},
                    {"fmaf", reinterpret_cast<void *>(static_cast<float (*)(float, float, float)>(&::fmaf))},
                    {"fma", reinterpret_cast<void *>(static_cast<double (*)(double, double, double)>(&::fma))}});
  orc::SymbolMap symbols;
  for (auto &[name, address] : functions)
    symbols[jit->mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(address),
                                           JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  if (auto problem = jit->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))))
    return error("the JIT: {}", textOf(std::move(problem)));
  return Status();
}

Status JitProgram::prepare(std::string_view text, bool checked, Memory &memory) {
  auto parsed = ptx::parse(text);
  if (!parsed)
    return parsed.status();
  module = parsed.take();
  if (Status made = makeJit(); !made.ok())
    return made;
  for (const ptx::Variable &variable : module->variables) {
    if (variable.space == "shared")
      continue;
    Home home = variable.space == "const" ? Home::Constant : Home::Device;
    Allocation &place =
        memory.allocate(std::max<uint64_t>(variable.bytes, 1), home, fmt::format("variable {}", variable.name), true);
    memory.open(true);
    std::memset(place.base, 0, variable.bytes);
    std::memcpy(place.base, variable.initial.data(), variable.initial.size());
    addresses[variable.name] = reinterpret_cast<uint64_t>(place.base);
  }
  for (const ptx::Entry &entry : module->entries)
    if (Status done = translate(entry, checked); !done.ok())
      return done;
  return Status();
}

Status JitProgram::translate(const ptx::Entry &entry, bool checked) {
  auto kernel = std::make_unique<Kernel>();
  kernel->tree = &entry;
  kernel->name = entry.name;
  kernel->parameterBytes = entry.parameterBytes;
  for (const ptx::Parameter &parameter : entry.parameters)
    kernel->parameters.push_back({parameter.offset, parameter.bytes});
  kernel->maxThreads = entry.maxThreads;
  std::copy(std::begin(entry.requiredThreads), std::end(entry.requiredThreads), kernel->requiredThreads);
  ptx::EmitterContext around;
  around.checked = checked;
  around.addresses = addresses;
  uint64_t at = 0;
  auto place = [&](const ptx::Variable &variable) {
    if (variable.space != "shared" || variable.external)
      return;
    at = roundUp(at, variable.alignment);
    around.sharedOffsets[variable.name] = at;
    at += variable.bytes;
  };
  // A kernel needs only the module's shared variables that it names; counting all of them is conservative.
  std::for_each(module->variables.begin(), module->variables.end(), place);
  std::for_each(entry.variables.begin(), entry.variables.end(), place);
  kernel->sharedBytes = static_cast<uint32_t>(at);
  for (const ptx::Variable &variable : module->variables)
    if (variable.external)
      around.sharedOffsets[variable.name] = roundUp(at, 16);
  for (const ptx::Variable &variable : entry.variables)
    if (variable.space == "local")
      kernel->localBytes = static_cast<uint32_t>(roundUp(kernel->localBytes, variable.alignment) + variable.bytes);
  for (const ptx::Instruction &instruction : entry.body)
    for (std::string_view meeting : {"bar", "barrier", "shfl", "vote", "mma"})
      kernel->meets |= instruction.opcode == meeting;

  auto context = std::make_unique<LLVMContext>();
  auto ir = std::make_unique<llvm::Module>(StringRef(entry.name.data(), entry.name.size()), *context);
  ir->setDataLayout(jit->getDataLayout());
  ir->setTargetTriple(jit->getTargetTriple());
  if (Status done = ptx::Emitter(*ir, entry, around).run(); !done.ok())
    return done;
  std::string problem;
  raw_string_ostream stream(problem);
  if (verifyModule(*ir, &stream))
    return error("kernel '{}': the translation is no valid IR: {}", entry.name, problem);
  if (auto failure = jit->addIRModule(orc::ThreadSafeModule(std::move(ir), std::move(context))))
    return error("kernel '{}': {}", entry.name, textOf(std::move(failure)));
  code[entry.name] = std::move(kernel);
  return Status();
}
} // namespace

tcc::Expected<std::unique_ptr<Program>> Program::load(std::string_view text, bool checked, Memory &memory) {
  auto program = std::make_unique<JitProgram>();
  if (Status status = program->prepare(text, checked, memory); !status.ok())
    return status;
  return std::unique_ptr<Program>(std::move(program));
}

} // namespace tcc::emulation
