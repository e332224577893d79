/*===- trun.h - train the plans of tcc inside a C program ---------------------===
 *
 * Every function that can fail returns NULL, or an error that the caller frees. Nothing throws, prints, handles signals
 * or ends the process. Objects may be used from any thread, each by one thread at a time, except where said: several
 * trainers may work at once, and trun_trainer_stop may be called at any time, also in a signal handler. Strings are
 * UTF-8 and belong to the object that gave them. Structs begin with their size, so that later versions can add fields:
 * initialise them by TRUN_INIT (C99, C++20).
 *
 *   trun_plan *plan;
 *   trun_error *error = trun_plan_open("mlp.tplan", &plan);
 *   trun_trainer *trainer;
 *   if (!error) error = trun_trainer_create(plan, NULL, &trainer);
 *   for (int i = 0; i < 100 && !error; ++i) error = trun_trainer_step(trainer, batch, 2, &step);
 *
 *===--------------------------------------------------------------------------===*/
#ifndef TRUN_TRUN_H
#define TRUN_TRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRUN_API __attribute__((visibility("default")))
#else
#define TRUN_API
#endif

/* trun_step step = TRUN_INIT(trun_step); */
#define TRUN_INIT(type) {.size = sizeof(type)}

/* "0.1.0": that of the library which is running. */
TRUN_API const char *trun_version(void);

/*--- Errors -----------------------------------------------------------------*/

typedef struct trun_error trun_error;

typedef enum trun_code {
  TRUN_FAULT = 1,       /* the input, the data or the machine is at fault */
  TRUN_USAGE = 2,       /* the call is wrong: an unknown name, a tensor that does not fit */
  TRUN_OVER_BUDGET = 3, /* no variant of the plan fits the memory budget */
  TRUN_NON_FINITE = 4   /* the loss or a gradient is not finite */
} trun_code;

TRUN_API trun_code trun_error_code(const trun_error *error);
/* One line: what is wrong, where, and what to do. */
TRUN_API const char *trun_error_message(const trun_error *error);
/* The ONNX node that first computed a NaN or an infinity (TRUN_NON_FINITE), else "". */
TRUN_API const char *trun_error_node(const trun_error *error);
TRUN_API void trun_error_free(trun_error *error);

/*--- Tensors ----------------------------------------------------------------*/

typedef enum trun_dtype {
  TRUN_F64 = 1,
  TRUN_F32 = 2,
  TRUN_BF16 = 3,
  TRUN_F16 = 4,
  TRUN_I64 = 5,
  TRUN_I32 = 6,
  TRUN_I16 = 7,
  TRUN_I8 = 8,
  TRUN_U64 = 9,
  TRUN_U32 = 10,
  TRUN_U16 = 11,
  TRUN_U8 = 12,
  TRUN_BOOL = 13 /* a byte, 0 or 1 */
} trun_dtype;

/* A tensor of the caller, which must stay valid during the call. */
typedef struct trun_tensor {
  size_t size;
  const char *name;       /* of the graph's input */
  const void *data;
  trun_dtype dtype;       /* converted to the input's type as data of a file would be */
  int rank;
  const int64_t *dims;    /* of the input; the sample axis may have another length */
  const int64_t *strides; /* in elements; NULL: dense, the last axis first in memory */
} trun_tensor;

typedef enum trun_role {
  TRUN_INPUT,
  TRUN_OUTPUT,
  TRUN_PARAMETER, /* trained */
  TRUN_BUFFER,    /* the model's other values: frozen weights, running statistics */
  TRUN_STATE      /* of the optimizer */
} trun_role;

/* What is known about a value without its bytes. */
typedef struct trun_info {
  size_t size;
  const char *name;
  trun_role role;
  trun_dtype dtype;
  int rank;
  const int64_t *dims;
  int sample_axis; /* -1: none */
  uint64_t bytes;
} trun_info;

/*--- Plans ------------------------------------------------------------------*/

typedef struct trun_plan trun_plan;

/* Opens and checks a plan that tcc wrote. It contains machine code: open only plans that you trust. */
TRUN_API trun_error *trun_plan_open(const char *path, trun_plan **plan);
/* The same from memory, which is copied. `name` is for messages; its folder is that of external weights. */
TRUN_API trun_error *trun_plan_open_memory(const void *bytes, size_t count, const char *name, trun_plan **plan);
TRUN_API void trun_plan_close(trun_plan *plan);

TRUN_API const char *trun_plan_model(const trun_plan *plan);
/* The target that trun_trainer_create would take, "cpu:v4"; "" if none runs here. */
TRUN_API const char *trun_plan_target(const trun_plan *plan);
/* Names of entries: "step", "evaluate", "predict", … `index` counts from 0; NULL beyond the last. */
TRUN_API const char *trun_plan_entry(const trun_plan *plan, size_t index);
/* Inputs, then outputs, of an entry; their number is 0 if there is no such entry. */
TRUN_API size_t trun_plan_values(const trun_plan *plan, const char *entry);
TRUN_API trun_error *trun_plan_value(const trun_plan *plan, const char *entry, size_t index, trun_info *info);
/* Parameters, buffers and the optimizer's state. */
TRUN_API size_t trun_plan_variables(const trun_plan *plan);
TRUN_API trun_error *trun_plan_variable(const trun_plan *plan, size_t index, trun_info *info);

/* Bytes that a trainer will allocate on its device, known before anything is allocated. */
typedef struct trun_memory {
  size_t size;
  uint64_t resident;  /* the model's and the optimizer's state */
  uint64_t transient; /* values of a step */
} trun_memory;
/* `threads` 0: as many as this process may use. */
TRUN_API trun_error *trun_plan_memory(const trun_plan *plan, unsigned threads, trun_memory *memory);

/*--- Trainers ---------------------------------------------------------------*/

typedef struct trun_trainer trun_trainer;

typedef struct trun_trainer_options {
  size_t size;
  const char *target;          /* NULL: the best of the plan's that runs here */
  const char *device;          /* "cpu", "cuda", "null"; NULL: the target's */
  unsigned threads;            /* 0: as many as this process may use */
  uint64_t memory_budget;      /* bytes; 0: the plan's */
  const char *const *settings; /* "optimizer.lr=3e-4": keys that need no compilation; NULL: none */
  size_t setting_count;
  int64_t seed;                /* of random numbers; below 0: the plan's */
  double schedule_steps;       /* the schedule's length; 0: its own */
} trun_trainer_options;

/* Options with the values that NULL stands for. */
TRUN_API trun_trainer_options trun_trainer_defaults(void);

/* Allocates all memory and loads the plan's first weights. `options` may be NULL. The plan may be closed afterwards. */
TRUN_API trun_error *trun_trainer_create(const trun_plan *plan, const trun_trainer_options *options,
                                         trun_trainer **trainer);
TRUN_API void trun_trainer_free(trun_trainer *trainer);

/* Numbers of one update. */
typedef struct trun_step {
  size_t size;
  uint64_t step; /* from 1 */
  double loss, learning_rate, gradient_norm;
  uint64_t samples, tokens;
  double loss_scale; /* 0: the plan has none */
  int skipped;       /* 1: a gradient overflowed under the loss scale, and no weight changed */
} trun_step;

/* One update from as many rows as trun_trainer_rows says, or fewer where the loss can leave rows out. In a plan of
 * several shapes that is the number of the first; the tensors go to the smallest shape that holds them. `step` may be
 * NULL. After TRUN_NON_FINITE the state is that before the update if the plan clips, accumulates or scales, or the loss
 * was not finite; else the next update is refused until a state is loaded. */
TRUN_API trun_error *trun_trainer_step(trun_trainer *trainer, const trun_tensor *tensors, size_t count,
                                       trun_step *step);
TRUN_API uint64_t trun_trainer_rows(const trun_trainer *trainer);
/* Updates done. */
TRUN_API uint64_t trun_trainer_steps(const trun_trainer *trainer);

/* From the next update on: the learning rate; or any setting that needs no compilation, "optimizer.weight_decay=0.1".
 */
TRUN_API trun_error *trun_trainer_set_rate(trun_trainer *trainer, double rate);
TRUN_API trun_error *trun_trainer_set(trun_trainer *trainer, const char *setting);

/* Begins the next epoch, for a schedule that counts epochs (schedule.per); an own loop knows where one ends. */
TRUN_API trun_error *trun_trainer_next_epoch(trun_trainer *trainer);

/* Named results: numbers of an evaluation, or arrays. Beyond the last there is no name (NULL), number (NaN) or data. */
typedef struct trun_results trun_results;
TRUN_API size_t trun_results_count(const trun_results *results);
TRUN_API const char *trun_results_name(const trun_results *results, size_t index);
/* Of an evaluation. */
TRUN_API double trun_results_number(const trun_results *results, size_t index);
/* Of arrays: type and shape, and the bytes, which the results own. */
TRUN_API void trun_results_info(const trun_results *results, size_t index, trun_info *info);
TRUN_API const void *trun_results_data(const trun_results *results, size_t index);
TRUN_API void trun_results_free(trun_results *results);

/* The graph outputs that the plan was compiled to return (train.outputs), for the rows of the last update. */
TRUN_API trun_error *trun_trainer_outputs(trun_trainer *trainer, trun_results **results);

/* "eval_loss" and the plan's metrics over any number of rows, in inference mode. `averages` 1: of the averaged weights.
 */
TRUN_API trun_error *trun_trainer_evaluate(trun_trainer *trainer, const trun_tensor *tensors, size_t count,
                                           int averages, trun_results **results);
/* The graph's outputs for any number of rows ("predict"), or loss and gradients of one batch ("gradients"). */
TRUN_API trun_error *trun_trainer_run(trun_trainer *trainer, const char *entry, const trun_tensor *tensors,
                                      size_t count, trun_results **results);

/* Copies a variable by its name (trun_plan_variable), in the plan's type and shape. `bytes`: its size. */
TRUN_API trun_error *trun_trainer_read(trun_trainer *trainer, const char *name, void *to, size_t bytes);
TRUN_API trun_error *trun_trainer_write(trun_trainer *trainer, const char *name, const void *from, size_t bytes);

/* A run folder with the state as its checkpoint: `trun --resume`, `trun eval --from` and `trun export` read it. */
TRUN_API trun_error *trun_trainer_save(trun_trainer *trainer, const char *run);
/* "RUN", "RUN@STEP", "RUN@best". */
TRUN_API trun_error *trun_trainer_load(trun_trainer *trainer, const char *run);
/* The model with the trained values: .onnx or .safetensors. */
TRUN_API trun_error *trun_trainer_export(trun_trainer *trainer, const char *path);
/* The trained adapter alone, as peft reads it: a folder with adapter_model.safetensors and adapter_config.json. */
TRUN_API trun_error *trun_trainer_export_adapter(trun_trainer *trainer, const char *folder);

/*--- Whole runs -------------------------------------------------------------*/

typedef enum trun_event_kind {
  TRUN_EVENT_MESSAGE,    /* text */
  TRUN_EVENT_BEGIN,      /* total */
  TRUN_EVENT_UPDATE,     /* step, total, numbers of the update */
  TRUN_EVENT_EVALUATION, /* step, total, results: valid during the call */
  TRUN_EVENT_CHECKPOINT, /* step, text: its folder */
  TRUN_EVENT_END         /* step, text: why, if it was not the planned end */
} trun_event_kind;

typedef struct trun_event {
  size_t size;
  trun_event_kind kind;
  uint64_t step, total;
  const char *text; /* "" if there is none */
  const trun_step *update;
  const trun_results *results;
} trun_event;

typedef struct trun_fit_options {
  size_t size;
  const char *data;       /* a data set of any kind that trun reads; NULL: `rows` */
  const char *eval_data;  /* NULL: `eval_rows`, or none */
  const trun_tensor *rows, *eval_rows; /* whole data sets in memory, samples first */
  size_t row_count, eval_row_count;
  int64_t steps, epochs;  /* one of them; below 0: not given. Neither: one epoch */
  int64_t eval_every;     /* updates; 0: at the end only */
  int64_t checkpoint_every;
  const char *out;        /* run folder to make; NULL: no files */
  const char *resume;     /* RUN[@STEP] to go on with; NULL: a new run from the trainer's state */
  int shuffle;            /* 1: a new order every epoch */
  void (*on_event)(void *user, const trun_event *event); /* on the calling thread, except messages; may be NULL */
  void *user;
} trun_fit_options;

TRUN_API trun_fit_options trun_fit_defaults(void);

/* Trains as `trun` does, from the trainer's state, and leaves the result there. Ends early after trun_trainer_stop. */
TRUN_API trun_error *trun_trainer_fit(trun_trainer *trainer, const trun_fit_options *options);
/* Ends a fit after its update. The only call that may be made while another one uses the trainer. */
TRUN_API void trun_trainer_stop(trun_trainer *trainer);

#ifdef __cplusplus
}
#endif

#endif
