//===- ObjectCode.cpp - MLIR to LLVM to machine code or PTX ---------------===//
#include "compiler/codegen/ObjectCode.h"

#include "compiler/codegen/BlockRewrites.h"
#include "compiler/codegen/KernelEmitter.h"
#include "compiler/profile/Profile.h"

#include "support/MappedFile.h"
#include "support/OwnFiles.h"
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
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;

namespace tcc::codegen {

namespace {

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(const target::CodeModel &model) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  std::string problem;
  llvm::Triple triple(model.triple);
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!backend)
    return nullptr;
  // Never contract products and sums, except by an op's explicit fma.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      backend->createTargetMachine(triple, model.processor, model.features, options, llvm::Reloc::PIC_,
                                   llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// A kernel is already a nest of vector loops. This pipeline inlines its body, hoists invariant code, unrolls short
/// loops and removes redundant computations. LLVM's standard pipeline takes twice as long, and also unrolls the vector
/// loops, which spills registers: ResNet-50's kernels get a fifth slower.
constexpr const char *kPipeline = "always-inline,function("
                                  "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
                                  "loop-mssa(loop-rotate,licm),simplifycfg,loop(indvars,loop-unroll-full),"
                                  "sroa,gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm),dse,simplifycfg,adce)";

/// The back end joins neighbouring accesses only if it knows their alignment.
constexpr const char *kMoreForCards = ",function(infer-alignment)";

/// Replaces masked stores of a single constant lane by scalar stores. LLVM 22 does this, too, but if the vector was
/// narrowed before, it stores the element in its former width and overwrites its neighbour.
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
      llvm::Value *address =
          builder.CreateConstGEP1_64(type->getElementType(), store->getArgOperand(1), uint64_t(stored));
      builder.CreateAlignedStore(element, address, llvm::Align(std::max<uint64_t>(1, type->getScalarSizeInBits() / 8)));
      store->eraseFromParent();
    }
}

llvm::Value *lanesOf(llvm::IRBuilder<> &builder, llvm::Value *vector, unsigned first, unsigned count) {
  return builder.CreateShuffleVector(vector, llvm::createSequentialMask(first, count, 0));
}

/// True if a lane of a mask is always false.
bool isKnownFalse(const llvm::Value *mask, unsigned lane) {
  if (auto *constant = llvm::dyn_cast<llvm::Constant>(mask)) {
    const llvm::Constant *bit = constant->getAggregateElement(lane);
    return bit && bit->isNullValue();
  }
  auto *both = llvm::dyn_cast<llvm::BinaryOperator>(mask);
  return both && both->getOpcode() == llvm::Instruction::And &&
         (isKnownFalse(both->getOperand(0), lane) || isKnownFalse(both->getOperand(1), lane));
}

/// Splits masked loads and stores into pieces of one register, and drops pieces without active lanes. LLVM 22 splits
/// them, too, but without AVX-512 it loads a piece whose mask folds to false unmasked: it reads beyond the end of an
/// operand and ignores the pass-through value.
void splitMaskedAccesses(llvm::Module &module, unsigned registerBits) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto *access = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
      bool loads = access && access->getIntrinsicID() == llvm::Intrinsic::masked_load;
      if (!loads && (!access || access->getIntrinsicID() != llvm::Intrinsic::masked_store))
        continue;
      auto *type = llvm::cast<llvm::FixedVectorType>(loads ? access->getType() : access->getArgOperand(0)->getType());
      const unsigned bits = type->getScalarSizeInBits(), all = type->getNumElements(), lanes = registerBits / bits;
      if (bits < 32 || all <= lanes) // narrower elements are loaded and stored one by one
        continue;
      llvm::IRBuilder<> builder(access);
      llvm::Value *address = access->getArgOperand(loads ? 0 : 1), *mask = access->getArgOperand(loads ? 1 : 2);
      llvm::SmallVector<llvm::Value *> pieces;
      for (unsigned first = 0; first < all; first += lanes) {
        const unsigned count = std::min(lanes, all - first);
        llvm::Value *other = loads ? lanesOf(builder, access->getArgOperand(2), first, count) : nullptr;
        bool isEmpty = true;
        for (unsigned lane = first; lane < first + count; ++lane)
          isEmpty &= isKnownFalse(mask, lane);
        if (isEmpty) {
          pieces.push_back(other);
          continue;
        }
        llvm::Value *at = builder.CreateConstGEP1_64(type->getElementType(), address, first);
        llvm::Value *part = lanesOf(builder, mask, first, count);
        auto *piece = loads ? builder.CreateMaskedLoad(llvm::FixedVectorType::get(type->getElementType(), count), at,
                                                       llvm::Align(bits / 8), part, other)
                            : builder.CreateMaskedStore(lanesOf(builder, access->getArgOperand(0), first, count), at,
                                                        llvm::Align(bits / 8), part);
        piece->copyMetadata(*access, {llvm::LLVMContext::MD_alias_scope, llvm::LLVMContext::MD_noalias});
        pieces.push_back(piece);
      }
      if (loads)
        access->replaceAllUsesWith(llvm::concatenateVectors(builder, pieces));
      access->eraseFromParent();
    }
}

/// False if LLVM cannot parse the pipeline.
bool optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  // No loop may become a call of memset or memcpy: kernels import nothing.
  llvm::TargetLibraryInfoImpl library(llvm::Triple(module.getTargetTriple()));
  library.disableAllFunctions();
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  const bool forCard = machine.getTargetTriple().isNVPTX();
  if (llvm::Error unknown =
          builder.parsePassPipeline(passes, std::string(kPipeline) + (forCard ? kMoreForCards : ""))) {
    llvm::consumeError(std::move(unknown));
    return false;
  }
  passes.run(module, modules);
  storeSingleLanes(module);
  if (forCard) {
    moveLoadsFirst(module);
    divideTogether(module);
  }
  if (machine.getTargetTriple().isX86() && !machine.getMCSubtargetInfo()->checkFeatures("+avx512f"))
    splitMaskedAccesses(module, 256);
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

void prepareLowering(MLIRContext &context) {
  PassManager passes(&context);
  addLowering(passes);
  DialectRegistry registry;
  passes.getDependentDialects(registry);
  context.appendDialectRegistry(registry);
  for (StringRef name : registry.getDialectNames())
    context.getOrLoadDialect(name);
}

Expected<std::string> compileToObject(ModuleOp module, const std::string &name, const target::CodeModel &model,
                                      Profile *profile) {
  auto measure = [&](const char *part) { return Profile::part(profile, "codegen", part); };
  Profile::Span span = measure("lowering to the LLVM dialect");
  PassManager passes(module.getContext());
  // Do not run the verifier: it would wait for the context's threads, which the memory-planning passes use. An op that
  // was not lowered has no translation, which is an error below.
  passes.enableVerifier(false);
  addLowering(passes);
  if (failed(passes.run(module)))
    return error("internal error: kernels {} cannot be lowered to LLVM", name);
  span = measure("LLVM IR");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context, name);
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(model);
  if (!code || !machine)
    return error("internal error: kernels {} cannot be translated to LLVM IR", name);
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  code->setSourceFileName(name);
  span = measure("LLVM optimisation");
  if (!optimize(*code, *machine))
    return error("internal error: LLVM does not know the passes for kernels");
  span = measure("machine code");
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager emitter;
  auto type =
      model.format == plan::CodeObject::PTX ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine->addPassesToEmitFile(emitter, stream, nullptr, type))
    return error("internal error: LLVM cannot emit code for {}", model.processor);
  emitter.run(*code);
  return std::string(bytes.begin(), bytes.end());
}

Expected<std::string> linkShared(const std::vector<std::string> &objects) {
  const TemporaryFolder folder("tcc-link");
  if (!folder.status().ok())
    return folder.status();
  std::vector<std::string> arguments{
      "ld.lld", "-shared",       "--no-undefined",   "-s",         "--build-id=none", "-z", "noexecstack",
      "-z",     "separate-code", "--hash-style=gnu", "--threads=1"};
  for (size_t i = 0; i < objects.size(); ++i) {
    const std::string name = "kernels" + std::to_string(i) + ".o";
    if (Status status = folder.write(name, objects[i]); !status.ok())
      return status;
    arguments.push_back(folder.path(name));
  }
  const std::string output = folder.path("kernels.so");
  arguments.insert(arguments.end(), {"-o", output});
  std::vector<const char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(argument.c_str());
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  static std::mutex linking; // lld keeps global state
  std::lock_guard<std::mutex> lock(linking);
  lld::Result result = lld::lldMain(pointers, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return error("internal error: generated kernels do not link: {}", messages);
  return readFile(output);
}

} // namespace tcc::codegen
