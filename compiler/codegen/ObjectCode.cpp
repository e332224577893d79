//===- ObjectCode.cpp -----------------------------------------------------===//
#include "compiler/codegen/ObjectCode.h"

#include "compiler/codegen/KernelEmitter.h"
#include "compiler/profile/Profile.h"

#include "lld/Common/Driver.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;

namespace tcc::codegen {

namespace {

constexpr const char *kTriple = "x86_64-unknown-linux-gnu";

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(const std::string &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string problem;
  llvm::Triple triple(kTriple);
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!backend)
    return nullptr;
  // Product and sum are fused only where an op says so.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  bool v4 = target != "cpu:v3";
  std::string features = v4 ? "-prefer-256-bit" : "";
  if (multipliesPairs(target))
    features += ",+avx512bf16";
  return std::unique_ptr<llvm::TargetMachine>(
      backend->createTargetMachine(triple, v4 ? "x86-64-v4" : "x86-64-v3", features, options, llvm::Reloc::PIC_,
                                   llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// A kernel is a nest of vector loops already. What is left: inline its body, hoist loads and whatever else does not
/// change, write out loops of a few rounds, compute nothing twice. LLVM's standard pipeline takes twice as long, and
/// unrolls the vector loops, too, which spills registers: ResNet-50's kernels are a fifth slower for it.
constexpr const char *kPipeline =
    "always-inline,function("
    "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),simplifycfg,loop(indvars,loop-unroll-full),"
    "sroa,gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm),dse,simplifycfg,adce)";

/// Masked stores of one lane that is known become stores of one element. LLVM 22 does so too, but where the vector was
/// narrowed before, it stores the element in its former width, over its neighbour.
void storeSingleLanes(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto *store = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
      if (!store || store->getIntrinsicID() != llvm::Intrinsic::masked_store)
        continue;
      auto *mask = llvm::dyn_cast<llvm::Constant>(store->getArgOperand(store->arg_size() - 1));
      auto *type = llvm::cast<llvm::FixedVectorType>(store->getArgOperand(0)->getType());
      int stored = -1, count = 0;
      for (unsigned lane = 0; mask && lane < type->getNumElements(); ++lane)
        if (llvm::Constant *bit = mask->getAggregateElement(lane); bit && bit->isOneValue()) {
          stored = int(lane);
          ++count;
        }
      if (count != 1)
        continue;
      llvm::IRBuilder<> builder(store);
      llvm::Value *element = builder.CreateExtractElement(store->getArgOperand(0), uint64_t(stored));
      llvm::Value *address = builder.CreateConstGEP1_64(type->getElementType(), store->getArgOperand(1), uint64_t(stored));
      builder.CreateAlignedStore(element, address, llvm::Align(std::max<uint64_t>(1, type->getScalarSizeInBits() / 8)));
      store->eraseFromParent();
    }
}

/// False where LLVM does not know the pipeline.
bool optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  // No loop may turn into a call of memset or memcpy: kernels import nothing.
  llvm::TargetLibraryInfoImpl library(llvm::Triple(module.getTargetTriple()));
  library.disableAllFunctions();
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error unknown = builder.parsePassPipeline(passes, kPipeline)) {
    llvm::consumeError(std::move(unknown));
    return false;
  }
  passes.run(module, modules);
  storeSingleLanes(module);
  return true;
}

void addLowering(OpPassManager &passes) {
  passes.addPass(createCSEPass());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertVectorToLLVMPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
}

} // namespace

plan::Expected<std::string> machineLevel() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  auto all = [&](std::initializer_list<const char *> names) {
    return llvm::all_of(names, [&](const char *name) { return features.lookup(name); });
  };
  if (!all({"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}))
    return plan::error(
        "this machine is below x86-64-v3 (AVX2 and FMA), the lowest level that kernels are generated for");
  return std::string(all({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? "cpu:v4" : "cpu:v3");
}

void prepareLowering(MLIRContext &context) {
  PassManager passes(&context);
  addLowering(passes);
  DialectRegistry registry;
  passes.getDependentDialects(registry);
  context.appendDialectRegistry(registry);
  for (StringRef name : registry.getDialectNames())
    context.getOrLoadDialect(name);
}

plan::Expected<std::string> compileToObject(ModuleOp module, const std::string &name, const std::string &target,
                                            Profile *profile) {
  auto measure = [&](const char *part) { return Profile::part(profile, "codegen", part); };
  Profile::Span span = measure("lowering to the LLVM dialect");
  PassManager passes(module.getContext());
  // The verifier would share the context's threads with the passes that plan memory, and wait for them; what is not
  // lowered has no translation, which is an error below.
  passes.enableVerifier(false);
  addLowering(passes);
  if (failed(passes.run(module)))
    return plan::error("internal error: kernels {} cannot be lowered to LLVM", name);
  span = measure("LLVM IR");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context, name);
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target);
  if (!code || !machine)
    return plan::error("internal error: kernels {} cannot be translated to LLVM IR", name);
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  code->setSourceFileName(name);
  span = measure("LLVM optimisation");
  if (!optimize(*code, *machine))
    return plan::error("internal error: LLVM does not know the passes for kernels");
  span = measure("machine code");
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager emitter;
  if (machine->addPassesToEmitFile(emitter, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return plan::error("internal error: LLVM cannot emit objects for {}", target);
  emitter.run(*code);
  return std::string(bytes.begin(), bytes.end());
}

plan::Expected<std::string> linkShared(const std::vector<std::string> &objects) {
  llvm::SmallString<128> folder;
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory("tcc-link", folder))
    return plan::error("cannot make a temporary folder for linking: {}; set TMPDIR to a writable one", code.message());
  struct Cleanup {
    llvm::SmallString<128> &folder;
    ~Cleanup() { llvm::sys::fs::remove_directories(folder); }
  } cleanup{folder};
  std::vector<std::string> arguments{
      "ld.lld", "-shared",       "--no-undefined",   "-s",         "--build-id=none", "-z", "noexecstack",
      "-z",     "separate-code", "--hash-style=gnu", "--threads=1"};
  for (size_t i = 0; i < objects.size(); ++i) {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, "kernels" + std::to_string(i) + ".o");
    std::error_code code;
    llvm::raw_fd_ostream file(path, code);
    if (!code) {
      file << objects[i];
      file.close();
      code = file.error();
      file.clear_error();
    }
    if (code)
      return plan::error("cannot write {}: {}; set TMPDIR to a folder with room", path.str().str(), code.message());
    arguments.push_back(path.str().str());
  }
  llvm::SmallString<128> output(folder);
  llvm::sys::path::append(output, "kernels.so");
  arguments.insert(arguments.end(), {"-o", output.str().str()});
  std::vector<const char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(argument.c_str());
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  static std::mutex linking; // lld keeps global state
  std::lock_guard<std::mutex> lock(linking);
  lld::Result result = lld::lldMain(pointers, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return plan::error("internal error: generated kernels do not link: {}", messages);
  auto buffer = llvm::MemoryBuffer::getFile(output);
  if (!buffer)
    return plan::error("cannot read {}: {}", output.str().str(), buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

} // namespace tcc::codegen
