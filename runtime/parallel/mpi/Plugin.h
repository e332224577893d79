//===- Plugin.h - interface of the MPI plug-in ---------------------------===//
//
// trun is not linked with MPI. If an MPI launcher has started it, it opens this library, which is linked with MPI. The
// interface is plain C, so that the two may be built separately. Every function returns null, or the reason of its
// failure as a text that is valid until the next call. At most one thread calls at a time (MPI_THREAD_SERIALIZED): the
// one that runs a collective.
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
  /// Writes the bytes of every rank to `all`, in the order of ranks. Every rank calls it.
  const char *(*gather)(const void *own, uint32_t bytes, void *all);
  /// Begins to send the parts, concatenated, as one message to a peer, or to receive a message of as many bytes.
  /// Messages of one tag arrive in order. The parts must stay valid until `test` reports the request, a number from 0,
  /// as done.
  const char *(*post)(uint32_t peer, int send, int tag, const TrunMpiPart *parts, uint64_t count, int64_t *request);
  /// Sets `done` to 1 once the message has been received or sent; the request is then finished.
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
