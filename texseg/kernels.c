/* Inner loops of a segmentation. Each does what NumPy does beside the line that calls it, equal to rounding, without
   Python's lock; arrays are contiguous, as callers make them. They need the vectors of GCC and Clang; other compilers
   build nothing, and NumPy does the work. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#if __GNUC__ >= 12
#define WIDE __attribute__((target_clones("arch=x86-64-v3", "default"))) static
#else
#define WIDE __attribute__((target_clones("avx2", "default"))) static
#endif
#else
#define WIDE static
#endif
#define INSIDE static inline __attribute__((always_inline))

enum { LANES = 8, SIDE = 5, PATCH = SIDE * SIDE, PARTS = 4, SOME = PARTS * LANES, REACH = 3, RING = 8, FEW = 16 };
#define REVISION "2" /* another one whenever what callers give changes: texseg.threads knows it */
enum { PRODUCTS, SOFT_MAX, HALVES }; /* what is made of products of sites */
#define FLOOR 1e-12 /* of probabilities and counts, in logarithms */
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

INSIDE vec whole(const float *from) { vec v; memcpy(&v, from, sizeof(v)); return v; }
INSIDE vec load(const float *from, Py_ssize_t m) /* the first m numbers, and zeros */
{
    vec v = {0};
    if (m >= LANES) return whole(from);
    memcpy(&v, from, sizeof(float) * m);
    return v;
}
INSIDE void store(float *to, vec v, Py_ssize_t m)
{
    if (m < LANES)
        memcpy(to, &v, sizeof(float) * m);
    else
        memcpy(to, &v, sizeof(v));
}
#ifdef __clang__
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIX(a, b, ...) __builtin_shuffle(a, b, (ints){__VA_ARGS__})
#endif
#define PAIRS(a, b) (MIX(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + MIX(a, b, 1, 9, 3, 11, 5, 13, 7, 15))
INSIDE vec all(float x) { return x - (vec){0}; }
INSIDE vec either(ints which, vec one, vec other) { return (vec)((which & (ints)one) | (~which & (ints)other)); }

INSIDE vec exp_of(vec x) /* of what is not above 0; below e^-87 it is 0 */
{
    static const float by[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    vec t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f, p = all(1.9875691500e-4f);
    for (int i = 0; i < 5; i++) p = p * r + by[i];
    return either(x < all(-87.0f), all(0), (p * r * r + r + 1.0f) * (vec)(((ints)t + 127) << 23));
}

INSIDE vec log_of(vec x) /* of positive normal numbers */
{
    static const float by[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
                               -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
    ints bits = (ints)x, e = (bits >> 23) - 126;
    vec m = (vec)((bits & 0x7fffff) | 0x3f000000), y = all(7.0376836292e-2f), exponent;
    ints small = m < all(0.70710678f);
    exponent = __builtin_convertvector(e + small, vec);
    m = m - 1.0f + either(small, m, all(0));
    for (int i = 0; i < 8; i++) y = y * m + by[i];
    return m + (y * m * m * m - exponent * 2.12194440e-4f - m * m * 0.5f) + exponent * 0.693359375f;
}

/* planes (K, N), columns from..to: soft-max over K of local + strength * planes, in place */
WIDE void soft_max(float *planes, const float *local, float strength, Py_ssize_t K, Py_ssize_t N, Py_ssize_t from,
                   Py_ssize_t to)
{
    for (Py_ssize_t at = from; at < to; at += LANES) {
        Py_ssize_t m = to - at;
        vec top = all(-1e38f), sum = all(0);
        for (Py_ssize_t k = 0; k < K; k++) {
            vec x = load(planes + k * N + at, m);
            if (local) {
                x = load(local + k * N + at, m) + x * strength;
                store(planes + k * N + at, x, m);
            }
            top = either(x > top, x, top);
        }
        for (Py_ssize_t k = 0; k < K; k++) {
            vec x = exp_of(load(planes + k * N + at, m) - top);
            store(planes + k * N + at, x, m);
            sum += x;
        }
        sum = 1.0f / sum;
        for (Py_ssize_t k = 0; k < K; k++) store(planes + k * N + at, load(planes + k * N + at, m) * sum, m);
    }
}

/* Row of sums: taps times n_taps rows from work, each one step after the other. */
INSIDE void weighted(const float *work, Py_ssize_t step, const float *taps, Py_ssize_t n_taps, Py_ssize_t w, float *out)
{
    for (Py_ssize_t at = 0; at < w; at += SOME) {
        vec sums[PARTS] = {{0}};
        for (Py_ssize_t d = 0; d < n_taps; d++)
            for (int i = 0; i < PARTS; i++) sums[i] += whole(work + d * step + at + i * LANES) * taps[d];
        memcpy(out + at, sums, sizeof(sums));
    }
}

INSIDE Py_ssize_t pitch_of(Py_ssize_t w, Py_ssize_t r) { return (w + SOME - 1) / SOME * SOME + 2 * r; }

/* Gaussian of a plane (h, w) times presence, zero outside; taps (2 r + 1,); work has h + 2 r + 2 rows of a pitch */
WIDE void blurred(const float *plane, const float *presence, float *out, Py_ssize_t h, Py_ssize_t w, const float *taps,
                  Py_ssize_t r, float *work)
{
    Py_ssize_t pitch = pitch_of(w, r);
    float *row = work + (h + 2 * r) * pitch, *end = row + pitch;
    memset(work, 0, sizeof(float) * (h + 2 * r + 2) * pitch);
    for (Py_ssize_t y = 0; y < h; y++)
        for (Py_ssize_t x = 0; x < w; x++)
            work[(y + r) * pitch + x] = presence ? plane[y * w + x] * presence[y * w + x] : plane[y * w + x];
    for (Py_ssize_t y = 0; y < h; y++) {
        weighted(work + y * pitch, pitch, taps, 2 * r + 1, w, row + r); /* beyond w lie zeros */
        weighted(row, 1, taps, 2 * r + 1, w, end);
        memcpy(out + y * w, end, sizeof(float) * w);
    }
}

/* energies (N,) of planes (K, N): sum over K of Q (log Q - local - strength field / 2) */
WIDE void energies_of(const float *planes, const float *local, const float *field, float strength, Py_ssize_t K,
                      Py_ssize_t N, float *energies)
{
    for (Py_ssize_t at = 0; at < N; at += LANES) {
        vec sum = all(0);
        for (Py_ssize_t k = 0; k < K; k++) {
            vec q = load(planes + k * N + at, N - at);
            vec own = either(q > all(0), load(local + k * N + at, N - at), all(0));
            vec pull = load(field + k * N + at, N - at) * (0.5f * strength);
            sum += q * (log_of(either(q > all(1e-30f), q, all(1e-30f))) - own - pull);
        }
        store(energies + at, sum, N - at);
    }
}

/* Fields (n, N) of planes (n, N) over the sites of some grids (n_grids, 2): their Gaussians. */
static int fields_of(const float *planes, const float *presence, const int32_t *grids, Py_ssize_t n_grids,
                     const float *taps, Py_ssize_t r, Py_ssize_t n, Py_ssize_t N, float *fields)
{
    Py_ssize_t most = 0;
    for (Py_ssize_t g = 0; g < n_grids; g++) {
        Py_ssize_t size = (grids[2 * g] + 2 * r + 2) * pitch_of(grids[2 * g + 1], r) + SOME;
        most = size > most ? size : most;
    }
    float *work = malloc(sizeof(float) * most);
    for (Py_ssize_t k = 0; work && k < n; k++)
        for (Py_ssize_t g = 0, at = 0; g < n_grids; at += (Py_ssize_t)grids[2 * g] * grids[2 * g + 1], g++)
            blurred(planes + k * N + at, presence ? presence + at : NULL, fields + k * N + at, grids[2 * g],
                    grids[2 * g + 1], taps, r, work);
    free(work);
    return work != NULL;
}

/* nearest word of (T, PATCH) to the patch around each pixel; padded is (H + SIDE - 1, W + SIDE - 1) */
WIDE void nearest(const float *padded, Py_ssize_t H, Py_ssize_t W, const float *words, int T, uint8_t *out)
{
    float half[256] = {0};
    for (int t = 0; t < T; t++)
        for (int d = 0; d < PATCH; d++) half[t] += 0.5f * words[t * PATCH + d] * words[t * PATCH + d];
    for (Py_ssize_t y = 0; y < H; y++)
        for (Py_ssize_t x = 0; x < W; x += SOME) {
            vec patch[PATCH][PARTS], best[PARTS];
            ints which[PARTS];
            int32_t found[SOME];
            for (int d = 0; d < PATCH; d++)
                for (int i = 0; i < PARTS; i++) {
                    Py_ssize_t left = W - x - i * LANES;
                    patch[d][i] = load(padded + (y + d / SIDE) * (W + SIDE - 1) + (left > 0 ? x + i * LANES + d % SIDE : 0),
                                       left > 0 ? left : 0);
                }
            for (int i = 0; i < PARTS; i++) best[i] = all(-1e38f), which[i] = (ints){0};
            for (int t = 0; t < T; t++) {
                vec sums[PARTS];
                for (int i = 0; i < PARTS; i++) sums[i] = all(-half[t]);
                for (int d = 0; d < PATCH; d++)
                    for (int i = 0; i < PARTS; i++) sums[i] += patch[d][i] * words[t * PATCH + d];
                for (int i = 0; i < PARTS; i++) {
                    ints more = sums[i] > best[i];
                    which[i] = (more & t) | (~more & which[i]);
                    best[i] = either(more, sums[i], best[i]);
                }
            }
            memcpy(found, which, sizeof(found));
            for (int i = 0; i < SOME && x + i < W; i++) out[y * W + x + i] = (uint8_t)found[i];
        }
}

/* Histograms (cells, step) of the bins (D, H, W) below B where mask is not 0, in cells of some sides; of bytes or floats */
static void counted(const uint8_t *bins, const uint8_t *mask, uint8_t *bytes, float *floats, const int64_t *shape,
                    const int64_t *sides, Py_ssize_t B, Py_ssize_t step)
{
    int64_t W = shape[2], h = (shape[1] + sides[1] - 1) / sides[1], w = (W + sides[2] - 1) / sides[2];
    for (int64_t z = 0; z < shape[0]; z++)
        for (int64_t y = 0; y < shape[1]; y++) {
            const uint8_t *row = bins + (z * shape[1] + y) * W, *there = mask ? mask + (z * shape[1] + y) * W : NULL;
            Py_ssize_t at = (z / sides[0] * h + y / sides[1]) * w * step;
            for (int64_t x = 0, end = sides[2]; x < W; end += sides[2], at += step)
                for (end = end < W ? end : W; x < end; x++) {
                    if (row[x] >= B || (there && !there[x])) continue;
                    if (bytes)
                        bytes[at + row[x]]++;
                    else
                        floats[at + row[x]]++;
                }
        }
}

/* Numbers from 1, in the order of their first sites, of the parts of labels (D, H, W) that are equal and connected by
   faces; 0 where labels are negative. A site first holds the place of one before it in its part, or its own. */
INSIDE int32_t root(int32_t *places, int32_t at)
{
    while (places[at] != at) at = places[at] = places[places[at]];
    return at;
}
static int64_t numbered(const int32_t *labels, int32_t *places, const int64_t *shape)
{
    int64_t steps[3] = {shape[1] * shape[2], shape[2], 1}, found = 0, at[3];
    int32_t i = 0;
    for (at[0] = 0; at[0] < shape[0]; at[0]++)
        for (at[1] = 0; at[1] < shape[1]; at[1]++)
            for (at[2] = 0; at[2] < shape[2]; at[2]++, i++) {
                int32_t own = i;
                for (int a = 2; a >= 0 && labels[i] >= 0; a--) {
                    if (!at[a] || labels[i - steps[a]] != labels[i] || places[i - steps[a]] == own) continue;
                    int32_t one = root(places, i - (int32_t)steps[a]), low = one < own ? one : own;
                    if (own < i && one != own) places[one > own ? one : own] = low;
                    own = low;
                }
                places[i] = labels[i] < 0 ? -1 : own;
            }
    for (int32_t j = 0; j < i; j++) places[j] = places[j] < 0 ? 0 : places[j] == j ? (int32_t)++found : places[places[j]];
    return found;
}

typedef struct {
    const uint8_t *bins, *around;         /* (C, H, W), and (H, W): where densities are needed */
    const float *tables;                  /* (K / LANES, C, 256, LANES) */
    const int32_t *channels, *starts;     /* channels of each group, and where groups start (G + 1,) */
    const float *form, *factors, *centres, *offsets; /* levelled plane (H + 4, W + 4), and densities */
    const float *weights;                 /* (K / LANES, G + 1, 2, LANES, out), or NULL */
    float *out;                           /* (n, out), or local means (n, G + 1, K, 2) */
    Py_ssize_t C, H, W, G, K, n_out;
    float heavy;
} Borders;

/* log-densities of the textures of one chunk at the marked pixels of row y, minus the mean of all textures */
WIDE void densities(const Borders *b, Py_ssize_t y, Py_ssize_t chunk, float *row, float *logs)
{
    Py_ssize_t W = b->W, K = b->K, P = W + SIDE - 1, at[SOME];
    memset(row, 0, sizeof(float) * W * LANES);
    for (Py_ssize_t x = 0; x < W;) {
        float patch[PATCH * SOME], mean[SOME] = {0};
        int m = 0;
        for (; x < W && m < SOME; x++)
            if (b->around[y * W + x]) at[m++] = x;
        if (!m) continue;
        for (int i = 0; i < SOME; i++) {
            const float *source = b->form + y * P + at[i < m ? i : m - 1];
            for (int d = 0; d < PATCH; d++) patch[d * SOME + i] = source[(d / SIDE) * P + d % SIDE];
        }
        for (Py_ssize_t k = 0; k < K; k++) {
            vec distance[PARTS] = {{0}};
            for (int d = 0; d < PATCH; d++) {
                vec sums[PARTS];
                for (int i = 0; i < PARTS; i++) sums[i] = all(-b->centres[k * PATCH + d]);
                for (int e = d; e < PATCH; e++) { /* the factors are lower triangles */
                    float factor = b->factors[(e * K + k) * PATCH + d];
                    for (int i = 0; i < PARTS; i++) sums[i] += whole(patch + e * SOME + i * LANES) * factor;
                }
                for (int i = 0; i < PARTS; i++) distance[i] += sums[i] * sums[i];
            }
            for (int i = 0; i < PARTS; i++) {
                vec found = b->offsets[k] - 0.5f * (b->heavy + PATCH) * log_of(distance[i] / b->heavy + 1.0f);
                store(logs + k * SOME + i * LANES, found, LANES);
                store(mean + i * LANES, whole(mean + i * LANES) + found / (float)K, LANES);
            }
        }
        for (int i = 0; i < m; i++)
            for (Py_ssize_t q = 0; q < LANES && chunk * LANES + q < K; q++)
                row[at[i] * LANES + q] = logs[(chunk * LANES + q) * SOME + i] - mean[i];
    }
}

WIDE void summed(const Borders *b, Py_ssize_t y, Py_ssize_t chunk, Py_ssize_t group, float *row)
{
    Py_ssize_t W = b->W;
    memset(row, 0, sizeof(float) * W * LANES);
    for (int32_t c = b->starts[group]; c < b->starts[group + 1]; c++) {
        const float *table = b->tables + (chunk * b->C + b->channels[c]) * 256 * LANES;
        const uint8_t *bins = b->bins + (b->channels[c] * b->H + y) * W;
        for (Py_ssize_t x = 0; x < W; x++)
            store(row + x * LANES, whole(row + x * LANES) + whole(table + bins[x] * LANES), LANES);
    }
}

static Py_ssize_t mirrored(Py_ssize_t i, Py_ssize_t n)
{
    while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
    return i;
}

/* means over squares of sides 3 and 7 around pixels of a row, given the 7 rows around it; as they are or weighted */
WIDE void row_of_means(const Borders *b, float *const *rows, const int64_t *pixels, Py_ssize_t n, Py_ssize_t y,
                       Py_ssize_t chunk, Py_ssize_t group, float *three, float *seven)
{
    Py_ssize_t W = b->W, G = b->G, n_out = b->n_out;
    const float *w = b->weights ? b->weights + (chunk * (G + 1) + group) * 2 * LANES * n_out : NULL;
    for (Py_ssize_t i = 0; i < W * LANES; i += LANES) {
        vec near = whole(rows[2] + i) + whole(rows[3] + i) + whole(rows[4] + i);
        store(three + REACH * LANES + i, near, LANES);
        near += whole(rows[0] + i) + whole(rows[1] + i) + whole(rows[5] + i) + whole(rows[6] + i);
        store(seven + REACH * LANES + i, near, LANES);
    }
    for (Py_ssize_t x = 1; x <= 2 * REACH; x++) {
        Py_ssize_t to = x <= REACH ? -x : W - 1 + x - REACH, from = mirrored(to, W);
        memcpy(three + (REACH + to) * LANES, three + (REACH + from) * LANES, sizeof(vec));
        memcpy(seven + (REACH + to) * LANES, seven + (REACH + from) * LANES, sizeof(vec));
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t x = pixels[i] - y * W;
        vec near = {0}, far = {0};
        float means[2][LANES];
        for (int d = 0; d < 3; d++) near += whole(three + (x + REACH - 1 + d) * LANES);
        for (int d = 0; d < 7; d++) far += whole(seven + (x + d) * LANES);
        store(means[0], near / 9.0f, LANES);
        store(means[1], far / 49.0f, LANES);
        if (w)
            for (Py_ssize_t o = 0; o < n_out; o += LANES) {
                vec sum = whole(b->out + i * n_out + o);
                for (int j = 0; j < 2 * LANES; j++) sum += whole(w + j * n_out + o) * means[j / LANES][j % LANES];
                store(b->out + i * n_out + o, sum, LANES);
            }
        else
            for (Py_ssize_t q = 0; q < LANES && chunk * LANES + q < b->K; q++)
                for (int j = 0; j < 2; j++)
                    b->out[((i * (G + 1) + group) * b->K + chunk * LANES + q) * 2 + j] = means[j][q];
    }
}

static int near_borders(Borders b, const int64_t *pixels, Py_ssize_t n)
{
    Py_ssize_t W = b.W, n_chunks = (b.K + LANES - 1) / LANES, length = (W + 2 * REACH) * LANES;
    float *ring = malloc(sizeof(float) * (RING + 2) * length), *logs = malloc(sizeof(float) * b.K * SOME), *rows[7];
    float *start = b.out;
    int done = ring && logs;
    for (Py_ssize_t chunk = 0; done && chunk < n_chunks; chunk++)
        for (Py_ssize_t group = 0; group <= b.G; group++) {
            Py_ssize_t next = 0;
            for (Py_ssize_t i = 0, j; i < n; i = j) {
                Py_ssize_t y = pixels[i] / W, last = y + REACH < b.H ? y + REACH : b.H - 1;
                for (j = i; j < n && pixels[j] / W == y; j++) continue;
                for (next = next > y - REACH ? next : y - REACH; next <= last; next++)
                    if (next >= 0 && group < b.G)
                        summed(&b, next, chunk, group, ring + (next % RING) * length);
                    else if (next >= 0)
                        densities(&b, next, chunk, ring + (next % RING) * length, logs);
                for (int d = 0; d < 7; d++) rows[d] = ring + (mirrored(y + d - REACH, b.H) % RING) * length;
                b.out = start + i * (b.weights ? b.n_out : (b.G + 1) * b.K * 2);
                row_of_means(&b, rows, pixels + i, j - i, y, chunk, group, ring + RING * length,
                             ring + (RING + 1) * length);
            }
        }
    free(ring), free(logs);
    return done;
}

/* Scores (n, K, C) of counts (n, M), channel by channel, by one of two tables (2, K / LANES, M, LANES) each;
   of a single cluster, (2, M). */
WIDE void by_channel(const float *counts, const uint8_t *bytes, float *row, const uint8_t *which, const float *tables,
                     Py_ssize_t n, Py_ssize_t M, Py_ssize_t C, Py_ssize_t K, float *out)
{
    Py_ssize_t n_chunks = (K + LANES - 1) / LANES, B = M / C;
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t j = 0; j < M; j++) row[j] = bytes ? (float)bytes[i * M + j] : counts[i * M + j];
        for (Py_ssize_t c = 0; K == 1 && c < C; c++) { /* no lanes of clusters: along the bins */
            const float *own = row + c * B, *table = tables + which[i] * M + c * B;
            vec sums = {0};
            float total = 0;
            Py_ssize_t j = 0;
            for (; j + LANES <= B; j += LANES) sums += whole(table + j) * whole(own + j);
            for (; j < B; j++) total += table[j] * own[j];
            for (int q = 0; q < LANES; q++) total += sums[q];
            out[i * C + c] = total;
        }
        for (Py_ssize_t chunk = 0; K > 1 && chunk < n_chunks; chunk++)
            for (Py_ssize_t c = 0; c < C; c++) {
                const float *own = row + c * B;
                const float *table = tables + ((which[i] * n_chunks + chunk) * M + c * B) * LANES;
                vec sums[PARTS] = {{0}};
                Py_ssize_t j = 0;
                for (; j + PARTS <= B; j += PARTS)
                    for (int p = 0; p < PARTS; p++) sums[p] += whole(table + (j + p) * LANES) * own[j + p];
                for (; j < B; j++) sums[0] += whole(table + j * LANES) * own[j];
                sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
                for (Py_ssize_t q = 0; q < LANES && chunk * LANES + q < K; q++)
                    out[(i * K + chunk * LANES + q) * C + c] = sums[0][q];
            }
    }
}

/* Weights of a moving average along an axis of some length, in room for 2 (2 reach + 1), the second half those where
   nothing is cut; give where the first is, and set how many there are. */
static Py_ssize_t average(Py_ssize_t at, Py_ssize_t length, double side, float *room, const float **weights,
                          Py_ssize_t *number)
{
    Py_ssize_t reach = (Py_ssize_t)(side / 2 + 0.5), first = at < reach ? 0 : at - reach;
    float *own = at < reach || at + reach >= length ? room : room + 2 * reach + 1;
    *number = (at + reach < length ? at + reach + 1 : length) - first;
    *weights = own;
    if (own != room && own[reach] > 0) return first;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (Py_ssize_t i = 0; i < *number; i++) {
            Py_ssize_t distance = first + i < at ? at - first - i : first + i - at;
            double weight = side / 2 + 0.5 - distance;
            weight = weight < 0 ? 0 : weight > 1 ? 1 : weight;
            sum += pass ? 0 : weight;
            own[i] = (float)(weight / sum);
        }
    return first;
}

/* sums += weight * numbers, n of them */
INSIDE void add(float *sums, const float *numbers, float weight, Py_ssize_t n)
{
    Py_ssize_t i = 0;
    for (; i + LANES <= n; i += LANES) store(sums + i, whole(sums + i) + whole(numbers + i) * weight, LANES);
    for (; i < n; i++) sums[i] += numbers[i] * weight;
}

/* Cells of some images, and their scores in clusters; windows of a side are those in one cluster. */
typedef struct {
    const float *held, *sizes;     /* (N, K, C), and (N,) */
    const int32_t *labels, *grids; /* (N,), and (n_grids, 2) */
    Py_ssize_t N, K, C, n_grids;
    double side;
} Cells;
typedef struct {
    int32_t *centres; /* of all images, one after the other, counted from the first cell of their own */
    float *shares, *line;
    Py_ssize_t *ends, n;
} Windows;

INSIDE float own_of(const Cells *c, Py_ssize_t at, int32_t a) { return c->labels[at] == a ? c->sizes[at] : 0; }
static int in_order(const void *one, const void *other)
{
    float difference = *(const float *)one - *(const float *)other;
    return (difference > 0) - (difference < 0);
}

/* Windows around every step-th cell of the box of a cluster in each image, if at least a share is the cluster's. */
WIDE int find_windows(const Cells *c, int32_t a, double enough, double most, double least, Windows *out)
{
    Py_ssize_t number = 0, reach = (Py_ssize_t)(c->side / 2 + 0.5), kept = 0, w = 1;
    for (Py_ssize_t i = 0; i < c->N; i++) number += own_of(c, i, a) != 0;
    for (Py_ssize_t g = 0; g < c->n_grids; g++) w = c->grids[2 * g + 1] > w ? c->grids[2 * g + 1] : w;
    Py_ssize_t step = (Py_ssize_t)rint(sqrt(number / enough)), at = 0;
    step = step < 1 ? 1 : step;
    *out = (Windows){malloc(sizeof(int32_t) * (number + 1)), malloc(sizeof(float) * (2 * number + 1)),
                     calloc(w + 4 * reach + 2, sizeof(float)), malloc(sizeof(Py_ssize_t) * (c->n_grids + 1)), 0};
    if (!out->centres || !out->shares || !out->line || !out->ends) return 0;
    for (Py_ssize_t g = 0; g < c->n_grids; at += (Py_ssize_t)c->grids[2 * g] * c->grids[2 * g + 1], g++) {
        Py_ssize_t h = c->grids[2 * g], top = h, bottom = -1, left, right = -1, first, from;
        const float *weights;
        float *room = out->line, *line = room + 4 * reach + 2;
        w = left = c->grids[2 * g + 1];
        for (Py_ssize_t i = 0; i < h * w; i++)
            if (own_of(c, at + i, a) != 0) {
                bottom = i / w, top = top < bottom ? top : bottom;
                left = i % w < left ? i % w : left, right = i % w > right ? i % w : right;
            }
        out->ends[g] = out->n;
        for (Py_ssize_t y = top; y <= bottom; y += step) {
            first = average(y, h, c->side, room, &weights, &number);
            memset(line, 0, sizeof(float) * w);
            for (Py_ssize_t v = 0; v < number; v++)
                for (Py_ssize_t x = left; x <= right; x++)
                    line[x] += own_of(c, at + (first + v) * w + x, a) * weights[v];
            for (Py_ssize_t x = left; x <= right; x += step)
                if (own_of(c, at + y * w + x, a) > 0) {
                    float sum = 0;
                    from = average(x, w, c->side, room, &weights, &number);
                    for (Py_ssize_t u = 0; u < number; u++) sum += line[from + u] * weights[u];
                    out->centres[out->n] = (int32_t)(y * w + x);
                    out->shares[out->n++] = sum;
                }
        }
    }
    out->ends[c->n_grids] = out->n;
    if (!out->n) return 1;
    memcpy(out->shares + out->n, out->shares, sizeof(float) * out->n);
    qsort(out->shares + out->n, out->n, sizeof(float), in_order);
    float limit = out->shares[out->n + (Py_ssize_t)ceil(most * (out->n - 1) - 1e-9)];
    limit = (limit < least ? limit : (float)least) - 1e-6f; /* equal shares differ by rounding */
    for (Py_ssize_t g = 0, i = 0; g < c->n_grids; g++) {
        Py_ssize_t begin = kept;
        for (; i < out->ends[g + 1]; i++)
            if (out->shares[i] >= limit) out->centres[kept] = out->centres[i], out->shares[kept++] = out->shares[i];
        out->ends[g] = begin;
    }
    out->ends[c->n_grids] = out->n = kept;
    return 1;
}
static void forget(Windows *windows) { free(windows->centres), free(windows->shares), free(windows->line), free(windows->ends); }

/* Means (n, D) of the ratios of cluster a to m others in its windows: channel by channel, or weighted sums of them. */
WIDE int ratios_in(const Cells *c, const Windows *windows, int32_t a, const int64_t *others, Py_ssize_t m,
                   const float *by, float *out)
{
    Py_ssize_t D = by ? m : m * c->C, C = c->C, reach = (Py_ssize_t)(c->side / 2 + 0.5), deep = 2 * reach + 1, number;
    memset(out, 0, sizeof(float) * windows->n * D);
    for (Py_ssize_t g = 0, at = 0; g < c->n_grids; at += (Py_ssize_t)c->grids[2 * g] * c->grids[2 * g + 1], g++) {
        Py_ssize_t h = c->grids[2 * g], w = c->grids[2 * g + 1], left = w, right = 0;
        const int32_t *centres = windows->centres;
        for (Py_ssize_t i = windows->ends[g]; i < windows->ends[g + 1]; i++) {
            Py_ssize_t x = centres[i] % w;
            left = x - reach < left ? x - reach : left;
            right = x + reach >= right ? x + reach + 1 : right;
        }
        if (windows->ends[g] == windows->ends[g + 1]) continue;
        left = left < 0 ? 0 : left;
        right = right > w ? w : right;
        Py_ssize_t wide = right - left, last = centres[windows->ends[g]] / w - reach;
        float *ring = malloc(sizeof(float) * ((deep + 1) * wide * D + 2 * deep)), *line = ring + deep * wide * D;
        float *room = line + wide * D;
        const float *weights;
        if (!ring) return 0;
        memset(room, 0, sizeof(float) * 2 * deep);
        last = last < 0 ? 0 : last;
        for (Py_ssize_t i = windows->ends[g], end; i < windows->ends[g + 1]; i = end) {
            Py_ssize_t y = centres[i] / w, first = average(y, h, c->side, room, &weights, &number);
            for (last = last < first ? first : last; last < first + number; last++) { /* what each cell counts, once */
                float *row = ring + last % deep * wide * D;
                memset(row, 0, sizeof(float) * wide * D);
                for (Py_ssize_t x = left; x < right; x++, row += D) {
                    float own = own_of(c, at + last * w + x, a);
                    const float *scores = c->held + (at + last * w + x) * c->K * C;
                    for (Py_ssize_t k = 0; own > 0 && k < m; k++)
                        for (Py_ssize_t j = 0; j < C; j++) {
                            float ratio = (scores[a * C + j] - scores[others[k] * C + j]) * own;
                            if (by)
                                row[k] += ratio * by[j];
                            else
                                row[k * C + j] = ratio;
                        }
                }
            }
            memset(line, 0, sizeof(float) * wide * D);
            for (Py_ssize_t v = 0; v < number; v++) add(line, ring + (first + v) % deep * wide * D, weights[v], wide * D);
            for (end = i; end < windows->ends[g + 1] && centres[end] / w == y; end++) {
                Py_ssize_t from = average(centres[end] % w, w, c->side, room, &weights, &number) - left;
                for (Py_ssize_t u = 0; u < number; u++)
                    add(out + end * D, line + (from + u) * D, weights[u] / windows->shares[end], D);
            }
        }
        free(ring);
    }
    return 1;
}

/* Means (K, C) and covariances (K, C, C) of the ratios of a cluster to m others in its windows. */
WIDE void moments(float *samples, Py_ssize_t n, const int64_t *others, Py_ssize_t m, Py_ssize_t C, double *means,
                  double *covariances)
{
    for (Py_ssize_t k = 0; k < m; k++) {
        double *mean = means + others[k] * C, *table = covariances + others[k] * C * C;
        memset(mean, 0, sizeof(double) * C), memset(table, 0, sizeof(double) * C * C);
        for (Py_ssize_t i = 0; i < n; i++)
            for (Py_ssize_t j = 0; j < C; j++) mean[j] += samples[(i * m + k) * C + j];
        for (Py_ssize_t j = 0; j < C; j++) mean[j] /= n;
        for (Py_ssize_t i = 0; i < n; i++) {
            float *own = samples + (i * m + k) * C;
            for (Py_ssize_t j = 0; j < C; j++) own[j] = (float)(own[j] - mean[j]);
            for (Py_ssize_t j = 0; j < C; j++)
                for (Py_ssize_t l = 0; l < C; l++) table[j * C + l] += (double)own[j] * own[l];
        }
        for (Py_ssize_t j = 0; j < C * C; j++) table[j] /= n;
    }
}

static int pair_moments(Cells c, int32_t a, const int64_t *others, Py_ssize_t m, const double *rules, double *means,
                        double *covariances)
{
    Windows windows;
    int done = find_windows(&c, a, rules[0], rules[1], rules[2], &windows);
    float *samples = done ? malloc(sizeof(float) * (windows.n * m * c.C + 1)) : NULL;
    done = samples && ratios_in(&c, &windows, a, others, m, NULL, samples);
    if (done && windows.n) moments(samples, windows.n, others, m, c.C, means, covariances);
    forget(&windows), free(samples);
    return done;
}

static void mean_and_variance(const float *samples, Py_ssize_t n, double *mean, double *variance)
{
    for (Py_ssize_t i = 0; i < n; i++) *mean += samples[i] / (double)n;
    for (Py_ssize_t i = 0; i < n; i++) *variance += (samples[i] - *mean) * (samples[i] - *mean) / n;
}

/* Of the weighted ratio of one cluster to another: means, variances (in windows, larger ones, and cells), the share of
   windows below 0, the number and the mean of the cells of the one that lie two or three cells from the other. */
static int pair_scales(Cells c, int32_t a, int64_t b, const float *by, const double *rules, double *out)
{
    float *samples = malloc(sizeof(float) * (c.N + 1));
    Py_ssize_t n = 0, n_near = 0;
    int done = samples != NULL;
    memset(out, 0, sizeof(double) * 9);
    for (int s = 0; done && s < 2; s++, c.side *= 2) {
        Windows windows;
        done = find_windows(&c, a, rules[0], rules[1], rules[2], &windows) &&
               ratios_in(&c, &windows, a, &b, 1, by, samples);
        if (done) mean_and_variance(samples, windows.n, out + s, out + 3 + s);
        for (Py_ssize_t i = 0; done && s == 0 && i < windows.n; i++) out[6] += (samples[i] < 0) / (double)windows.n;
        forget(&windows);
    }
    for (Py_ssize_t g = 0, at = 0; done && g < c.n_grids; at += (Py_ssize_t)c.grids[2 * g] * c.grids[2 * g + 1], g++) {
        Py_ssize_t h = c.grids[2 * g], w = c.grids[2 * g + 1];
        for (Py_ssize_t i = 0; i < h * w; i++) {
            if (own_of(&c, at + i, a) == 0) continue;
            const float *scores = c.held + (at + i) * c.K * c.C;
            float ratio = 0;
            int far = 4;
            for (Py_ssize_t j = 0; j < c.C; j++) ratio += (scores[a * c.C + j] - scores[b * c.C + j]) * by[j];
            samples[n++] = ratio;
            for (Py_ssize_t v = i / w < 3 ? -(i / w) : -3; v <= 3 && i / w + v < h; v++)
                for (Py_ssize_t u = i % w < 3 ? -(i % w) : -3; u <= 3 && i % w + u < w; u++)
                    if (c.labels[at + i + v * w + u] == b) {
                        int distance = (int)(v * v > u * u ? (v < 0 ? -v : v) : (u < 0 ? -u : u));
                        far = distance < far ? distance : far;
                    }
            if (far == 2 || far == 3) n_near++, out[8] += ratio;
        }
    }
    if (done) mean_and_variance(samples, n, out + 2, out + 5);
    out[7] = (double)n_near;
    out[8] /= n_near ? n_near : 1;
    free(samples);
    return done;
}

/* Counts (N, M), of floats or bytes, and what is done at each site with its products with tables (K, M). */
typedef struct {
    const float *floats;
    const uint8_t *bytes;
    const float *tables, *given, *prior; /* (K, M), (K, N) and (K,); or NULL */
    float *planes, *numbers;             /* (K, N), and (N,) */
    double *sums;                        /* (K, M): counts' times what was done; or NULL */
    Py_ssize_t N, M, K, from, to, how;
    float beta;
} Passes;

/* Products of a row and P tables, of n vectors each. */
INSIDE void dots(const float *row, const vec *tables, Py_ssize_t n, float *out, const int P)
{
    vec sums[8] = {{0}};
    for (Py_ssize_t j = 0; j < n; j++)
        for (int p = 0; p < P; p++) sums[p] += whole(row + j * LANES) * tables[p * n + j];
    for (int p = 0; p < P; p += 4) {
        vec *s = sums + p, one = PAIRS(s[0], s[1]), two = PAIRS(s[2], s[3]);
        vec four = MIX(one, two, 0, 1, 8, 9, 4, 5, 12, 13) + MIX(one, two, 2, 3, 10, 11, 6, 7, 14, 15);
        for (int q = 0; q < 4 && p + q < P; q++) out[(p + q) * FEW] = four[q] + four[q + 4];
    }
}

/* P sums += weights (P, FEW) times rows, of n vectors each */
INSIDE void backwards(const float *rows, const float *weights, Py_ssize_t n, vec *sums, const int P)
{
    for (Py_ssize_t j = 0; j < n; j++) {
        vec own[8];
        for (int p = 0; p < P; p++) own[p] = sums[p * n + j];
        for (int r = 0; r < FEW; r++)
            for (int p = 0; p < P; p++) own[p] += whole(rows + (r * n + j) * LANES) * weights[p * FEW + r];
        for (int p = 0; p < P; p++) sums[p * n + j] = own[p];
    }
}

/* At the sites of a block: what is made of products (K, FEW), in place, for the way back; it is also given as planes. */
INSIDE void made(const Passes *p, Py_ssize_t first, Py_ssize_t m, float *some)
{
    for (Py_ssize_t i = 0; i < FEW && i < m; i += LANES) {
        vec top = all(-1e38f), sum = all(0);
        for (Py_ssize_t k = 0; k < p->K; k++) {
            vec x = whole(some + k * FEW + i), own, given = all(0);
            Py_ssize_t at = k * p->N + first + i;
            if (p->given) given = load(p->given + at, m - i);
            if (p->prior) x = x * p->beta + p->prior[k];
            own = x;
            if (p->how == HALVES) {
                vec y = exp_of(either(x < all(0), x, -x)), large = 1.0f / (1.0f + y);
                own = either(x < all(0), 1.0f - large, large);
            }
            top = either(x > top, x, top);
            if (p->how != SOFT_MAX) store(p->planes + at, own, m - i);
            store(some + k * FEW + i, p->given ? own * given : own, LANES);
        }
        if (p->how != SOFT_MAX) continue;
        for (Py_ssize_t k = 0; k < p->K; k++) {
            vec x = exp_of(whole(some + k * FEW + i) - top);
            store(some + k * FEW + i, x, LANES);
            sum += x;
        }
        for (Py_ssize_t k = 0; k < p->K; k++) {
            vec x = whole(some + k * FEW + i) / sum;
            store(some + k * FEW + i, x, LANES);
            store(p->planes + k * p->N + first + i, x, m - i);
        }
        store(p->numbers + first + i, top + log_of(sum), m - i);
    }
    for (Py_ssize_t k = 0; k < p->K; k++)
        for (Py_ssize_t i = m; i < FEW; i++) some[k * FEW + i] = 0;
}

#define CASES(P, call) switch (P) { case 1: case 2: call(2); break; case 3: case 4: call(4); break; case 5: case 6: call(6); break; default: call(8); }
#define THERE(P) dots(rows + r * n * LANES, tables + k * n, n, some + k * FEW + r, P)
#define BACK(P) backwards(rows, some + k * FEW, n, sums + k * n, P)
WIDE void passes(const Passes *p, vec *work)
{
    Py_ssize_t M = p->M, N = p->N, K = p->K, n = (M + LANES - 1) / LANES, most = K + 7;
    vec *tables = work + FEW * n, *sums = tables + most * n;
    float *some = (float *)(sums + most * n);
    memset(work, 0, sizeof(vec) * (n * (FEW + 2 * most) + most * FEW / LANES));
    for (Py_ssize_t k = 0; p->tables && k < K; k++) memcpy(tables + k * n, p->tables + k * M, sizeof(float) * M);
    for (Py_ssize_t first = p->from; first < p->to; first += FEW) {
        Py_ssize_t m = p->to - first < FEW ? p->to - first : FEW;
        int is_there = !p->bytes && m == FEW && n * LANES == M;
        const float *rows = is_there ? p->floats + first * M : (float *)work;
        for (Py_ssize_t r = 0; !is_there && r < m; r++) {
            float *row = (float *)(work + r * n);
            if (p->bytes)
                for (Py_ssize_t j = 0; j < M; j++) row[j] = (float)p->bytes[(first + r) * M + j];
            else
                memcpy(row, p->floats + (first + r) * M, sizeof(float) * M);
        }
        for (Py_ssize_t k = 0; p->tables && k < K; k += 8)
            for (Py_ssize_t r = 0; r < m; r++) CASES(K - k, THERE)
        for (Py_ssize_t k = 0; !p->tables && k < K; k++)
            for (Py_ssize_t r = 0; r < FEW; r++) some[k * FEW + r] = r < m ? p->planes[k * N + first + r] : 0;
        if (p->tables) made(p, first, m, some);
        if (!p->sums) continue;
        for (Py_ssize_t k = 0; k < K; k += 8) CASES(K - k, BACK)
        if (first + FEW >= p->to || (first - p->from) / FEW % FEW == FEW - 1) {
            for (Py_ssize_t k = 0; k < K; k++)
                for (Py_ssize_t j = 0; j < M; j++) p->sums[k * M + j] += ((float *)(sums + k * n))[j];
            memset(sums, 0, sizeof(vec) * K * n);
        }
    }
}

/* Counts as above, their columns multiplied by a scale (M,), in C channels side by side. */
typedef struct {
    const float *floats;
    const uint8_t *bytes;
    const float *scale;
    Py_ssize_t N, M, C;
} Table;

static int pass_over(const Table *t, const float *tables, const float *given, const float *prior, float *planes,
                     float *numbers, double *sums, Py_ssize_t K, int how, double beta)
{
    Passes p = {t->floats, t->bytes, tables, given, prior, planes, numbers, sums, t->N, t->M, K, 0, t->N, how, (float)beta};
    Py_ssize_t n = (t->M + LANES - 1) / LANES;
    char *work = malloc(sizeof(vec) * (n * (FEW + 2 * (K + 7)) + (K + 7) * FEW / LANES + 2));
    if (sums) memset(sums, 0, sizeof(double) * K * t->M);
    if (work) passes(&p, (vec *)(((uintptr_t)work + sizeof(vec) - 1) / sizeof(vec) * sizeof(vec)));
    for (Py_ssize_t i = 0; sums && i < K * t->M; i++) sums[i] *= t->scale[i % t->M];
    free(work);
    return work != NULL;
}

static double floored(double x, double least) { return x > least ? x : least; }
static double total(const double *x, Py_ssize_t n)
{
    double sum = 0;
    for (Py_ssize_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Profiles (K, M) of counts: each channel sums to one, in a cluster without counts as in all of them. */
static void profiles_of(const double *counts, Py_ssize_t K, Py_ssize_t M, Py_ssize_t C, double *out)
{
    Py_ssize_t B = M / C;
    for (Py_ssize_t at = 0; at < K * M; at += B) {
        double sum = total(counts + at, B), every = 0;
        for (Py_ssize_t k = 0; sum <= 0 && k < K; k++) every += total(counts + k * M + at % M, B);
        for (Py_ssize_t j = 0; j < B; j++) {
            double own = counts[at + j];
            for (Py_ssize_t k = 0; sum <= 0 && k < K; k++) own += counts[k * M + (at + j) % M];
            out[at + j] = sum > 0 ? own / sum : every > 0 ? own / every : 1.0 / B;
        }
    }
}

/* Logarithms (K, M) of profiles with a share of the background (M,), if there is any. */
static void logs_of(const double *profiles, Py_ssize_t K, Py_ssize_t M, const float *background, double share, double *out)
{
    for (Py_ssize_t i = 0; i < K * M; i++) {
        double p = background ? (1 - share) * profiles[i] + (float)share * background[i % M] : profiles[i];
        out[i] = log(floored(p, FLOOR));
    }
}

/* sums over the sites of planes (N,), and of their products with their logarithms */
WIDE void sizes_of(const float *plane, Py_ssize_t N, double *size, double *surprise)
{
    *size = 0, *surprise = 0;
    for (Py_ssize_t at = 0; at < N; at += LANES) {
        vec q = load(plane + at, N - at), s = q * log_of(either(q > all(1e-30f), q, all(1e-30f)));
        for (int i = 0; i < LANES; i++) *size += q[i], *surprise += s[i];
    }
}

/* Part of the free energy of a cluster with these counts (M,) and this share (N,) of each site. */
static double energy_of(const double *counts, Py_ssize_t M, Py_ssize_t C, const float *plane, Py_ssize_t N, double beta)
{
    double energy = 0, size, surprise;
    for (Py_ssize_t c = 0; c < C; c++) {
        double sum = total(counts + c * (M / C), M / C);
        energy += sum * log(floored(sum, FLOOR));
    }
    for (Py_ssize_t j = 0; j < M; j++) energy -= counts[j] * log(floored(counts[j], FLOOR));
    sizes_of(plane, N, &size, &surprise);
    return beta * energy + surprise - size * log(floored(size, 1e-30) / N);
}

/* Take each channel's mean under a profile away from a direction; all (M,). */
static void centre(double *u, const double *profile, Py_ssize_t M, Py_ssize_t C)
{
    for (Py_ssize_t c = 0, B = M / C; c < C; c++) {
        double mean = 0;
        for (Py_ssize_t j = c * B; j < (c + 1) * B; j++) mean += profile[j] * u[j];
        for (Py_ssize_t j = c * B; j < (c + 1) * B; j++) u[j] -= mean;
    }
}

/* What halves of K clusters are refined by: planes (K, N) of clusters and of shares that stay, counts and sizes of the
   clusters and of what stays; directions (n, M) with which the n fresh clusters begin. */
typedef struct {
    const float *planes, *background;
    float *halves;
    const uint8_t *fresh;
    double *directions;
    const double *counts, *sizes;
    double *kept, *kept_sizes, *gains, beta, share;
    Py_ssize_t K, n_powers, n_steps;
} Halving;

/* Shares that stay in fresh clusters are 1 on one side of the direction that power iteration finds; work is (3, K, M). */
static int begun(const Table *t, const Halving *h, double *work, float *tables, float *some)
{
    Py_ssize_t N = t->N, M = t->M, K = h->K, B = M / t->C, n = 0;
    double *profiles = work, *back = work + K * M, *u = h->directions;
    float *own = some, *out = some + K * N;
    int done = 1;
    profiles_of(h->counts, K, M, t->C, work + 2 * K * M);
    for (Py_ssize_t k = 0; k < K; k++)
        if (h->fresh[k]) {
            memcpy(own + n * N, h->planes + k * N, sizeof(float) * N);
            memcpy(profiles + n * M, work + (2 * K + k) * M, sizeof(double) * M);
            centre(u + n * M, profiles + n * M, M, t->C), n++;
        }
    for (Py_ssize_t step = 0; done && step <= h->n_powers; step++) {
        for (Py_ssize_t k = 0, i = 0; step < h->n_powers && k < K; k++) {
            double length = 0, *x = u + i * M;
            if (!h->fresh[k]) continue;
            for (Py_ssize_t c = 0; c < t->C; c++) {
                double held = total(h->counts + k * M + c * B, B);
                for (Py_ssize_t j = c * B; j < (c + 1) * B; j++) length += profiles[i * M + j] * held * x[j] * x[j];
            }
            length = sqrt(floored(length, FLOOR * FLOOR)), i++;
            for (Py_ssize_t j = 0; j < M; j++) x[j] /= length;
        }
        for (Py_ssize_t j = 0; j < n * M; j++) tables[j] = (float)u[j] * t->scale[j % M];
        done = pass_over(t, tables, own, NULL, out, NULL, step < h->n_powers ? back : NULL, n, PRODUCTS, 1);
        for (Py_ssize_t k = 0, i = 0; step < h->n_powers && k < K; k++) {
            if (!h->fresh[k]) continue;
            for (Py_ssize_t c = 0; c < t->C; c++) {
                double held = total(h->counts + k * M + c * B, B);
                for (Py_ssize_t j = i * M + c * B; j < i * M + (c + 1) * B; j++)
                    u[j] = held > 0 && profiles[j] > FLOOR ? back[j] / floored(held, FLOOR) / profiles[j] : 0;
            }
            centre(u + i * M, profiles + i * M, M, t->C), i++;
        }
    }
    for (Py_ssize_t k = 0, i = 0; k < K; k++)
        if (h->fresh[k])
            for (Py_ssize_t at = i++ * N, j = 0; j < N; j++) h->halves[k * N + j] = out[at + j] > 0;
    return done;
}

static int halved(const Table *t, const Halving *h)
{
    Py_ssize_t N = t->N, M = t->M, K = h->K, n_fresh = 0;
    double *work = malloc(sizeof(double) * 4 * K * M), *left = work + 3 * K * M;
    float *tables = malloc(sizeof(float) * K * (M + 1)), *some = malloc(sizeof(float) * 2 * K * N), *odds = tables + K * M;
    int done = work && tables && some;
    for (Py_ssize_t k = 0; k < K; k++) n_fresh += h->fresh[k];
    if (done && n_fresh) done = begun(t, h, work, tables, some);
    for (Py_ssize_t step = 0; done && step <= h->n_steps; step++) {
        double surprise;
        if (step) {
            for (Py_ssize_t i = 0; i < 2; i++) {
                profiles_of(i ? left : h->kept, K, M, t->C, work + 2 * K * M);
                logs_of(work + 2 * K * M, K, M, h->background, h->share, work + i * K * M);
            }
            for (Py_ssize_t i = 0; i < K * M; i++) tables[i] = (float)(work[i] - work[K * M + i]) * t->scale[i % M];
            for (Py_ssize_t k = 0; k < K; k++) {
                double share = h->kept_sizes[k] / floored(h->sizes[k], 1e-30);
                share = share > 1 ? 1 : share;
                odds[k] = (float)(log(floored(share, 1e-30)) - log(floored(1 - share, 1e-30)));
            }
            done = pass_over(t, tables, h->planes, odds, h->halves, NULL, h->kept, K, HALVES, h->beta);
        }
        for (Py_ssize_t i = 0; i < K * N; i++) some[i] = h->planes[i] * h->halves[i];
        if (!step) done = pass_over(t, NULL, NULL, NULL, some, NULL, h->kept, K, PRODUCTS, 1);
        for (Py_ssize_t k = 0; k < K; k++) sizes_of(some + k * N, N, h->kept_sizes + k, &surprise);
        for (Py_ssize_t i = 0; i < K * M; i++) left[i] = floored(h->counts[i] - h->kept[i], 0);
    }
    for (Py_ssize_t k = 0; done && k < K; k++) {
        h->gains[k] -= energy_of(h->kept + k * M, M, t->C, some + k * N, N, h->beta);
        for (Py_ssize_t i = 0; i < N; i++) some[i] = h->planes[k * N + i] - some[k * N + i];
        h->gains[k] -= energy_of(left + k * M, M, t->C, some, N, h->beta);
    }
    free(work), free(tables), free(some);
    return done;
}

/* A step of EM from profiles (K, M) and weights: planes (K, N), counts and sizes, the new ones, and the free energy. */
static int stepped(const Table *t, const double *profiles, const double *weights, const float *background, double share,
                   double beta, Py_ssize_t K, float *planes, double *counts, double *sizes, double *new, double *shares,
                   double *energy)
{
    float *tables = malloc(sizeof(float) * (K * (t->M + 1) + t->N)), *prior = tables + K * t->M, *numbers = prior + K;
    int done = tables != NULL;
    if (done) logs_of(profiles, K, t->M, background, share, new);
    for (Py_ssize_t i = 0; done && i < K * t->M; i++) tables[i] = (float)new[i] * t->scale[i % t->M];
    for (Py_ssize_t k = 0; done && k < K; k++) prior[k] = (float)log(floored(weights[k], FLOOR));
    done = done && pass_over(t, tables, NULL, prior, planes, numbers, counts, K, SOFT_MAX, beta);
    for (Py_ssize_t k = 0; done && k < K; k++) sizes_of(planes + k * t->N, t->N, sizes + k, shares + k);
    for (Py_ssize_t i = *energy = 0; done && i < t->N; i++) *energy -= numbers[i];
    if (done) profiles_of(counts, K, t->M, t->C, new), profiles_of(sizes, 1, K, 1, shares);
    free(tables);
    return done;
}

/* What a call gives: arrays (None is NULL) and their bytes, whole numbers, and others, each in their order. */
typedef struct {
    void *v[12];
    Py_ssize_t bytes[12], n[5];
    double f[2];
} Given;

static PyObject *run(int (*kernel)(const Given *), PyObject *args)
{
    Given g = {0};
    Py_buffer views[12] = {{0}};
    int arrays = 0, wholes = 0, others = 0, done = 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(args) && !PyErr_Occurred(); i++) {
        PyObject *arg = PyTuple_GetItem(args, i);
        if (PyFloat_Check(arg))
            g.f[others++] = PyFloat_AsDouble(arg);
        else if (PyLong_Check(arg))
            g.n[wholes++] = PyLong_AsSsize_t(arg);
        else if (arg == Py_None)
            arrays++;
        else if (!PyObject_GetBuffer(arg, &views[arrays], PyBUF_SIMPLE)) {
            g.v[arrays] = views[arrays].buf;
            g.bytes[arrays] = views[arrays].len;
            arrays++;
        }
    }
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        done = kernel(&g);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < arrays; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    if (!done) PyErr_NoMemory();
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

#define CALLED(name)                                                                                         \
    static int do_##name(const Given *g);                                                                    \
    static PyObject *py_##name(PyObject *self, PyObject *args) { return run(do_##name, args); }              \
    static int do_##name(const Given *g)

CALLED(soft_max) /* planes (K, N), what is added to them or None; K, from, to; strength: factor of planes */
{
    soft_max(g->v[0], g->v[1], (float)g->f[0], g->n[0], g->bytes[0] / 4 / g->n[0], g->n[1], g->n[2]);
    return 1;
}
CALLED(fields) /* planes (n, N), fields (n, N), presence or None, grids (g, 2), taps; N */
{
    Py_ssize_t N = g->n[0];
    return fields_of(g->v[0], g->v[2], g->v[3], g->bytes[3] / 8, g->v[4], g->bytes[4] / 8, g->bytes[0] / 4 / N, N, g->v[1]);
}
CALLED(field_energies) /* planes (K, N), local, fields, energies (N,); K; strength */
{
    energies_of(g->v[0], g->v[1], g->v[2], (float)g->f[0], g->n[0], g->bytes[3] / 4, g->v[3]);
    return 1;
}
CALLED(nearest) /* padded, words (T, PATCH), labels (H, W); W */
{
    nearest(g->v[0], g->bytes[2] / g->n[0], g->n[0], g->v[1], (int)(g->bytes[1] / 4 / PATCH), g->v[2]);
    return 1;
}
CALLED(count) /* bins (D, H, W), mask or None, table (cells, C, B) of bytes or floats, shape and sides (6,); C, B, channel, cells */
{
    Py_ssize_t C = g->n[0], B = g->n[1], step = C * B, first = g->n[2] * B;
    int is_bytes = g->bytes[2] == g->n[3] * step;
    uint8_t *bytes = is_bytes ? (uint8_t *)g->v[2] + first : NULL;
    float *floats = is_bytes ? NULL : (float *)g->v[2] + first;
    counted(g->v[0], g->v[1], bytes, floats, g->v[3], (int64_t *)g->v[3] + 3, B, step);
    return 1;
}
CALLED(number_parts) /* labels (D, H, W), places (D, H, W), shape and number of parts (4,) */
{
    ((int64_t *)g->v[2])[3] = numbered(g->v[0], g->v[1], g->v[2]);
    return 1;
}
CALLED(describe_parts) /* labels (N,), places (N,), sizes (n,), first sites (n,), names (n,) */
{
    const int32_t *labels = g->v[0], *places = g->v[1];
    int64_t *sizes = g->v[2], *first = g->v[3];
    for (int64_t i = g->bytes[1] / 4 - 1; i >= 0; i--) {
        sizes[places[i]]++;
        if (!places[i]) continue;
        first[places[i]] = i;
        ((int32_t *)g->v[4])[places[i]] = labels[i];
    }
    return 1;
}
CALLED(near_borders)
/* bins, around, tables, channels, starts, form, factors, centres, offsets, weights or None, out, pixels; H, W; heavy */
{
    Py_ssize_t n = g->bytes[11] / 8, H = g->n[0], W = g->n[1];
    Borders b = {g->v[0], g->v[1], g->v[2], g->v[3], g->v[4], g->v[5], g->v[6], g->v[7], g->v[8], g->v[9], g->v[10],
                 g->bytes[0] / H / W, H, W, g->bytes[4] / 4 - 1, g->bytes[8] / 4, n ? g->bytes[10] / 4 / n : 0,
                 (float)g->f[0]};
    return near_borders(b, g->v[11], n);
}
CALLED(channel_scores) /* counts (n, M) as floats or bytes, which (n,), tables, out (n, K, C), work (M,); C, K */
{
    Py_ssize_t n = g->bytes[1], M = g->bytes[4] / 4;
    const uint8_t *bytes = g->bytes[0] == n * M ? g->v[0] : NULL;
    by_channel(g->v[0], bytes, g->v[4], g->v[1], g->v[2], n, M, g->n[0], g->n[1], g->v[3]);
    return 1;
}
#define CELLS(g) {g->v[0], g->v[2], g->v[1], g->v[3], g->bytes[1] / 4, g->n[1], g->n[2], g->bytes[3] / 8, g->f[0]}
CALLED(pair_moments) /* held, labels, sizes, grids, others (m,), rules (3,), means (K, C), covariances; a, K, C; side */
{
    Cells c = CELLS(g);
    return pair_moments(c, (int32_t)g->n[0], g->v[4], g->bytes[4] / 8, g->v[5], g->v[6], g->v[7]);
}
CALLED(pair_scales) /* held, labels, sizes, grids, weights (C,), rules (3,), out (9,); a, K, C, b; side */
{
    Cells c = CELLS(g);
    return pair_scales(c, (int32_t)g->n[0], g->n[3], g->v[4], g->v[5], g->v[6]);
}
CALLED(passes) /* counts (N, M) of floats or bytes, tables (K, M) or None, planes (K, N), sums (K, M) or None; N, M, from, to */
{
    Py_ssize_t N = g->n[0], M = g->n[1], K = g->bytes[2] / 4 / N;
    const uint8_t *bytes = g->bytes[0] == N * M ? g->v[0] : NULL;
    Passes p = {g->v[0], bytes, g->v[1], NULL, NULL, g->v[2], NULL, g->v[3], N, M, K, g->n[2], g->n[3], PRODUCTS, 1};
    Py_ssize_t n = (M + LANES - 1) / LANES;
    char *work = malloc(sizeof(vec) * (n * (FEW + 2 * (K + 7)) + (K + 7) * FEW / LANES + 2));
    if (work) passes(&p, (vec *)(((uintptr_t)work + sizeof(vec) - 1) / sizeof(vec) * sizeof(vec)));
    free(work);
    return work != NULL;
}
#define TABLE(g) {g->v[0], g->bytes[0] == g->n[0] * g->n[1] ? g->v[0] : NULL, g->v[1], g->n[0], g->n[1], g->n[2]}
CALLED(step) /* counts, scale, profiles (K, M), weights, background or None, planes, counts, sizes, new profiles, weights, (1,); N, M, C; beta, share */
{
    Table t = TABLE(g);
    return stepped(&t, g->v[2], g->v[3], g->v[4], g->f[1], g->f[0], g->bytes[3] / 8, g->v[5], g->v[6], g->v[7], g->v[8],
                   g->v[9], g->v[10]);
}
CALLED(halves)
/* counts, scale, planes (K, N), halves (K, N), fresh (K,), directions (n, M), counts (K, M), sizes, background or None,
   kept (K, M), their sizes, energies that become gains; N, M, C, steps of power iteration, and of EM; beta, share */
{
    Table t = TABLE(g);
    Halving h = {g->v[2], g->v[8], g->v[3], g->v[4], g->v[5], g->v[6], g->v[7], g->v[9], g->v[10], g->v[11], g->f[0], g->f[1],
                 g->bytes[4], g->n[3], g->n[4]};
    return halved(&t, &h);
}
CALLED(energies) /* counts (K, M), planes (K, N), out (K,); C; beta */
{
    Py_ssize_t K = g->bytes[2] / 8, M = g->bytes[0] / 8 / K, N = g->bytes[1] / 4 / K;
    for (Py_ssize_t k = 0; k < K; k++)
        ((double *)g->v[2])[k] = energy_of((double *)g->v[0] + k * M, M, g->n[0], (float *)g->v[1] + k * N, N, g->f[0]);
    return 1;
}

#define METHOD(name) {#name, py_##name, METH_VARARGS, NULL}
static PyMethodDef methods[] = {METHOD(soft_max), METHOD(fields), METHOD(field_energies), METHOD(nearest), METHOD(count), METHOD(number_parts),
                                METHOD(describe_parts),
                                METHOD(near_borders),
                                METHOD(channel_scores), METHOD(pair_moments), METHOD(pair_scales), METHOD(passes),
                                METHOD(step), METHOD(halves), METHOD(energies), {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", REVISION, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&module);
}
