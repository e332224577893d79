/* Linear regression y ~ x . w with B = 4 samples of N = 3 numbers, as the compiler would emit it: the loss is the sum
   of squared errors with weight B, updates keep the old state where loss or gradient are not finite. */
#include <stdint.h>

enum { B = 4, N = 3 };

static int finite(float value) { return value - value == 0; }

static void gradients(const float *x, const float *y, const float *w, float *sum, float *g) {
  *sum = 0;
  for (int i = 0; i < N; ++i)
    g[i] = 0;
  for (int b = 0; b < B; ++b) {
    float error = -y[b];
    for (int i = 0; i < N; ++i)
      error += x[b * N + i] * w[i];
    *sum += error * error;
    for (int i = 0; i < N; ++i)
      g[i] += 2 * error * x[b * N + i];
  }
}

/* scalars: g0.lr, momentum, first_update */
static void apply(const float *scalars, const float *g, float weight, float sum, const float *m, float *mOut,
                  const float *w, float *wOut, float *norm) {
  float mean[N], squares = 0;
  for (int i = 0; i < N; ++i) {
    mean[i] = g[i] / weight;
    squares += mean[i] * mean[i];
  }
  *norm = __builtin_sqrtf(squares);
  int good = finite(sum) && finite(*norm);
  for (int i = 0; i < N; ++i) {
    float velocity = scalars[2] != 0 ? mean[i] : scalars[1] * m[i] + mean[i];
    float value = w[i] - scalars[0] * velocity;
    mOut[i] = good ? velocity : m[i];
    wOut[i] = good ? value : w[i];
  }
}

/* x, y, scalars, w, m -> w, m, loss_sum, loss_weight, grad_norm */
void step(void *const *p, int64_t begin, int64_t end, void *scratch) {
  float g[N];
  gradients(p[0], p[1], p[3], p[7], g);
  *(float *)p[8] = B;
  apply(p[2], g, B, *(float *)p[7], p[4], p[6], p[3], p[5], p[9]);
}

/* x, y, w -> sums[N + 2], loss_sum, loss_weight; sums are gradient, weight, loss */
void accumulate_first(void *const *p, int64_t begin, int64_t end, void *scratch) {
  float *sums = p[3];
  gradients(p[0], p[1], p[2], p[4], sums);
  *(float *)p[5] = B;
  sums[N] = B;
  sums[N + 1] = *(float *)p[4];
}

/* x, y, w, sums -> sums, loss_sum, loss_weight */
void accumulate_next(void *const *p, int64_t begin, int64_t end, void *scratch) {
  const float *old = p[3];
  float *sums = p[4], g[N];
  gradients(p[0], p[1], p[2], p[5], g);
  *(float *)p[6] = B;
  for (int i = 0; i < N; ++i)
    sums[i] = old[i] + g[i];
  sums[N] = old[N] + B;
  sums[N + 1] = old[N + 1] + *(float *)p[5];
}

/* scalars, sums, w, m -> w, m, grad_norm */
void update(void *const *p, int64_t begin, int64_t end, void *scratch) {
  const float *sums = p[1];
  apply(p[0], sums, sums[N], sums[N + 1], p[3], p[5], p[2], p[4], p[6]);
}

/* x, y, w -> loss_sum, loss_weight */
void evaluate(void *const *p, int64_t begin, int64_t end, void *scratch) {
  float g[N];
  gradients(p[0], p[1], p[2], p[3], g);
  *(float *)p[4] = B;
}

/* x, w -> prediction */
void predict(void *const *p, int64_t begin, int64_t end, void *scratch) {
  const float *x = p[0], *w = p[1];
  for (int b = 0; b < B; ++b) {
    float value = 0;
    for (int i = 0; i < N; ++i)
      value += x[b * N + i] * w[i];
    ((float *)p[2])[b] = value;
  }
}

/* x, y, w -> loss, gradient */
void loss_gradients(void *const *p, int64_t begin, int64_t end, void *scratch) {
  float *g = p[4];
  gradients(p[0], p[1], p[2], p[3], g);
  *(float *)p[3] /= B;
  for (int i = 0; i < N; ++i)
    g[i] /= B;
}
