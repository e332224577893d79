//===- Card.cpp - the card that a plan runs on --------------------------===//
#include "runtime/cuda/Card.h"

#include <charconv>
#include <utility>

namespace tcc::cuda {

namespace {
/// The digits that a text starts with; -1 without any.
int numberAt(std::string_view text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The text after `key`, which must be at the start of a line.
std::string_view after(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1))
    if (at == 0 || text[at - 1] == '\n')
      return text.substr(at + key.size());
  return {};
}
} // namespace

int capabilityOf(std::string_view architecture) {
  constexpr std::string_view kPrefix = "sm_";
  return architecture.starts_with(kPrefix) ? std::max(0, numberAt(architecture.substr(kPrefix.size()))) : 0;
}

Expected<PtxNeeds> needsOf(std::string_view ptx) {
  std::string_view version = after(ptx, ".version "), target = after(ptx, ".target ");
  int major = numberAt(version);
  size_t point = version.find('.');
  int minor = point == std::string_view::npos ? -1 : numberAt(version.substr(point + 1));
  PtxNeeds needs{major * 10 + minor, capabilityOf(target), 0};
  const std::string_view architecture = target.substr(0, target.find_first_of(", \t\r\n"));
  if (!architecture.empty() && (architecture.back() == 'a' || architecture.back() == 'f'))
    needs.only = architecture.back();
  if (major < 1 || minor < 0 || needs.capability == 0)
    return error("the code is no PTX: it has no line '.version' or '.target'; recompile the model with tcc");
  return needs;
}

int driverFor(int ptxVersion) {
  struct Release {
    int ptx, driver;
  };
  constexpr Release kReleases[] = {{80, 12000}, {81, 12010}, {82, 12020}, {83, 12030}, {84, 12040},
                                   {85, 12050}, {86, 12070}, {87, 12080}, {88, 12090}, {90, 13000}};
  for (const Release &release : kReleases)
    if (ptxVersion <= release.ptx)
      return release.driver;
  return 13010;
}

Expected<Card> Card::open(const DriverLibrary &library, uint32_t ordinal) {
  Card card(library);
  int count = 0, major = 0, minor = 0;
  if (Status status = library.check(library->deviceGetCount(&count), "counting the cards"); !status.ok())
    return status;
  if (count < 1)
    return error("the CUDA driver sees no card; check nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (count == 1)
    ordinal = 0;
  if (ordinal >= static_cast<uint32_t>(count))
    return error(
        "rank {} of this machine needs a card of its own, and the CUDA driver shows {}; start at most {} ranks "
        "here, or show more cards (CUDA_VISIBLE_DEVICES)",
        ordinal, count, count);
  char name[256] = {};
  size_t bytes = 0;
  api::CUuuid uuid{};
  auto attribute = [&](int &value, api::CUdevice_attribute which) {
    return library->deviceGetAttribute(&value, which, card.device);
  };
  for (api::CUresult result :
       {library->deviceGet(&card.device, static_cast<int>(ordinal)),
        library->deviceGetName(name, sizeof name - 1, card.device),
        attribute(major, api::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(minor, api::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        attribute(card.multiprocessors, api::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        library->deviceTotalMem(&bytes, card.device), library->deviceGetUuid(&uuid, card.device)})
    if (Status status = library.check(result, "asking about the card"); !status.ok())
      return status;
  card.cardName = name;
  card.cardUuid = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i)
    card.cardUuid += fmt::format("{}{:02x}", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                                 static_cast<unsigned char>(uuid.bytes[i]));
  card.computeCapability = 10 * major + minor;
  card.memoryBytes = bytes;
  api::CUcontext context = nullptr;
  if (Status status = library.check(library->devicePrimaryCtxRetain(&context, card.device), "making a context");
      !status.ok())
    return status.withContext(card.cardName);
  card.context = context;
  if (Status status = card.select(); !status.ok())
    return status;
  return card;
}

Card::Card(Card &&other) noexcept
    : library(other.library), device(other.device), context(std::exchange(other.context, nullptr)),
      cardName(std::move(other.cardName)), cardUuid(std::move(other.cardUuid)),
      computeCapability(other.computeCapability), multiprocessors(other.multiprocessors),
      memoryBytes(other.memoryBytes) {}

Card::~Card() {
  if (context)
    (void)(*library)->devicePrimaryCtxRelease(device);
}

Expected<uint64_t> Card::freeBytes() const {
  size_t available = 0, total = 0;
  Status status = library->check((*library)->memGetInfo(&available, &total), "asking for free memory");
  return status.ok() ? Expected<uint64_t>(available) : status;
}

Status Card::select() const {
  return library->check((*library)->ctxSetCurrent(context), "selecting the card's context");
}

} // namespace tcc::cuda
