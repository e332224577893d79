//===- OwnFilesTest.cpp - what may be replaced and removed, and how deep JSON is -===//
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/RegularFile.h"
#include "support/Toml.h"
#include "test/unit/train/TrainFixture.h"

#include <sys/stat.h>

using namespace tcc;
using namespace tcc::test;
namespace fs = std::filesystem;

namespace {
class OwnFiles : public TrainTest {
protected:
  bool exists(const std::string &name) { return fs::exists(fs::symlink_status(at(name))); }
  /// The kinds of own files by name.
  static std::optional<OwnFile> kinds(const std::string &name) {
    if (name == "marked")
      return OwnFile::Phase;
    return name == "known" ? std::optional(OwnFile::OfRun) : std::nullopt;
  }
  const std::string marked = std::string(kPhaseMark) + "import\n";
};
} // namespace

TEST_F(OwnFiles, OnlyMarkedOrEmptyFilesAreReplaced) {
  for (auto kind : {OwnFile::Plan,          OwnFile::Page,    OwnFile::Trace,     OwnFile::Timings, OwnFile::Weights,
                    OwnFile::Checkpoint,    OwnFile::Model,   OwnFile::ModelData, OwnFile::Recipe,  OwnFile::Picture,
                    OwnFile::Confusion,     OwnFile::Packing, OwnFile::Schedule,  OwnFile::Code,    OwnFile::Phase,
                    OwnFile::AdapterConfig, OwnFile::Summary, OwnFile::Images,    OwnFile::Sealed,  OwnFile::Lock,
                    OwnFile::Arrays,        OwnFile::Note}) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const char *text : {"treasure", "{}", "\n", "[]\n", "id,lower,upper,size\n", "target,height,width\n1,2,3\n", "<!doctype html>\n", "process\n"}) {
      write("f", text);
      expectError(writeFileAtomically(at("f"), "new", kind), {"f: it exists and is not", "another name"});
      expectError(removeOwnFile(at("f"), kind), {"not removed"});
      EXPECT_EQ(*readFile(at("f")), text);
    }
    write("f", "");
    EXPECT_TRUE(writeFileAtomically(at("f"), "new", kind).ok()) << "an empty file holds nothing";
    fs::remove(at("f"));
    EXPECT_TRUE(writeFileAtomically(at("f"), "new", kind).ok());
  }
  write("f", marked);
  EXPECT_TRUE(writeFileAtomically(at("f"), "new", OwnFile::Phase).ok());
  const std::string recipe = sealRecipe("[loss]\n");
  write("r", recipe);
  EXPECT_TRUE(AtomicFile::check(at("r"), OwnFile::Recipe).ok());
  write("r", "# mine\n" + recipe);
  EXPECT_FALSE(AtomicFile::check(at("r"), OwnFile::Recipe).ok()) << "somebody edited it";
}

/// Formats without a place for a mark: a file counts as ours as long as its bytes are those that we wrote last.
TEST_F(OwnFiles, ArraysAreReplacedWhileTheyAreAsWritten) {
  const std::string first = "a,b\n1,2\n", second = "a,b\n3,4\n";
  ASSERT_TRUE(writeFileAtomically(at("p.csv"), first, OwnFile::Arrays).ok());
  ASSERT_TRUE(writeFileAtomically(at("p.csv"), second, OwnFile::Arrays).ok());
  EXPECT_EQ(*readFile(at("p.csv")), second);
  for (const char *text : {"a,b\n3,5\n", "a,b\n3,4\n5,6\n", "a,b\n"}) { // written in place, which keeps attributes
    std::ofstream(at("p.csv"), std::ios::trunc) << text;
    expectError(writeFileAtomically(at("p.csv"), first, OwnFile::Arrays), {"p.csv: it exists and is not an unchanged"});
    EXPECT_EQ(*readFile(at("p.csv")), text);
  }
  std::ofstream(at("p.csv"), std::ios::trunc) << second;
  EXPECT_TRUE(writeFileAtomically(at("p.csv"), first, OwnFile::Arrays).ok()) << "it is as we left it";
  // Another file of that name, without our attribute.
  fs::remove(at("p.csv"));
  write("p.csv", first);
  expectError(writeFileAtomically(at("p.csv"), second, OwnFile::Arrays), {"p.csv: it exists"});
}

/// On a file system without attributes, the note is a file beside it.
TEST_F(OwnFiles, ANoteBesideAFileServesAsItsAttribute) {
  const std::string text = "a,b\n1,2\n";
  write("p.csv", text);
  write(".p.csv.trun",
        fmt::format("trun wrote {} bytes, XXH3 {:016x}\n", text.size(), plan::hashBytes(text.data(), text.size())));
  EXPECT_TRUE(AtomicFile::check(at("p.csv"), OwnFile::Arrays).ok());
  write("p.csv", "a,b\n1,3\n");
  expectError(AtomicFile::check(at("p.csv"), OwnFile::Arrays), {"p.csv: it exists"});
  fs::remove(at(".p.csv.trun"));
  fs::create_symlink("elsewhere", at(".p.csv.trun"));
  write("elsewhere",
        fmt::format("trun wrote {} bytes, XXH3 {:016x}\n", text.size(), plan::hashBytes(text.data(), text.size())));
  write("p.csv", text);
  expectError(AtomicFile::check(at("p.csv"), OwnFile::Arrays), {"p.csv: it exists"});
}

/// A process may end while it writes the lock.
TEST_F(OwnFiles, ALockThatIsCutShortIsOne) {
  const std::string text = "process 4711 on host\n";
  for (size_t length = 1; length <= text.size(); ++length) {
    write("lock", text.substr(0, length));
    EXPECT_TRUE(isOwnFile(at("lock"), OwnFile::Lock)) << length;
  }
  for (const char *other : {"processes", "process x", "process 4711 of", "lock", "process 47a on host"}) {
    write("lock", other);
    EXPECT_FALSE(isOwnFile(at("lock"), OwnFile::Lock)) << other;
  }
}

/// A foreign file that appears while the new one is written is not replaced.
TEST_F(OwnFiles, WhatAppearsMeanwhileStays) {
  auto file = AtomicFile::create(at("f"), OwnFile::Phase);
  ASSERT_TRUE(file.ok() && file->write("new").ok());
  write("f", "treasure");
  expectError(file->commit(), {"f: it exists"});
  EXPECT_EQ(*readFile(at("f")), "treasure");
}

TEST_F(OwnFiles, RunsAndCachesAreNotWrittenThroughLinks) {
  for (auto kind : {OwnFile::Sealed, OwnFile::OfRun, OwnFile::Images}) {
    write("far", "");
    fs::create_symlink("far", at("near"));
    expectError(writeFileAtomically(at("near"), "new", kind), {"near: it is a symbolic link"});
    expectError(removeOwnFile(at("near"), kind), {"near"});
    EXPECT_TRUE(exists("near") && *readFile(at("far")) == "");
    fs::remove(at("near"));
    ASSERT_EQ(::mkfifo(at("near").c_str(), 0600), 0);
    expectError(writeFileAtomically(at("near"), "new", kind), {"near: cannot write: it is not a regular file"});
    expectError(openForAppending(at("near"), false), {"near: it is not a regular file"});
    fs::remove(at("near"));
  }
  fs::create_symlink("far", at("near"));
  expectError(openForAppending(at("near"), false), {"near: it is a symbolic link"});
  expectError(openLock(at("near")), {"near: it is a symbolic link"});
  write("lock", "thesis\n");
  expectError(openLock(at("lock")), {"lock: it is not the lock of a run"});
  EXPECT_EQ(*readFile(at("lock")), "thesis\n");
}

TEST_F(OwnFiles, FoldersGoOnlyWhole) {
  fs::create_directories(at("d/inner"));
  write("d/marked", marked);
  write("d/known", "x");
  expectError(removeOwnFolder(at("d"), kinds), {"d: it holds inner", "move it"});
  fs::remove(at("d/inner"));
  write("d/notes.txt", "treasure");
  expectError(removeOwnFolder(at("d"), kinds), {"d: it holds notes.txt"});
  fs::rename(at("d/notes.txt"), at("d/marked"));
  expectError(removeOwnFolder(at("d"), kinds), {"d: it holds marked"});
  EXPECT_TRUE(exists("d/known")) << "nothing is removed where something is foreign";
  write("d/marked", marked);
  fs::create_directory_symlink("d", at("link"));
  expectError(removeOwnFolder(at("link"), kinds), {"link"});
  EXPECT_TRUE(removeOwnFolder(at("d"), kinds).ok());
  EXPECT_FALSE(exists("d"));
}

TEST_F(OwnFiles, NamesThatAreTakenStay) {
  write("a", "1"), write("b", "2");
  expectError(renameNew(at("a"), at("b")), {"a: cannot rename to", "exists"});
  EXPECT_EQ(*readFile(at("b")), "2");
  EXPECT_TRUE(moveAside(at("a"), at("b")).ok() && moveAside(at("b"), at("b")).ok());
  EXPECT_EQ(*readFile(at("kept-b-1")) + *readFile(at("kept-b-2")), "12");
}

TEST_F(OwnFiles, JsonAndTomlOfAnyDepthAreAnErrorAtMost) {
  for (size_t depth : {size_t(33), size_t(1000), size_t(100'000)}) {
    const std::string lists = std::string(depth, '[') + std::string(depth, ']');
    std::string objects;
    for (size_t i = 0; i < depth; ++i)
      objects += "{\"a\":";
    objects += "1" + std::string(depth, '}');
    for (const std::string &text : {lists, objects, std::string(depth, '['), std::string(depth, '{')}) {
      EXPECT_FALSE(parseJson(text, "x").ok());
      EXPECT_TRUE(parseJsonOrNull(text).is_null());
      EXPECT_FALSE(parseToml("v = " + text).ok());
    }
    expectError(parseJson(lists, "x.json"), {"x.json: nested deeper than 32 levels"});
  }
  EXPECT_TRUE(parseJson(std::string(32, '[') + std::string(32, ']'), "x").ok());
  expectError(parseJson("{\"a\":1,\"a\":2}", "x"), {"'a' occurs twice"});
  expectError(parseJson("[1e999]", "x"), {"beyond the range"});
  expectError(parseJson("[1,]", "x.json"), {"x.json: it is not JSON: byte 4"});
  EXPECT_EQ(jsonText(nlohmann::json("a\xff")), "\"a\xef\xbf\xbd\"") << "bytes that are no text are no exception";
}

TEST_F(OwnFiles, FilesBeyondTheirLimitAreNotRead) {
  write("f", std::string(1000, 'x'));
  EXPECT_EQ(readWhole(at("f"), 1000)->size(), 1000u);
  expectError(readWhole(at("f"), 999), {"f: it holds more than 999 B"});
  fs::create_symlink("/dev/zero", at("zero"));
  expectError(readFile(at("zero")), {"zero: cannot read: it is not a regular file but a device"});
}
