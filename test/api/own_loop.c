/* An own loop over a stream of rows: opens a plan, trains it, evaluates, reads weights back, writes a checkpoint. */
#include <trun/trun.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(trun_error *error) {
  if (!error)
    return 0;
  fprintf(stderr, "%d: %s\n", (int)trun_error_code(error), trun_error_message(error));
  trun_error_free(error);
  return 1;
}

/* The next rows of a stream: y is the class of the largest of the first ten numbers of x. */
static void next_rows(float *x, int64_t *y, int rows, int width) {
  for (int row = 0; row < rows; ++row) {
    int best = 0;
    for (int i = 0; i < width; ++i)
      x[row * width + i] = (float)rand() / (float)RAND_MAX;
    for (int i = 1; i < 10; ++i)
      if (x[row * width + i] > x[row * width + best])
        best = i;
    y[row] = best;
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: own_loop PLAN RUN\n");
    return 2;
  }
  trun_plan *plan = NULL;
  trun_trainer *trainer = NULL;
  if (failed(trun_plan_open(argv[1], &plan)))
    return 1;
  trun_info x = TRUN_INIT(trun_info), y = TRUN_INIT(trun_info);
  trun_memory memory = TRUN_INIT(trun_memory);
  if (failed(trun_plan_value(plan, "step", 0, &x)) || failed(trun_plan_value(plan, "step", 1, &y)) ||
      failed(trun_plan_memory(plan, 0, &memory)) || failed(trun_trainer_create(plan, NULL, &trainer)))
    return 1;
  printf("%s: %s and %s, %llu bytes\n", trun_plan_model(plan), x.name, y.name,
         (unsigned long long)(memory.resident + memory.transient));
  const int rows = (int)trun_trainer_rows(trainer), width = (int)(x.bytes / sizeof(float)) / rows;
  float *inputs = malloc(x.bytes);
  int64_t *classes = malloc((size_t)rows * sizeof(int64_t));
  trun_tensor batch[2] = {{sizeof(trun_tensor), x.name, inputs, TRUN_F32, x.rank, x.dims, NULL},
                          {sizeof(trun_tensor), y.name, classes, TRUN_I64, y.rank, y.dims, NULL}};
  trun_step step = TRUN_INIT(trun_step);
  double first = 0;
  for (int i = 0; i < 300; ++i) {
    next_rows(inputs, classes, rows, width);
    if (failed(trun_trainer_set_rate(trainer, 4 * cos(1.57 * i / 300))) ||
        failed(trun_trainer_step(trainer, batch, 2, &step)))
      return 1;
    if (i == 0)
      first = step.loss;
  }
  trun_results *results = NULL;
  next_rows(inputs, classes, rows, width);
  if (failed(trun_trainer_evaluate(trainer, batch, 2, 0, &results)) || failed(trun_trainer_save(trainer, argv[2])))
    return 1;
  printf("loss %.3f, after %llu updates %.3f; %s %.3f\n", first, (unsigned long long)step.step, step.loss,
         trun_results_name(results, 0), trun_results_number(results, 0));
  const int learned = trun_results_number(results, 0) < 0.6 * first;
  trun_results_free(results);
  trun_trainer_free(trainer);
  trun_plan_close(plan);
  free(inputs);
  free(classes);
  return learned ? 0 : 1;
}
