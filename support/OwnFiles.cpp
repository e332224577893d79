//===- OwnFiles.cpp - files and folders that the commands may replace or remove -===//
#include "support/OwnFiles.h"
#include "support/AtomicFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>
#include <xxhash.h>

namespace tcc {

namespace fs = std::filesystem;

namespace {
/// Bytes of a file's begin and end that are searched for marks.
constexpr size_t kSampleBytes = 32 << 10;
/// A model whose metadata comes after more fields was not written by us.
constexpr int kMostFields = 100'000;

/// An open file, closed with the object.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
};

std::string readPart(int file, uint64_t offset, size_t bytes) {
  std::string part(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    ssize_t count = ::pread(file, part.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    done += static_cast<size_t>(count);
  }
  part.resize(done);
  return part;
}

/// Reads a varint of a protobuf; false at the end.
bool readVarint(std::string_view text, size_t &at, uint64_t &value) {
  value = 0;
  for (int shift = 0; shift < 64 && at < text.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text[at++]);
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80)
      return true;
  }
  return false;
}

/// Looks for the mark among the metadata of an ONNX model, field by field, without its content.
bool modelHasMark(int file, uint64_t bytes) {
  constexpr uint64_t kMetadata = 14;
  uint64_t offset = 0;
  for (int field = 0; field < kMostFields && offset < bytes; ++field) {
    const std::string head = readPart(file, offset, 20);
    size_t at = 0;
    uint64_t tag = 0, value = 0;
    if (!readVarint(head, at, tag) || (tag & 7) == 3 || (tag & 7) == 4 || (tag & 7) > 5)
      return false;
    if ((tag & 7) == 1 || (tag & 7) == 5) {
      at += (tag & 7) == 1 ? 8 : 4;
    } else if (!readVarint(head, at, value)) {
      return false;
    } else if ((tag & 7) == 2) {
      if (value > bytes - offset)
        return false;
      if (tag >> 3 == kMetadata && value <= 256 &&
          readPart(file, offset + at, size_t(value)).find(kModelMark) != std::string::npos)
        return true;
      at += value;
    }
    offset += at;
  }
  return false;
}

constexpr std::string_view kRecipeSeal = "# Suggested by tcc; checksum of the lines above: ";

std::string sealOf(std::string_view text) {
  return fmt::format("{}{:016x}\n", kRecipeSeal, XXH3_64bits(text.data(), text.size()));
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

constexpr std::string_view kNoteBegin = "trun wrote ";
constexpr const char *kNoteAttribute = "user.trun.written";
constexpr size_t kMostNoteBytes = 100;

std::string noteOf(uint64_t bytes, uint64_t hash) {
  return fmt::format("{}{} bytes, XXH3 {:016x}\n", kNoteBegin, bytes, hash);
}

/// ".NAME.trun"
std::string noteBeside(const std::string &path) {
  const fs::path place(path);
  return (place.parent_path() / fmt::format(".{}.trun", place.filename().string())).string();
}

/// True if the file's size and hash are those that we noted for it.
bool isAsNoted(int file, const std::string &path, uint64_t bytes) {
  std::string note(kMostNoteBytes, '\0');
  const ssize_t length = ::fgetxattr(file, kNoteAttribute, note.data(), note.size());
  if (length >= 0) {
    note.resize(static_cast<size_t>(length));
  } else {
    const Descriptor beside{
        ::open(noteBeside(path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
    struct stat status {};
    if (beside.number < 0 || ::fstat(beside.number, &status) != 0 || !S_ISREG(status.st_mode))
      return false;
    note = readPart(beside.number, 0, kMostNoteBytes);
  }
  if (!note.starts_with(fmt::format("{}{} bytes,", kNoteBegin, bytes)))
    return false; // no need to read the file
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t *)> state(XXH3_createState(), XXH3_freeState);
  if (!state)
    return false;
  XXH3_64bits_reset(state.get());
  constexpr uint64_t kPieceBytes = 1 << 20;
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const std::string piece = readPart(file, at, static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
  }
  return note == noteOf(bytes, XXH3_64bits_digest(state.get()));
}

/// "target,A,B" above rows that begin with A and B, as far as `head` goes.
bool isSquareTable(std::string_view head) {
  constexpr std::string_view kCorner = "target,";
  if (!head.starts_with(kCorner))
    return false;
  std::string_view names = head.substr(kCorner.size(), head.find('\n') - kCorner.size());
  size_t rows = 0;
  for (size_t at = head.find('\n'); at != head.npos && at + 1 < head.size(); at = head.find('\n', at + 1), ++rows) {
    const std::string_view row = head.substr(at + 1), name = row.substr(0, row.find(','));
    if (names.empty() || names.substr(0, names.find(',')) != name)
      return names.empty() && rows != 0;
    names.remove_prefix(std::min(names.size(), name.size() + 1));
  }
  return rows != 0;
}

/// "process 4711 on host", perhaps truncated because its writer was killed.
bool isLock(std::string_view text) {
  constexpr std::string_view kBegin = "process ", kOn = " on ";
  if (!text.starts_with(kBegin))
    return kBegin.starts_with(text);
  text.remove_prefix(std::min(text.find_first_not_of("0123456789", kBegin.size()), text.size()));
  return text.starts_with(kOn) || kOn.starts_with(text);
}

/// `head` and `tail` are the file's begin and end, at most kSampleBytes each.
bool hasMark(OwnFile kind, int file, uint64_t bytes, std::string_view head, std::string_view tail) {
  switch (kind) {
  case OwnFile::Plan:
    return head.starts_with(std::string_view("TCCPLAN\0", 8));
  case OwnFile::Page:
    return has(head, R"(<meta name="generator" content="tcc)") || has(head, R"(<meta name="generator" content="trun)");
  case OwnFile::Trace:
    return has(head.substr(0, 512), R"("process_name")") && has(head.substr(0, 512), R"("name":"trun )");
  case OwnFile::Timings:
    return head.starts_with("{") && has(tail, R"("profile": {)") && has(tail, R"("cpu_seconds")");
  case OwnFile::Weights:
    return has(head.substr(0, 1024), R"("producer":"trun"})");
  case OwnFile::Checkpoint:
    return has(head.substr(0, 1024), R"("producer":"trun checkpoint"})");
  case OwnFile::Model:
    return modelHasMark(file, bytes);
  case OwnFile::ModelData:
    return head.starts_with(kModelDataMark);
  case OwnFile::Recipe: {
    if (bytes > kSampleBytes) // no suggestion is as long
      return false;
    const size_t seal = head.rfind(kRecipeSeal);
    return seal != std::string_view::npos && head.substr(seal) == sealOf(head.substr(0, seal));
  }
  case OwnFile::Picture:
    return has(head.substr(0, 128), kPictureMark);
  case OwnFile::Confusion:
    return isSquareTable(head);
  case OwnFile::Packing:
    return head.substr(0, head.find('\n')).ends_with(",offset");
  case OwnFile::Schedule:
    return has(head, R"("lower_bound_cost_given_order")") || has(tail, R"("lower_bound_cost_given_order")");
  case OwnFile::Code:
    return tail.ends_with(kCodeMark);
  case OwnFile::Phase:
    return head.starts_with(kPhaseMark);
  case OwnFile::AdapterConfig:
    return head.starts_with(
        "{\n  \"peft_type\": \"LORA\",\n  \"base_model_name_or_path\": null,\n  \"task_type\": null,\n"
        "  \"inference_mode\": true,\n  \"r\": ");
  case OwnFile::Summary:
    return head.starts_with("[\n {\n  \"settings\": [") && has(head, R"("diverged": )") && has(head, R"("run": )");
  case OwnFile::Images:
    return head.starts_with(kImagesMark) ||
           has(tail.substr(tail.size() - std::min<size_t>(tail.size(), 64)), "tcccache");
  case OwnFile::Sealed: {
    constexpr std::string_view kKey = "\"xxh3\": \"";
    const size_t at = tail.rfind(kKey);
    return head.starts_with("{\n") && at != tail.npos && tail.size() - at == kKey.size() + 20 &&
           tail.ends_with("\"\n}\n");
  }
  case OwnFile::Lock:
    return isLock(head) && bytes <= 512;
  case OwnFile::OfRun:
    return true;
  case OwnFile::Note:
    return head.starts_with(kNoteBegin) && bytes <= kMostNoteBytes;
  case OwnFile::Arrays: // isAsNoted
  case OwnFile::Folder:
    return false;
  }
  return false;
}

std::string_view nounOf(OwnFile kind) {
  switch (kind) {
  case OwnFile::Plan:
    return "a plan of tcc's";
  case OwnFile::Page:
    return "a page of a report";
  case OwnFile::Trace:
    return "a trace of trun's";
  case OwnFile::Timings:
    return "a file of --timings";
  case OwnFile::Weights:
    return "a safetensors file of trun's";
  case OwnFile::Checkpoint:
    return "a checkpoint's shard";
  case OwnFile::Arrays:
    return "an unchanged file that trun wrote here";
  case OwnFile::Note:
    return "a note of trun's on the file beside it";
  case OwnFile::Model:
    return "a model that trun exported";
  case OwnFile::ModelData:
    return "external data that trun exported";
  case OwnFile::Recipe:
    return "an unedited suggestion of tcc's";
  case OwnFile::Picture:
    return "a picture of trun's";
  case OwnFile::Confusion:
    return "a table of --confusion";
  case OwnFile::Packing:
  case OwnFile::Schedule:
    return "an answer of tcc-plan's";
  case OwnFile::Code:
    return "a file of tcc report --code";
  case OwnFile::Phase:
    return "a phase that tcc dumped";
  case OwnFile::AdapterConfig:
    return "a configuration that trun exported";
  case OwnFile::Summary:
    return "the summary of a sweep";
  case OwnFile::Images:
    return "a file of data.cache";
  case OwnFile::Sealed:
  case OwnFile::OfRun:
    return "a file that trun wrote";
  case OwnFile::Lock:
    return "the lock of a run";
  case OwnFile::Folder:
    return "a folder";
  }
  return "";
}

/// Sets `ours` if the file at `path` is ours, and `inode` to that of the file that was read. Returns 0, or errno if it
/// cannot be read.
int readMark(const std::string &path, OwnFile kind, bool &ours, ino_t &inode) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    return errno;
  inode = status.st_ino;
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (kind == OwnFile::Folder || !S_ISREG(status.st_mode) || bytes == 0) {
    ours = kind == OwnFile::Folder ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode);
    return 0;
  }
  if (kind == OwnFile::Arrays) {
    ours = isAsNoted(file.number, path, bytes);
    return 0;
  }
  const std::string head = readPart(file.number, 0, size_t(std::min<uint64_t>(bytes, kSampleBytes)));
  const std::string tail =
      bytes <= kSampleBytes ? head : readPart(file.number, bytes - kSampleBytes, kSampleBytes);
  ours = hasMark(kind, file.number, bytes, head, tail);
  return 0;
}

/// NAME of ".NAME.tcc-PID-N.tmp".
std::string nameOfTemporary(const std::string &name) { return name.substr(1, name.rfind(".tcc-") - 1); }

Status foreign(const std::string &folder, const std::string &entry) {
  return error("{}: it holds {}, which trun did not write; move it elsewhere", folder, entry);
}

Expected<int> openPlain(const std::string &path, int flags) {
  // open() gives ENXIO for a FIFO without a reader; one with a reader is refused below.
  const int file = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0 && errno == ELOOP)
    return error("{}: it is a symbolic link; trun writes no file of a run through a link: put the file itself there",
                 path);
  struct stat status {};
  if (file < 0 && errno != ENXIO)
    return error("{}: cannot write: {}", path, std::strerror(errno));
  if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file >= 0)
      ::close(file);
    return error("{}: it is not a regular file; remove it", path);
  }
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}
} // namespace

std::string sealRecipe(std::string text) { return text + sealOf(text); }

void noteWritten(int file, const std::string &place, uint64_t bytes, uint64_t hash) {
  const std::string note = noteOf(bytes, hash);
  if (::fsetxattr(file, kNoteAttribute, note.data(), note.size(), 0) != 0)
    (void)writeFileAtomically(noteBeside(place), note, OwnFile::Note);
}

bool followsLinks(OwnFile kind) {
  return kind != OwnFile::Images && kind != OwnFile::Note && kind != OwnFile::Sealed && kind != OwnFile::Lock &&
         kind != OwnFile::OfRun && kind != OwnFile::Checkpoint;
}

Status checkReplaceable(const std::string &path, OwnFile kind, const std::string &name) {
  bool ours = false;
  ino_t inode = 0;
  const int reason = readMark(path, kind, ours, inode);
  if (reason == ENOENT || (reason == 0 && ours))
    return Status();
  if (reason == ELOOP)
    return error("{}: it is a symbolic link; trun writes no file of a run or cache through a link: remove it", name);
  if (reason != 0)
    return error("{}: cannot write: {}", name, std::strerror(reason));
  return error("{}: it exists and is not {}, so it is not replaced; give another name, or remove it", name,
               nounOf(kind));
}

Status removeOwnFile(const std::string &path, OwnFile kind) {
  bool ours = false;
  ino_t inode = 0;
  const int reason = readMark(path, kind, ours, inode);
  if (reason == ENOENT)
    return Status();
  if (reason == ELOOP || (reason == 0 && !ours))
    return error("{}: it is not {}, so it is not removed", path, nounOf(kind));
  struct stat now {};
  if (reason != 0 || ::lstat(path.c_str(), &now) != 0 || now.st_ino != inode ||
      (kind == OwnFile::Folder ? ::rmdir(path.c_str()) : ::unlink(path.c_str())) != 0)
    return error("{}: cannot remove: {}", path, std::strerror(reason ? reason : errno));
  return Status();
}

std::string foreignEntry(const std::string &folder, const KindOfName &kindOf) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(folder, code)) || code)
    return fs::path(folder).filename().string() + " (not a folder)";
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (ownerOfTemporary(name) && kindOf(nameOfTemporary(name)))
      continue; // removal asks whether its writer is gone
    const std::optional<OwnFile> kind = kindOf(name);
    bool ours = false;
    ino_t inode = 0;
    if (!kind || readMark(entry->path().string(), *kind, ours, inode) != 0 || !ours)
      return name;
  }
  return code ? fs::path(folder).filename().string() + " (unreadable)" : "";
}

Status removeOwnFolder(const std::string &folder, const KindOfName &kindOf) {
  if (std::string entry = foreignEntry(folder, kindOf); !entry.empty())
    return foreign(folder, entry);
  std::error_code code;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
    names.push_back(entry->path().filename().string());
  // Remove files without a mark of their own first, those that identify the folder as ours after them, and the lock
  // last: then an interrupted removal can be continued later.
  auto order = [&](const std::string &name) {
    const std::optional<OwnFile> kind = kindOf(name);
    return kind == OwnFile::OfRun ? 0 : kind == OwnFile::Lock ? 2 : 1;
  };
  std::sort(names.begin(), names.end(),
            [&](const std::string &a, const std::string &b) { return order(a) < order(b); });
  for (const std::string &name : names) {
    if (ownerOfTemporary(name)) {
      const Descriptor opened{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
      removeIfAbandoned(opened.number, name);
      continue;
    }
    if (Status status = removeOwnFile(fmt::format("{}/{}", folder, name), *kindOf(name)); !status.ok())
      return status;
  }
  // An entry that was created meanwhile keeps the folder.
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT)
    return error("{}: cannot remove: {}", folder, std::strerror(errno));
  return Status();
}

Status renameNew(const std::string &from, const std::string &to) {
  int failed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  struct stat there {};
  if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) { // a file system without the flag
    if (::lstat(to.c_str(), &there) == 0)
      errno = EEXIST;
    else
      failed = ::rename(from.c_str(), to.c_str());
  }
  return failed == 0 ? Status() : error("{}: cannot rename to {}: {}", from, to, std::strerror(errno));
}

Status takeName(const std::string &from, const std::string &to, OwnFile kind) {
  for (const std::string &path : {from, to})
    if (Status status = checkReplaceable(path, kind, path); !status.ok())
      return status;
  return ::rename(from.c_str(), to.c_str()) == 0 ? Status()
                                                 : error("{}: cannot rename to {}: {}", from, to, std::strerror(errno));
}

bool exchangeNames(const std::string &one, const std::string &other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

bool isOwnFile(const std::string &path, OwnFile kind) {
  bool ours = false;
  ino_t inode = 0;
  struct stat status {};
  return readMark(path, kind, ours, inode) == 0 && ours && ::lstat(path.c_str(), &status) == 0 && status.st_size != 0;
}

Status moveAside(const std::string &path, const std::string &place) {
  Status status = error("{}: cannot be moved aside", path);
  constexpr int kTries = 10'000;
  for (int i = 1; i < kTries; ++i) {
    const fs::path at(place);
    const std::string kept = (at.parent_path() / fmt::format("kept-{}-{}", at.filename().string(), i)).string();
    std::error_code code;
    if (fs::exists(fs::symlink_status(kept, code)))
      continue;
    if (status = renameNew(path, kept); status.ok())
      break;
  }
  return status;
}

Expected<int> openForAppending(const std::string &path, bool mustBeNew) {
  return openPlain(path, O_WRONLY | O_CREAT | O_APPEND | (mustBeNew ? O_EXCL : 0));
}

Expected<int> openLock(const std::string &path, bool make) {
  auto file = openPlain(path, make ? O_RDWR | O_CREAT : O_RDONLY);
  struct stat status {};
  if (!file || (::fstat(*file, &status) == 0 && status.st_size == 0))
    return file;
  if (!hasMark(OwnFile::Lock, *file, static_cast<uint64_t>(status.st_size), readPart(*file, 0, 512), "")) {
    ::close(*file);
    return error("{}: it is not {}, so it is not written; move it elsewhere", path, nounOf(OwnFile::Lock));
  }
  return file;
}

Status makeFolders(const std::string &folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  return code ? error("{}: cannot create the folder: {}", folder, std::strerror(code.value())) : Status();
}

Expected<bool> makeNewFolder(const std::string &folder) {
  if (::mkdir(folder.c_str(), 0777) == 0)
    return true;
  if (errno == EEXIST)
    return false;
  return error("{}: cannot create the folder: {}", folder, std::strerror(errno));
}

Status linkOrCopy(const std::string &from, const std::string &to) {
  if (::link(from.c_str(), to.c_str()) == 0)
    return Status();
  if (errno == EEXIST)
    return error("{}: cannot write: {}", to, std::strerror(errno));
  return copyFile(from, to, OwnFile::OfRun);
}

bool isSameFile(const std::string &one, const std::string &other) {
  struct stat first {}, second{};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

TemporaryFolder::TemporaryFolder(const std::string &name) {
  std::error_code code;
  std::string pattern = (fs::temp_directory_path(code) / (name + "-XXXXXX")).string();
  if (!code && ::mkdtemp(pattern.data()))
    folder = pattern;
  else
    problem = error("cannot make a temporary folder: {}; set TMPDIR to a writable one",
                    std::strerror(code ? code.value() : errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code code;
  if (!folder.empty())
    fs::remove_all(folder, code);
}

std::string TemporaryFolder::path(std::string_view name) const { return fmt::format("{}/{}", folder, name); }

Status TemporaryFolder::write(std::string_view name, std::string_view bytes) const {
  if (!problem.ok())
    return problem;
  const std::string place = path(name);
  const Descriptor file{::open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700)};
  for (size_t done = 0; file.number >= 0 && done < bytes.size();) {
    const ssize_t count = ::write(file.number, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return error("cannot write {}: {}; set TMPDIR to a folder with room", place,
                   std::strerror(count < 0 ? errno : ENOSPC));
    done += static_cast<size_t>(count);
  }
  return file.number >= 0 ? Status() : error("cannot write {}: {}", place, std::strerror(errno));
}

} // namespace tcc
