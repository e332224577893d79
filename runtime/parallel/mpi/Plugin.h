//===- Plugin.h - what the MPI plug-in offers ----------------------------===//
//
// trun is not linked with MPI: it opens this library, which is, when a launcher of MPI has started it. The boundary is
// plain C, so that the two may be built apart. Every function returns null, or why it failed in words that last until
// the next call. At most one thread calls at a time (MPI_THREAD_SERIALIZED): the one that has a collective to do.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_MPI_PLUGIN_H
#define TCC_RUNTIME_PARALLEL_MPI_PLUGIN_H

#include <stdint.h>

extern "C" {

struct TrunMpiPart {
  void *data;
  uint64_t bytes;
};

/// `rank` of `size`, and the same among the ranks of this machine.
struct TrunMpiPlace {
  uint32_t rank, size, localRank, localSize;
};

#define TRUN_MPI_VERSION 1

struct TrunMpi {
  uint32_t version; ///< TRUN_MPI_VERSION
  /// Joins the job.
  const char *(*start)(TrunMpiPlace *place);
  /// `all` gets the bytes of every rank, in order. Every rank calls it.
  const char *(*gather)(const void *own, uint32_t bytes, void *all);
  /// Begins to send the parts, one behind the other, as one message to a peer, or to receive one of as many bytes.
  /// Messages of a tag arrive in order. The parts stay until `test` is done with the request, a number from 0.
  const char *(*post)(uint32_t peer, int send, int tag, const TrunMpiPart *parts, uint64_t count, int64_t *request);
  /// `done` becomes 1 once the message is there, or gone; the request is then over.
  const char *(*test)(int64_t request, int *done);
  /// Leaves the job in order; every rank calls it. Returns when all have.
  const char *(*finish)(void);
  /// Ends all processes of the job. Does not return.
  void (*end)(int status);
};

/// The only symbol that trun looks for.
__attribute__((visibility("default"))) const TrunMpi *trunMpi(void);
}

#endif // TCC_RUNTIME_PARALLEL_MPI_PLUGIN_H
