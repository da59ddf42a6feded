/* One step of stochastic gradient descent in one pass over memory; see fused.py, which says what it must agree with.

   Each operation of the step is rounded as torch's is: products in __builtin_fmaf together with the sum that they enter,
   all others by themselves.  Compile without contraction (-ffp-contract=off), which would fuse more than that.

   The number in the name of the function is raised with every change of what it takes: a library that was compiled
   before is not found then, rather than called with what it does not expect. */

#include <stddef.h>

#define BLOCK 2048 /* elements that stay in the first cache from one loop to the next */
#define SUMS 16    /* that are added up side by side */

/* How a step is taken. */
struct step {
    float divisor;      /* number of contributions of which the mean is taken */
    float decay;        /* weight decay, 0 for none */
    float momentum;     /* what is left of the momentum, if there is any */
    float undamped;     /* 1 - dampening */
    float scale;        /* minus the learning rate */
    int nesterov;       /* whether the momentum is looked ahead along */
    int first;          /* whether there is no momentum yet */
    int by_difference;  /* whether to measure what has become of the parameters instead of what was added to them */
};

/* Return the sum of squares of what was added, before it was scaled, or of the difference of `out` and `parameters`.

   contributions  `count` vectors, of which the mean is merged
   room           where what was merged is kept, or NULL
   momentum       state that is advanced in place, or NULL without momentum
   out            the parameters after the step; shares no memory with anything else */
static inline __attribute__((always_inline)) double
pass(const struct step *step, size_t size, size_t count, const float *const *contributions, float *restrict room,
     const float *restrict parameters, float *restrict momentum, float *restrict out)
{
    double squares = 0;
    float merged[BLOCK], added[BLOCK];

    for (size_t start = 0; start < size; start += BLOCK) {
        const size_t n = size - start < BLOCK ? size - start : BLOCK;
        const float *w = parameters + start, *first = contributions[0] + start, *g = first;
        float *next = out + start;

        if (count > 1 || room) {
            float *restrict sum = room ? room + start : merged;
            if (count == 1)
                for (size_t i = 0; i < n; i++) sum[i] = first[i];
            else {
                const float *second = contributions[1] + start;
                for (size_t i = 0; i < n; i++) sum[i] = first[i] + second[i];
                for (size_t number = 2; number < count; number++) {
                    const float *other = contributions[number] + start;
                    for (size_t i = 0; i < n; i++) sum[i] += other[i];
                }
                for (size_t i = 0; i < n; i++) sum[i] /= step->divisor;
            }
            g = sum;
        }
        if (step->decay != 0) {
            for (size_t i = 0; i < n; i++) added[i] = __builtin_fmaf(w[i], step->decay, g[i]);
            g = added;
        }
        if (momentum) {
            float *restrict v = momentum + start;
            if (step->first)
                for (size_t i = 0; i < n; i++) v[i] = g[i];
            else
                for (size_t i = 0; i < n; i++) v[i] = __builtin_fmaf(g[i], step->undamped, v[i] * step->momentum);
            if (step->nesterov)
                for (size_t i = 0; i < n; i++) added[i] = __builtin_fmaf(v[i], step->momentum, g[i]);
            g = step->nesterov ? added : v;
        }
        for (size_t i = 0; i < n; i++) next[i] = __builtin_fmaf(g[i], step->scale, w[i]);

        if (step->by_difference) {
            for (size_t i = 0; i < n; i++) added[i] = next[i] - w[i];
            g = added;
        }
        float sums[SUMS] = {0}, rest = 0;
        size_t i = 0;
        for (; i + SUMS <= n; i += SUMS)
            for (size_t lane = 0; lane < SUMS; lane++) sums[lane] += g[i + lane] * g[i + lane];
        for (; i < n; i++) rest += g[i] * g[i];
        for (size_t lane = 0; lane < SUMS; lane++) rest += sums[lane];
        squares += rest;
    }
    return squares;
}

/* The same loops for processors of several widths.  Each that has a fused product also takes it in one instruction: the
   library's function would take a hundred times as long. */

#if defined(__x86_64__)
__attribute__((target("avx512f,fma"))) static double
wide(const struct step *step, size_t size, size_t count, const float *const *contributions, float *room,
     const float *parameters, float *momentum, float *out)
{
    return pass(step, size, count, contributions, room, parameters, momentum, out);
}

__attribute__((target("avx2,fma"))) static double
narrow(const struct step *step, size_t size, size_t count, const float *const *contributions, float *room,
       const float *parameters, float *momentum, float *out)
{
    return pass(step, size, count, contributions, room, parameters, momentum, out);
}
#endif

double psplatform_sgd_1(const struct step *step, size_t size, size_t count, const float *const *contributions,
                        float *room, const float *parameters, float *momentum, float *out)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f"))
        return wide(step, size, count, contributions, room, parameters, momentum, out);
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        return narrow(step, size, count, contributions, room, parameters, momentum, out);
#endif
    return pass(step, size, count, contributions, room, parameters, momentum, out);
}
