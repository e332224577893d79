/* Fine-tunes a plan that is a part of the program, as on a device without files of models: weights go in and out by
 * name.
 *
 *   from_memory ROWS START END
 *
 * ROWS: for each update, the bytes of the plan's inputs in their order. START, END: the bytes of the parameters in the
 * plan's order, before and after. It prints the loss of each update. The linker gets the plan's bytes from an assembler
 * file: plan_begin: .incbin "m.tplan"; plan_end: */
#include <trun/trun.h>

#include <stdio.h>
#include <stdlib.h>

extern const unsigned char plan_begin[], plan_end[];

static void check(trun_error *error) {
  if (!error)
    return;
  fprintf(stderr, "from_memory: %s\n", trun_error_message(error));
  trun_error_free(error);
  exit(1);
}

/* Reads (mode "rb") or writes ("wb") all parameters. */
static void exchange(trun_plan *plan, trun_trainer *trainer, const char *path, const char *mode) {
  FILE *file = fopen(path, mode);
  for (size_t i = 0; file && i < trun_plan_variables(plan); ++i) {
    trun_info info = TRUN_INIT(trun_info);
    check(trun_plan_variable(plan, i, &info));
    if (info.role != TRUN_PARAMETER)
      continue;
    void *values = malloc(info.bytes);
    if (*mode == 'w') {
      check(trun_trainer_read(trainer, info.name, values, info.bytes));
      if (fwrite(values, 1, info.bytes, file) != info.bytes)
        exit(1);
    } else {
      if (fread(values, 1, info.bytes, file) != info.bytes)
        exit(1);
      check(trun_trainer_write(trainer, info.name, values, info.bytes));
    }
    free(values);
  }
  if (!file || fclose(file) != 0)
    exit(1);
}

static int next_rows(FILE *rows, void *const *data, const size_t *bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (fread(data[i], 1, bytes[i], rows) != bytes[i])
      return 0;
  return 1;
}

int main(int argc, char **argv) {
  FILE *rows = argc == 4 ? fopen(argv[1], "rb") : NULL;
  if (!rows)
    return fprintf(stderr, "usage: from_memory ROWS START END\n"), 2;
  trun_plan *plan;
  trun_trainer *trainer;
  check(trun_plan_open_memory(plan_begin, (size_t)(plan_end - plan_begin), NULL, &plan));
  check(trun_trainer_create(plan, NULL, &trainer));
  exchange(plan, trainer, argv[2], "rb");

  enum { most = 8 };
  trun_tensor batch[most];
  void *data[most];
  size_t bytes[most], count = 0;
  trun_info info = TRUN_INIT(trun_info);
  for (; count < most && count < trun_plan_values(plan, "step"); ++count) {
    check(trun_plan_value(plan, "step", count, &info));
    if (info.role != TRUN_INPUT)
      break;
    bytes[count] = info.bytes;
    data[count] = malloc(info.bytes);
    batch[count] = (trun_tensor){sizeof(trun_tensor), info.name, data[count], info.dtype, info.rank, info.dims, NULL};
  }
  trun_step step = TRUN_INIT(trun_step);
  while (next_rows(rows, data, bytes, count)) {
    check(trun_trainer_step(trainer, batch, count, &step));
    printf("%.17g\n", step.loss);
  }
  exchange(plan, trainer, argv[3], "wb");
  for (size_t i = 0; i < count; ++i)
    free(data[i]);
  trun_trainer_free(trainer);
  trun_plan_close(plan);
  return fclose(rows);
}
