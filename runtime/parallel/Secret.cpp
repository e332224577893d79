//===- Secret.cpp - how ranks prove that they belong to one job ----------===//
#include "runtime/parallel/Secret.h"
#include "runtime/parallel/Socket.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <string_view>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr const char *kVariable = "TRUN_JOB_SECRET", *kFile = "TRUN_JOB_SECRET_FILE";
constexpr const char *kMake = "openssl rand -hex 32 makes one";

/// Removes the trailing newline that editors and `openssl rand` add.
std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

Expected<std::string> readSecretFile(const std::string &path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return error("{}={}: {}", kFile, path, systemError(errno));
  if (!S_ISREG(status.st_mode))
    return error("{}={}: it is not a file", kFile, path);
  if ((status.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0)
    return error("{}={}: its rights are {:03o}, so others may {} it: chmod 600 {}", kFile, path, status.st_mode & 0777,
                 (status.st_mode & S_IROTH) != 0 ? "read" : "change", path);
  char text[4096];
  const ssize_t length = ::read(file.get(), text, sizeof(text));
  if (length < 0)
    return error("{}={}: {}", kFile, path, systemError(errno));
  if (length == sizeof(text))
    return error("{}={}: it has {} bytes or more; a secret is one line; {}", kFile, path, sizeof(text), kMake);
  return std::string(text, static_cast<size_t>(length));
}
} // namespace

Expected<Nonce> tcc::runtime::drawNonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return error("the system draws no random numbers: {}", systemError(errno));
  return nonce;
}

Expected<std::string> tcc::runtime::drawSecret() {
  auto nonce = drawNonce();
  return nonce ? Expected<std::string>(std::string(nonce->begin(), nonce->end())) : nonce.status();
}

Proof tcc::runtime::proofOf(const std::string &secret, End end, const Nonce &connecting, const Nonce &accepting) {
  constexpr std::string_view kPurpose = "trun ranks 1";
  const auto who = static_cast<uint8_t>(end);
  hmac_sha256_ctx context;
  hmac_sha256_set_key(&context, secret.size(), reinterpret_cast<const uint8_t *>(secret.data()));
  hmac_sha256_update(&context, kPurpose.size(), reinterpret_cast<const uint8_t *>(kPurpose.data()));
  hmac_sha256_update(&context, 1, &who);
  hmac_sha256_update(&context, connecting.size(), connecting.data());
  hmac_sha256_update(&context, accepting.size(), accepting.data());
  Proof proof;
  hmac_sha256_digest(&context, proof.size(), proof.data());
  return proof;
}

bool tcc::runtime::isSame(const Proof &one, const Proof &other) {
  return memeql_sec(one.data(), other.data(), one.size()) != 0;
}

Expected<std::string> tcc::runtime::secretFromEnvironment() {
  const char *text = std::getenv(kVariable), *path = std::getenv(kFile);
  if (text && path)
    return error("{} and {} are both set; leave one out", kVariable, kFile);
  if (!text && !path)
    return std::string();
  auto read = text ? Expected<std::string>(text) : readSecretFile(path);
  if (!read)
    return read;
  std::string secret = trimmed(read.take());
  const std::string name = text ? kVariable : fmt::format("{}={}", kFile, path);
  if (secret.size() < kLeastSecretBytes)
    return error("{}: the secret has {} characters, fewer than {}; {}", name, secret.size(), kLeastSecretBytes, kMake);
  return secret;
}
