//===- KernelSet.cpp - all kernels of a plan, compiled in parallel --------===//
#include "compiler/codegen/KernelSet.h"

#include "compiler/cache/ContentStore.h"
#include "compiler/codegen/KernelEmitter.h"
#include "compiler/codegen/ObjectCode.h"
#include "compiler/codegen/SharedBodies.h"
#include "compiler/profile/Profile.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <atomic>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace mlir;

namespace tcc::codegen {

namespace {

std::string_view withoutComment(std::string_view line) {
  line = line.substr(0, line.find("//"));
  size_t last = line.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

bool isHeader(std::string_view line) {
  return line.starts_with(".version ") || line.starts_with(".target ") || line.starts_with(".address_size ");
}

/// Joins texts of LLVM's NVPTX back end into one: one header, all entries, no comments and no empty lines. Error:
/// headers that differ from the first, an undefined symbol (kernels call nothing).
Expected<std::string> joinPtx(const std::vector<std::string> &texts) {
  std::string header, body;
  for (const std::string &text : texts) {
    std::string ownHeader;
    std::istringstream lines(text);
    for (std::string whole; std::getline(lines, whole);) {
      std::string_view line = withoutComment(whole);
      if (line.empty())
        continue;
      if (line.starts_with(".extern"))
        return error("internal error: generated kernels import a symbol: {}", line);
      (isHeader(line) ? ownHeader : body).append(line).push_back('\n');
    }
    if (header.empty())
      header = ownHeader;
    if (ownHeader.empty() || ownHeader != header)
      return error("internal error: generated kernels are for different machines: '{}' and '{}'", header, ownHeader);
  }
  return header + body;
}

/// The memory that a region's generated code may touch: its operands, to the extent of their types and in the order of
/// the kernel's pointers, the scratch of its loops, and the operand pairs whose pointers may be equal.
plan::KernelSignature signatureOf(train::FusedOp fused, StringRef symbol, const KernelWork &work) {
  plan::KernelSignature signature;
  signature.set_symbol(symbol.str());
  signature.set_tiles(work.tiles);
  signature.set_tile_threads(work.tileThreads);
  auto elementBytes = [](Type type) {
    return uint32_t(train::elementBytes(cast<RankedTensorType>(type).getElementType()));
  };
  auto add = [&](Type type) -> plan::KernelSignature::Operand & {
    plan::KernelSignature::Operand &operand = *signature.add_operands();
    operand.set_bytes(uint64_t(train::tensorBytes(type)));
    operand.set_alignment(work.gridThreads ? uint32_t(target::kAccessBytes) : elementBytes(type));
    return operand;
  };
  std::optional<int64_t> tileElements = fused.getTileElements();
  for (auto [number, input] : llvm::enumerate(fused.getInputs())) {
    plan::KernelSignature::Operand &operand = add(input.getType());
    operand.set_read(true);
    if (tileElements && fused.readsByTiles(unsigned(number)))
      operand.set_tile_bytes(uint64_t(work.groupElements ? work.groupElements : *tileElements) *
                             elementBytes(input.getType()));
  }
  for (Value result : fused.getResults())
    add(result.getType()).set_write(true);
  if (train::LoopKernel loops = fused.getLoopKernel();
      loops && work.tileThreads <= 1) // warps share tiles without scratch
    signature.set_scratch_bytes(uint64_t(loops.getScratchBytes()));
  int required = fused.getRequiredInPlaceOperand();
  for (auto [operand, result] : fused.getInPlacePairs()) {
    plan::KernelSignature::Pair &pair = *signature.add_in_place();
    pair.set_source(operand);
    pair.set_destination(uint32_t(fused.getInputs().size()) + result);
    pair.set_required(int(operand) == required);
  }
  return signature;
}

/// The signatures of kernels that share a launch, concatenated.
plan::KernelSignature signatureOf(ArrayRef<train::FusedOp> members, StringRef symbol, const KernelWork &work) {
  plan::KernelSignature all;
  all.set_symbol(symbol.str());
  all.set_tiles(work.tiles);
  all.set_tile_threads(work.tileThreads);
  for (train::FusedOp member : members) {
    const plan::KernelSignature part = signatureOf(member, symbol, work);
    const auto first = uint32_t(all.operands_size());
    all.mutable_operands()->MergeFrom(part.operands());
    for (plan::KernelSignature::Pair pair : part.in_place()) {
      pair.set_source(first + pair.source());
      pair.set_destination(first + pair.destination());
      *all.add_in_place() = pair;
    }
  }
  return all;
}

/// Mean number of kernels in an LLVM module: enough to amortise its fixed cost, few enough to compile in parallel. The
/// kernels' own hashes decide where a module ends, so that a new kernel changes one module only: cached modules stay
/// valid.
constexpr uint64_t kKernelsPerModule = 6;
constexpr size_t kMostKernelsPerModule = 12;

std::string textOf(train::FusedOp fused) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  // The types of operands and the region. Attributes of the op itself (offsets, order) do not affect the kernel.
  for (BlockArgument argument : fused.getBody().front().getArguments())
    stream << argument.getType() << ";";
  if (std::optional<int64_t> tile = fused.getTileElements())
    stream << "tiles of " << *tile << ";";
  llvm::DenseMap<Value, unsigned> numbers;
  for (BlockArgument argument : fused.getBody().front().getArguments())
    numbers[argument] = numbers.size();
  for (Operation &op : fused.getBody().front()) {
    stream << op.getName() << op.getAttrDictionary() << "(";
    for (Value operand : op.getOperands())
      stream << numbers.lookup(operand) << ",";
    stream << ")" << op.getResultTypes() << "\n";
    for (Value result : op.getResults())
      numbers[result] = numbers.size();
  }
  return text;
}

/// The text with each of its numbers as "#": alike kernels have one form.
std::string formOf(StringRef text) {
  std::string form;
  for (bool inNumber = false; char c : text) {
    const bool again = std::exchange(inNumber, llvm::isDigit(c)) && inNumber;
    if (!again)
      form.push_back(inNumber ? '#' : c);
  }
  return form;
}

} // namespace

/// Kernels that are compiled to one object.
struct KernelSet::Unit {
  std::vector<const std::pair<const std::string, Entry> *> kernels;
  Expected<std::string> object = error("internal error: a kernel was not compiled");
};

/// Units that were started together, and the threads that work on them.
struct KernelSet::Batch {
  ~Batch() {
    next = units.size();
    join();
  }
  void join() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
  }
  void work(const KernelSet &set) {
    for (size_t i; (i = next++) < units.size();)
      units[i].object = set.compileUnit(units[i]);
  }
  std::vector<Unit> units;
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
};

KernelSet::KernelSet(target::CodeModel model, Profile *profile, cache::ContentStore *store)
    : model(std::move(model)), profile(profile), store(store) {}

KernelSet::~KernelSet() = default;

train::FusedOp KernelSet::hold(train::FusedOp fused, Block &holder) {
  IRMapping mapping;
  for (Value operand : fused->getOperands())
    if (!mapping.contains(operand))
      mapping.map(operand, holder.addArgument(operand.getType(), operand.getLoc()));
  auto copy = cast<train::FusedOp>(fused->clone(mapping));
  holder.push_back(copy);
  mergeDims(copy);
  return copy;
}

KernelSet::Entry *KernelSet::insert(std::string text, Entry entry,
                                    llvm::function_ref<plan::KernelSignature(StringRef symbol)> sign) {
  llvm::XXH128_hash_t hash =
      llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  std::string symbol;
  llvm::raw_string_ostream(symbol) << (entry.programs.empty() ? 'k' : plan::kJoinedSymbol)
                                   << llvm::format_hex_no_prefix(hash.high64, 16)
                                   << llvm::format_hex_no_prefix(hash.low64, 16);
  entry.endsModule |= hash.low64 % kKernelsPerModule == 0;
  entry.signature = sign(symbol);
  return &kernels.try_emplace(std::move(text), std::move(entry)).first->second;
}

KernelSet::Kernel KernelSet::add(train::FusedOp fused) {
  Entry *&known = asked[textOf(fused)];
  if (!known) {
    Entry entry;
    entry.holder = std::make_unique<Block>();
    train::FusedOp copy = entry.fused = hold(fused, *entry.holder);
    // An op's own loops compile as long as many other kernels: end the module, so that two compile in parallel.
    entry.endsModule = bool(copy.getLoopKernel());
    const KernelWork work = entry.work = workOf(copy, model);
    known = insert(textOf(copy), std::move(entry), [&](StringRef symbol) { return signatureOf(copy, symbol, work); });
  }
  return {known->signature.symbol(), known->work};
}

KernelSet::Kernel KernelSet::add(train::JoinedOp joined) {
  SmallVector<train::FusedOp> members = joined.getMembers();
  std::string question;
  for (train::FusedOp member : members)
    question += "joined;" + textOf(member);
  Entry *&known = asked[question];
  if (!known) {
    Entry entry;
    entry.holder = std::make_unique<Block>();
    entry.endsModule = true; // also compiles as long as many other kernels
    std::string text, last;
    SmallVector<train::FusedOp> copies;
    for (train::FusedOp member : members) {
      copies.push_back(hold(member, *entry.holder));
      std::string own = textOf(copies.back());
      text += "joined;" + own;
      if (std::exchange(last, own) == own && !entry.programs.empty())
        ++entry.programs.back().count;
      else
        entry.programs.push_back({copies.back()});
    }
    const KernelWork work = entry.work = workOf(entry.programs, model);
    known =
        insert(std::move(text), std::move(entry), [&](StringRef symbol) { return signatureOf(copies, symbol, work); });
  }
  return {known->signature.symbol(), known->work};
}

std::vector<KernelSet::Kernel> KernelSet::addKernelsOf(Operation *op) {
  auto region = dyn_cast<train::FusedOp>(op);
  auto call = dyn_cast_or_null<train::LibraryCall>(region ? region.getLoopKernel().getOperation() : op);
  Block holder;
  if (call && model.threaded())
    call.buildKernels(holder);
  std::vector<Kernel> all;
  auto regions = holder.getOps<train::FusedOp>();
  // Scratch belongs to the library: kernels of single threads, which have scratch of their own, find no place in it.
  if (llvm::all_of(regions, [](train::FusedOp one) {
        train::LoopKernel loops = one.getLoopKernel();
        return !loops || loops.getGroupTileCount() > 0;
      }))
    for (train::FusedOp one : regions)
      all.push_back(add(one));
  return all;
}

bool KernelSet::joins() const {
  return llvm::any_of(kernels, [](const auto &kernel) { return !kernel.second.programs.empty(); });
}

std::vector<plan::KernelSignature> KernelSet::signatures() const {
  std::vector<plan::KernelSignature> result;
  for (const auto &[text, entry] : kernels)
    result.push_back(entry.signature);
  llvm::sort(result, [](const auto &a, const auto &b) { return a.symbol() < b.symbol(); });
  return result;
}

Expected<std::string> KernelSet::compileUnit(const Unit &unit) const {
  const std::string &name = unit.kernels.front()->second.signature.symbol();
  cache::Key key;
  if (store) {
    Profile::Span span = Profile::part(profile, "codegen", "look-up in the cache");
    cache::KeyBuilder builder("kernels");
    builder.add(cache::codeIdentity()).add(LLVM_VERSION_STRING).add(model.key()).add(shares ? "shared" : "own");
    for (const auto *kernel : unit.kernels)
      builder.add(kernel->first);
    key = builder.finish();
    if (std::optional<std::string> object = store->get(key)) {
      if (profile)
        profile->count("kernels from the cache", unit.kernels.size());
      return std::move(*object);
    }
  }
  MLIRContext *context = unit.kernels.front()->second.holder->front().getContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(context));
  {
    Profile::Span span = Profile::part(profile, "codegen", "loop nests");
    for (const auto *kernel : unit.kernels)
      if (const Entry &entry = kernel->second;
          failed(entry.programs.empty() ? emitKernel(entry.fused, entry.signature.symbol(), *module, model)
                                        : emitJoined(entry.programs, entry.signature.symbol(), *module, model)))
        return error("internal error: kernel generation failed (see above)");
    if (const unsigned shared = shares ? shareBodies(*module) : 0; shared && profile)
      profile->count("kernels with another one's body", shared);
  }
  Expected<std::string> object = compileToObject(*module, name, model, profile);
  if (profile)
    profile->count("kernels compiled", unit.kernels.size());
  if (object && store)
    store->put(key, *object);
  return object;
}

void KernelSet::start() {
  // Kernels that may share a body are compiled together.
  std::map<std::string, std::vector<std::pair<const std::string, Entry> *>> forms;
  for (auto &kernel : kernels)
    if (!std::exchange(kernel.second.started, true))
      forms[shares ? formOf(kernel.first) : kernel.first].push_back(&kernel);
  if (forms.empty())
    return;
  auto batch = std::make_unique<Batch>();
  bool full = true;
  size_t formsOfUnit = 0;
  for (auto &[form, alike] : forms) {
    if (std::exchange(full, false)) {
      batch->units.emplace_back();
      formsOfUnit = 0;
    }
    llvm::append_range(batch->units.back().kernels, alike);
    full = alike.front()->second.endsModule || ++formsOfUnit == kMostKernelsPerModule;
  }
  prepareLowering(*kernels.begin()->second.holder->front().getContext());
  Batch &started = *batches.emplace_back(std::move(batch));
  for (size_t i = 0; i < std::min<size_t>(started.units.size(), std::max(1u, std::thread::hardware_concurrency())); ++i)
    started.threads.emplace_back([this, &started] { started.work(*this); });
}

Expected<std::string> KernelSet::compile() {
  if (kernels.empty())
    return std::string();
  start();
  std::vector<std::string> objects;
  for (std::unique_ptr<Batch> &batch : batches) {
    batch->join();
    for (Unit &unit : batch->units) {
      if (!unit.object)
        return unit.object.status();
      objects.push_back(unit.object.take());
    }
  }
  Profile::Span span = Profile::part(profile, "codegen", "link");
  return model.format == plan::CodeObject::PTX ? joinPtx(objects) : linkShared(objects);
}

} // namespace tcc::codegen
