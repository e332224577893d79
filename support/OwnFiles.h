//===- OwnFiles.h - files and folders that the commands may replace or remove -===//
//
// The one place that removes files, renames them and opens them for writing; AtomicFile, which writes their content,
// asks it first. The rule: a file is replaced or removed only if a mark in its bytes says that we wrote it, or if it is
// empty; a folder is removed only if everything in it is ours. So no mistyped name, copied folder or link loses a file.
//
// Every kind of file has its mark here: a magic number, a producer in its metadata, or words that no other program
// writes at that place. A mark does not protect a user's changes to a file of ours. Recipes therefore carry a checksum,
// and formats without a place for a mark have it in a note: an attribute of the file, or a file beside it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_OWNFILES_H
#define TCC_SUPPORT_OWNFILES_H

#include "support/Status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tcc {

enum class OwnFile {
  Plan,
  Page,          ///< HTML
  Trace,         ///< JSON for Perfetto
  Timings,       ///< JSON of --timings
  Weights,       ///< safetensors: exports, predictions, gradients
  Checkpoint,    ///< safetensors: a shard
  Arrays,        ///< npz, npy and CSV of predictions: formats without a place for a mark (noteWritten)
  Note,          ///< of noteWritten, beside a file
  Model,         ///< an exported ONNX model
  ModelData,     ///< and its external data
  Recipe,        ///< a suggestion that has not been edited
  Picture,       ///< PNG
  Confusion,     ///< CSV of trun eval --confusion
  Packing,       ///< CSV of tcc-plan pack
  Schedule,      ///< JSON of tcc-plan remat
  Code,          ///< ELF or PTX of tcc report --code
  Phase,         ///< MLIR of --dump-phases-to
  AdapterConfig, ///< adapter_config.json
  Summary,       ///< summary.json of a sweep
  Images,        ///< decoded images of data.cache
  Sealed,        ///< JSON that ends in its checksum
  Lock,          ///< of a run
  Folder,        ///< an empty one
  OfRun,         ///< of a run folder without a mark of its own: the folder is known to be ours
};

/// Metadata that marks a safetensors file: the value of the key "producer".
constexpr std::string_view kWeightsProducer = "trun", kCheckpointProducer = "trun checkpoint";
/// The key in the metadata of an exported model.
constexpr std::string_view kModelMark = "trun.export";
/// The first bytes of external data, of decoded images, and of a dumped phase.
constexpr std::string_view kModelDataMark = "trun external data\n", kImagesMark = "tccimages",
                           kPhaseMark = "// tcc phase ";
/// The last bytes of a file of `tcc report --code`.
constexpr std::string_view kCodeMark = "\n// tcc report --code\n";
/// The text chunk of a picture.
constexpr std::string_view kPictureMark = std::string_view("tEXtSoftware\0trun", 17);

/// The recipe with a last line that holds the checksum of the text before.
std::string sealRecipe(std::string text);

/// Records that we wrote an open file, which is about to become `place`, with its size and XXH3-64: in the attribute
/// user.trun.written, or on file systems without attributes in `.NAME.trun` beside `place`. Without this note the file
/// is never replaced.
void noteWritten(int file, const std::string &place, uint64_t bytes, uint64_t hash);

/// Error: the file at `path` must not be replaced, because it is neither missing nor empty nor ours. `name` stands for
/// the path in the message. `path` is not a link: callers follow links first if `followsLinks` is true.
Status checkReplaceable(const std::string &path, OwnFile kind, const std::string &name);

/// Files inside runs and caches are never written through a link; outputs that a user names are.
bool followsLinks(OwnFile kind);

/// Removes a regular file that has the mark of its kind. Error: it is not such a file, or cannot be removed. A missing
/// file is success.
Status removeOwnFile(const std::string &path, OwnFile kind);

/// The kind of file that we write under a name in a folder of ours; nothing if we write no such name.
using KindOfName = std::function<std::optional<OwnFile>(const std::string &name)>;

/// An entry of the folder that is not ours, and why; empty if all are ours. Temporary files of dead writers are ours. A
/// folder that is a link or cannot be read is not.
std::string foreignEntry(const std::string &folder, const KindOfName &kindOf);

/// Removes a folder and the files in it, if all are ours; else nothing. Error: names the foreign entry.
Status removeOwnFolder(const std::string &folder, const KindOfName &kindOf);

/// Renames a file or folder to a free name. Error: the name is taken, or the system's reason.
Status renameNew(const std::string &from, const std::string &to);

/// Moves a file of ours over another of its kind, or to a free name. Error: either is not ours.
Status takeName(const std::string &from, const std::string &to, OwnFile kind);

/// Exchanges two names in one step. False where the file system cannot.
bool exchangeNames(const std::string &one, const std::string &other);

/// Renames a foreign file or folder at `path` to the first free name beside `place`: kept-NAME-1, kept-NAME-2, ….
Status moveAside(const std::string &path, const std::string &place);

/// True if the file is there and has the mark of its kind.
bool isOwnFile(const std::string &path, OwnFile kind);

/// Opens a file of a run for appending, or creates it. Error: it is a link or no regular file; with `mustBeNew`: it
/// exists. Returns the descriptor.
Expected<int> openForAppending(const std::string &path, bool mustBeNew);

/// Opens a lock file for reading and writing, and creates it if it is missing; without `make` opens an existing one for
/// reading only. Error: it is a link, not a regular file, or holds other bytes than a lock.
Expected<int> openLock(const std::string &path, bool make = true);

/// Creates a folder and its parents. Error: located.
Status makeFolders(const std::string &folder);

/// Creates one folder. False: something of that name is there.
Expected<bool> makeNewFolder(const std::string &folder);

/// Gives a new name to a file that is there already, by a link where the file system has them, else by a copy.
Status linkOrCopy(const std::string &from, const std::string &to);

/// True if both paths lead to one file.
bool isSameFile(const std::string &one, const std::string &other);

/// A new folder in $TMPDIR that only this process uses; it is removed with its content when the object dies.
class TemporaryFolder {
public:
  explicit TemporaryFolder(const std::string &name);
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder();

  /// The error if the folder could not be created.
  const Status &status() const { return problem; }
  std::string path(std::string_view name) const;
  Status write(std::string_view name, std::string_view bytes) const;

private:
  std::string folder;
  Status problem;
};

} // namespace tcc

#endif // TCC_SUPPORT_OWNFILES_H
