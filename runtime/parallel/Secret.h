//===- Secret.h - how ranks prove that they belong to one job ------------===//
//
// The ranks of a job share a secret. Both ends of a connection prove that they know it: HMAC-SHA-256 (RFC 2104, by the
// library nettle) of random numbers that both ends have just drawn. The secret is never sent, and a proof is valid only
// once. Connections are not encrypted: an attacker who can change packets in transit can still take one over.
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

/// How a rank decides whether another process belongs to its job.
struct Trust {
  std::string secret;    ///< of the job; empty: none, then only processes of the same user on this machine belong
  bool insecure = false; ///< without a secret: anybody who can connect (--insecure-ranks)
};

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

/// The end that makes a proof. It is part of the proof, so neither end can send back the proof that it received.
enum class End : uint8_t { Connecting = 'c', Accepting = 'a' };

/// Random bytes of the system. Error: it has none.
Expected<Nonce> drawNonce();
/// A secret for one job, of 256 random bits.
Expected<std::string> drawSecret();

Proof proofOf(const std::string &secret, End end, const Nonce &connecting, const Nonce &accepting);
/// Compares in constant time.
bool isSame(const Proof &one, const Proof &other);

/// The secret in TRUN_JOB_SECRET, or in the file that TRUN_JOB_SECRET_FILE names; empty: neither is set. Error: both
/// are set, the secret is shorter than kLeastSecretBytes, or the file cannot be read or is readable by everybody.
Expected<std::string> secretFromEnvironment();
constexpr size_t kLeastSecretBytes = 16;

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SECRET_H
