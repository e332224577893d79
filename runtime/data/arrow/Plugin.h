//===- Plugin.h - interface of the Arrow plug-in --------------------------===//
//
// trun is not linked with Arrow. If a data set is a Parquet or an Arrow file, it opens this library, which is linked
// with Arrow. The interface is Arrow's C data and C stream interface
// (https://arrow.apache.org/docs/format/CDataInterface.html), whose structures are repeated here, as that page allows,
// so that the two may be built separately.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_ARROW_PLUGIN_H
#define TCC_RUNTIME_DATA_ARROW_PLUGIN_H

#include <stdint.h>

extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif // ARROW_C_STREAM_INTERFACE

#define TRUN_ARROW_VERSION 1

struct TrunArrow {
  uint32_t version; ///< TRUN_ARROW_VERSION
  /// Opens a stream of the rows of a Parquet file, an Arrow file or an Arrow stream, whose bytes outlive the stream;
  /// every batch is checked before it is returned. Arrow allocates at most `memoryBytes`. Returns null, or the reason
  /// of the failure as a text that is valid until this thread's next call.
  const char *(*open)(const void *bytes, uint64_t size, uint64_t memoryBytes, struct ArrowArrayStream *stream);
};

/// The only symbol that trun looks for.
__attribute__((visibility("default"))) const TrunArrow *trunArrow(void);
}

#endif // TCC_RUNTIME_DATA_ARROW_PLUGIN_H
