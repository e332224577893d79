//===- Secret.h - how ranks prove that they belong to one job ------------===//
//
// The ranks of a job share a secret. Whoever opens or accepts a connection proves that it has it: HMAC-SHA-256 (RFC
// 2104, by the library nettle) of random numbers that both ends have just drawn. The secret itself is never sent, and a
// proof serves once. Connections are not encrypted: who can change packets on their way can still take one over.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_SECRET_H
#define TCC_RUNTIME_PARALLEL_SECRET_H

#include "support/Status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tcc::runtime {

/// Whom a rank takes for one of its job.
struct Trust {
  std::string secret;    ///< of the job; empty: none, and then processes of the same user on this machine alone
  bool insecure = false; ///< without a secret: anybody who can connect (--insecure-ranks)
};

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

/// Who proves: the end that connected, or the one that accepted. So neither can send back what it got.
enum class End : uint8_t { Connecting = 'c', Accepting = 'a' };

/// Random bytes of the system. Error: it has none.
Expected<Nonce> drawNonce();
/// A secret for one job, of 256 random bits.
Expected<std::string> drawSecret();

Proof proofOf(const std::string &secret, End end, const Nonce &connecting, const Nonce &accepting);
/// Takes as long whatever differs.
bool isSame(const Proof &one, const Proof &other);

/// The secret that TRUN_JOB_SECRET holds, or the file that TRUN_JOB_SECRET_FILE names; empty: neither is set. Error:
/// both are, it is shorter than kLeastSecretBytes, or the file cannot be read, or everybody may read it.
Expected<std::string> secretFromEnvironment();
constexpr size_t kLeastSecretBytes = 16;

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SECRET_H
