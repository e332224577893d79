//===- ContentHash.cpp - hashes of files and of the compiler --------------===//
#include "compiler/cache/ContentHash.h"
#include "support/RegularFile.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <elf.h>
#include <link.h>
#include <set>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <xxhash.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern char **environ;

namespace tcc::cache {

namespace {

constexpr size_t kPieceBytes = size_t(64) << 20;

Key keyOf(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

/// The GNU build id among the notes of a loaded object; empty where it has none.
std::string_view buildIdOf(const dl_phdr_info &object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE)
      continue;
    const char *at = reinterpret_cast<const char *>(object.dlpi_addr + segment.p_vaddr), *end = at + segment.p_memsz;
    const size_t alignment = segment.p_align == 8 ? 8 : 4;
    auto padded = [&](size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note, *content = name + padded(note.n_namesz);
      if (content + note.n_descsz > end)
        break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !std::memcmp(name, "GNU", 4))
        return {content, note.n_descsz};
      at = content + padded(note.n_descsz);
    }
  }
  return {};
}

int addObject(dl_phdr_info *object, size_t, void *key) {
  // The program itself has no name. The vDSO has a name without '/', and no file: it is skipped.
  std::string path = object->dlpi_name && *object->dlpi_name ? object->dlpi_name : "/proc/self/exe";
  if (path.find('/') == path.npos)
    return 0;
  KeyBuilder &builder = *static_cast<KeyBuilder *>(key);
  if (std::string_view id = buildIdOf(*object); !id.empty()) {
    builder.add(id);
  } else if (Expected<Key> content = hashFile(path)) {
    builder.add(*content);
  } else {
    // A library that cannot be identified gets a new key every time.
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    builder.add(uint64_t(now.tv_sec)).add(uint64_t(now.tv_nsec)).add(uint64_t(getpid()));
  }
  return 0;
}

/// Vendor, model and features by CPUID, without the fields that differ between cores; on other processors the features
/// that the kernel reports.
std::string processorDescription() {
#if defined(__x86_64__)
  std::string text;
  auto ask = [&](unsigned leaf, unsigned subleaf, bool withB) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d))
      text += fmt::format("{:x}.{:x}: {:x} {:x} {:x} {:x}\n", leaf, subleaf, a, withB ? b : 0, c, d);
  };
  ask(0, 0, true);
  ask(1, 0, false); // EBX contains the number of the core
  ask(7, 0, true);
  ask(7, 1, true);
  return text;
#else
  return fmt::format("{:x} {:x}\n", ::getauxval(AT_HWCAP), ::getauxval(AT_HWCAP2));
#endif
}

} // namespace

std::string Key::text() const { return fmt::format("{:016x}{:016x}", high, low); }

Key hashOf(const void *data, size_t bytes) { return keyOf(XXH3_128bits(data, bytes)); }

struct KeyBuilder::State {
  XXH3_state_t *hash = XXH3_createState();
  ~State() { XXH3_freeState(hash); }
};

KeyBuilder::KeyBuilder(std::string_view kind) : state(std::make_unique<State>()) {
  XXH3_128bits_reset(state->hash);
  add(kind);
}

KeyBuilder::~KeyBuilder() = default;

KeyBuilder &KeyBuilder::add(uint64_t number) {
  XXH3_128bits_update(state->hash, &number, sizeof number);
  return *this;
}

KeyBuilder &KeyBuilder::add(std::string_view text) {
  add(uint64_t(text.size()));
  XXH3_128bits_update(state->hash, text.data(), text.size());
  return *this;
}

Key KeyBuilder::finish() const { return keyOf(XXH3_128bits_digest(state->hash)); }

Expected<Key> hashFile(const std::string &path) {
  Expected<RegularFile> file = RegularFile::open(path);
  if (!file)
    return file.status();
  const size_t bytes = size_t(file->bytes()), count = (bytes + kPieceBytes - 1) / kPieceBytes;
  std::vector<Key> pieces(count);
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  auto work = [&] {
    for (size_t i; (i = next++) < count;) {
      const size_t begin = i * kPieceBytes, size = std::min(kPieceBytes, bytes - begin);
      void *piece = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->descriptor(), off_t(begin));
      if (piece == MAP_FAILED) {
        failed = true;
        continue;
      }
      // One call instead of a page fault for each page; kernels without it fall back to page faults.
#ifdef MADV_POPULATE_READ
      madvise(piece, size, MADV_POPULATE_READ);
#endif
      pieces[i] = hashOf(piece, size);
      munmap(piece, size);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(count, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  if (failed)
    return error("{}: cannot be mapped: {}", path, std::strerror(errno));
  KeyBuilder key("file");
  key.add(uint64_t(bytes));
  for (const Key &piece : pieces)
    key.add(piece);
  return key.finish();
}

const Key &codeIdentity() {
  static const Key identity = [] {
    KeyBuilder key("code");
    dl_iterate_phdr(addObject, &key);
    return key.finish();
  }();
  return identity;
}

const Key &machineIdentity() {
  static const Key identity = [] {
    KeyBuilder key("machine");
    key.add(processorDescription());
    for (int name : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE})
      key.add(uint64_t(sysconf(name)));
    std::set<std::string> variables;
    for (char **variable = environ; variable && *variable; ++variable)
      if (!std::strncmp(*variable, "ONEDNN_", 7) || !std::strncmp(*variable, "DNNL_", 5))
        variables.insert(*variable);
    for (const std::string &variable : variables)
      key.add(variable);
    return key.finish();
  }();
  return identity;
}

} // namespace tcc::cache
