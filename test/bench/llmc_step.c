// llm.c's CPU trainer, one step at a time: compiled with its source folder on the include path, -DTESTING (its own main left out).
// llmc_step MODEL.bin BATCH SEQ WARMUP: random tokens; then each line "N" on standard input asks for N steps. Lines of JSON as measure.py.
#include "train_gpt2.c"

static double oneStep(GPT2 *model, int *inputs, int *targets, int B, int T, int step) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  gpt2_forward(model, inputs, targets, B, T);
  gpt2_zero_grad(model);
  gpt2_backward(model);
  gpt2_update(model, 3e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, step);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
}

static long residentKiB(const char *key) {
  char line[256];
  long value = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, key, strlen(key)))
      value = strtol(line + strlen(key), NULL, 10);
  if (file)
    fclose(file);
  return value;
}

int main(int count, char **words) {
  if (count != 5) {
    fprintf(stderr, "usage: llmc_step MODEL.bin BATCH SEQ WARMUP\n");
    return 2;
  }
  int B = atoi(words[2]), T = atoi(words[3]), warmup = atoi(words[4]), step = 0, wanted;
  long before = residentKiB("VmRSS:");
  GPT2 model;
  gpt2_build_from_checkpoint(&model, words[1]);
  int *tokens = (int *)mallocCheck((size_t)B * T * 2 * sizeof(int));
  uint32_t state = 1;
  for (int i = 0; i < 2 * B * T; ++i)
    tokens[i] = (int)((state = state * 1664525u + 1013904223u) % 50257u);
  double first = 0;
  for (int i = 0; i < warmup; ++i) {
    double seconds = oneStep(&model, tokens, tokens + B * T, B, T, ++step);
    if (i == 0)
      first = seconds;
  }
  printf("{\"first_step_s\": %.6f, \"losses\": [%.6f]}\n", first, warmup ? model.mean_loss : 0.0f);
  fflush(stdout);
  while (scanf("%d", &wanted) == 1) {
    /* Take all times before printing: the first step prints a line of its own. */
    double *times = (double *)malloc(sizeof(double) * (size_t)wanted);
    for (int i = 0; i < wanted; ++i)
      times[i] = oneStep(&model, tokens, tokens + B * T, B, T, ++step);
    printf("{\"times\": [");
    for (int i = 0; i < wanted; ++i)
      printf("%s%.6f", i ? ", " : "", times[i]);
    printf("]}\n");
    free(times);
    fflush(stdout);
  }
  printf("{\"peer\": \"llm.c\", \"peak_rss_bytes\": %ld}\n", (residentKiB("VmHWM:") - before) * 1024);
  return 0;
}
