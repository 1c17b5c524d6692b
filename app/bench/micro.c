/* --microbench: each kernel and shape of the model relative to the machine's limits. Main thread.
 * One thread is measured: it is the most stable case, and its share of the peak depends only on the
 * kernel. */
#include "app/bench/internal.h"
#include "app/common/paths.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/device/cpu/shape_table.h"
#include "engine/base/clock.h"
#include "engine/model/block.h"
#include "engine/run/sampling/logits_sum.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOGIT_ROWS 4
#define READ_MS 400
#define CACHED 1.15 /* times the memory bandwidth: faster reads must come from a cache */
#define CHOICES_MAX 64

/* Data that fits into the L2 cache is still there from the previous run. */
static double second_level(void)
{
    return (double)membw_cache_level(2);
}

/* The kernel chosen by the tuning table in the cache folder, if there is one. */
static void print_choices(const struct options *o, const struct model *model)
{
    struct microbench_choice c[CHOICES_MAX];
    const char *folder = o->tune == DEVICE_TUNE_OFF ? NULL : paths_cache(o->cache_dir);
    int threads = topology_default_threads(), decode, busy = 0,
        n = cpu_choices(model, folder, o->exact, o->float_gemm, threads, c, CHOICES_MAX, &decode);

    printf("\nWhich kernels multiply a slice of weight rows, by the tokens that meet it:\n\n");
    printf("| %-8s | %6s x %-6s | %-16s | %-24s | %-8s |\n", "weights", "rows", "cols",
           "few tokens", "many tokens", "chosen");
    printf("| -------- | --------------: | ---------------- | ------------------------ | -------- "
           "|\n");
    for (int i = 0; i < n; i++) {
        char many[40] = "the same";

        if (c[i].large_batch && c[i].from >= TUNE_NEVER)
            snprintf(many, sizeof many, "%s: never faster", c[i].large_batch);
        else if (c[i].large_batch)
            snprintf(many, sizeof many, "%s from %d", c[i].large_batch, c[i].from);
        printf("| %-8s | %6d x %-6d | %-16s | %-24s | %-8s |\n", dtype_info(c[i].type)->word,
               c[i].rows, c[i].cols, c[i].small_batch, many,
               !c[i].measured ? "built in"
               : c[i].busy    ? "busy"
                              : "measured");
        busy += c[i].busy > 0;
    }
    if (busy)
        printf("\nbusy: measured while other programs computed; --tune says when it is measured "
               "again.\n");
    if (o->threads > 0)
        printf("\n-t asks for %d thread%s.\n", o->threads, o->threads == 1 ? "" : "s");
    else
        printf("\nPrompts are read by %d thread%s, one a physical core; tokens are decoded by %d "
               "(%s).\n",
               threads, threads == 1 ? "" : "s", decode ? decode : threads,
               decode ? "measured" : "not measured yet");
}

/* The patterns of reading weights for one token, each relative to the memory bandwidth in the same
 * seconds. */
static int print_patterns(const struct options *o, enum dtype type, int cols, int threads,
                          struct error *e)
{
    const char *folder = o->tune == DEVICE_TUNE_OFF ? NULL : paths_cache(o->cache_dir);
    double rates[READ_PATTERNS], before = membw_read(NULL, 0, threads, READ_MS), after;
    enum pattern_id chosen;
    bool measured;

    if (cpu_pattern_rates(type, cols, threads, rates, e) < 0)
        return -1;
    after = membw_read(NULL, 0, threads, READ_MS);
    chosen = cpu_pattern_chosen(folder, type, cols, threads, &measured);
    for (int i = 0; i < READ_PATTERNS && rates[i] > 0; i++) {
        char share[16] = "swung";

        if (!membw_swung(before, after))
            snprintf(share, sizeof share, "%.0f %%", 200 * rates[i] / (before + after));
        printf("| %-8s | %6d | %7d | %-16s | %8.1f | %8s | %-8s |\n", dtype_info(type)->word, cols,
               threads, pattern_of[i].word, rates[i] * 1e-9, share,
               i != (int)chosen ? ""
               : measured       ? "measured"
                                : "built in");
    }
    return 0;
}

/* Each type of the model's matrices, with one thread and with all. */
static int print_all_patterns(const struct options *o, const struct model *model, struct error *e)
{
    int cols = model->hp.hidden, all = topology_default_threads(), rc = 0;
    bool seen[DTYPE_COUNT] = {false};
    struct block_matrix list[BLOCK_MATRICES];

    printf("\nHow weights are read for one token:\n\n"
           "| %-8s | %6s | %7s | %-16s | %8s | %8s | %-8s |\n"
           "| -------- | -----: | ------: | ---------------- | -------: | -------: | -------- |\n",
           "weights", "cols", "threads", "pattern", "GB/s", "of read", "chosen");
    for (struct block_id id = BLOCK_BEFORE; rc == 0 && model_block_next(model, &id);)
        for (int i = 0, n = model_block_matrices(model, id, list); i < n && rc == 0; i++) {
            enum dtype type = list[i].w->type;

            if (seen[type] || list[i].w->cols != cols)
                continue;
            seen[type] = true;
            rc = print_patterns(o, type, cols, 1, e);
            if (rc == 0 && all > 1)
                rc = print_patterns(o, type, cols, all, e);
        }
    return rc;
}

/* ---- processing the logits of a drafted row ---- */

#define LOGIT_RUNS 200

static double sink;

static double greatest(const float *x, int n)
{
    return (double)logits_greatest(x, n);
}

static double greatest_scalar(const float *x, int n)
{
    float most = x[0];

    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return (double)most;
}

static double exp_sum(const float *x, int n)
{
    return logits_exp_sum(x, n, 1.0f);
}

static double exp_sum_scalar(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - 1.0);
    return sum;
}

/* Verifying a drafted token needs the maximum of a row of logits; a lossy policy and sampling also
 * need the sum of their exps. */
static int bench_logits(struct microbench_result *out, int n_vocab, struct error *e)
{
    static const struct {
        const char *name;
        double (*run)(const float *x, int n);
        double ops;
    } all[LOGIT_ROWS] = {{"compare logits", greatest, 1},
                         {"compare, scalar", greatest_scalar, 1},
                         {"accept (exps)", exp_sum, 16},
                         {"accept, scalar", exp_sum_scalar, 16}};
    float *x = mem_alloc((size_t)n_vocab + 1, sizeof *x);

    if (!x)
        return error_set(e, ERR_MEMORY, "out of memory for the microbenchmark");
    for (int i = 0; i < n_vocab; i++)
        x[i] = (float)(i % 17) * 0.0625f;
    for (int i = 0; i < LOGIT_ROWS; i++) {
        out[i] = (struct microbench_result){.rows = 1,
                                            .cols = n_vocab,
                                            .tokens = 1,
                                            .seconds = 1e30,
                                            .bytes = (double)n_vocab * sizeof *x,
                                            .ops = all[i].ops * n_vocab};
        snprintf(out[i].kernel, sizeof out[i].kernel, "%s", all[i].name);
        for (int k = 0; k < LOGIT_RUNS; k++) {
            uint64_t start = clock_now();

            sink += all[i].run(x, n_vocab);
            out[i].seconds = fmin(out[i].seconds, clock_seconds(clock_now() - start));
        }
    }
    mem_free(x);
    return LOGIT_ROWS;
}

static int measure(const struct options *o, const char *path, struct error *e)
{
    struct microbench_result *m = mem_alloc(MICROBENCH_MOST + LOGIT_ROWS, sizeof *m);
    double read = fmax(membw_read(NULL, 0, 1, READ_MS), cpu_read_bandwidth(1)),
           f32 = cpu_peak_f32(1), int8 = cpu_peak_int8(1), cache = second_level();
    struct model_options options = {.convert = -1, .width = cpu_pack_width(), .n_threads = 1};
    struct model *model = NULL;
    int n, rc = m ? 0 : error_set(e, ERR_MEMORY, "out of memory for the microbenchmark");

    if (rc == 0)
        rc = model_inspect(&model, path, &options, NULL, e);
    if (rc < 0)
        goto out;
    rc = n = cpu_microbench(m, model->hp.hidden, model->hp.common.ffn.width, e);
    if (rc < 0 || (rc = bench_logits(m + n, model->hp.n_vocab, e)) < 0)
        goto out;
    n += rc;
    rc = 0;
    printf("One thread, %s kernels. Memory reads %.1f GB/s; peaks: %.0f GFLOP/s in F32, %.0f Gop/s "
           "in int8%s.\n\n",
           cpu_kernels_name(), read * 1e-9, f32 * 1e-9, int8 * 1e-9,
           strcmp(cpu_kernels_name(), "amx") == 0 ? " (vectors; tiles could do more)" : "");
    printf("| %-22s | %6s x %-6s | %6s | %10s | %8s | %10s | %8s |\n", "kernel", "rows", "cols",
           "tokens", "GB/s", "of read", "Gop/s", "of peak");
    printf("| ---------------------- | --------------: | -----: | ---------: | -------: | "
           "---------: | -------: |\n");
    for (int i = 0; i < n; i++) {
        double gb = m[i].seconds > 0 ? m[i].bytes / m[i].seconds : 0,
               op = m[i].seconds > 0 ? m[i].ops / m[i].seconds : 0,
               peak = m[i].integer ? int8 : f32;
        char share[16];

        if (m[i].bytes <= cache || gb > CACHED * read)
            snprintf(share, sizeof share, "cached");
        else
            snprintf(share, sizeof share, "%.0f %%", read > 0 ? 100 * gb / read : 0);
        printf("| %-22s | %6d x %-6d | %6d | %10.1f | %8s | %10.1f | %6.0f %% |\n", m[i].kernel,
               m[i].rows, m[i].cols, m[i].tokens, gb * 1e-9, share, op * 1e-9,
               peak > 0 ? 100 * op / peak : 0);
    }
    print_choices(o, model);
    rc = print_all_patterns(o, model, e);
out:
    model_free(model);
    mem_free(m);
    return rc;
}

int bench_micro(const struct options *o, struct error *e)
{
    char kernels[16], where[16], path[4096];
    int rc = paths_model(o->model, path, sizeof path, e);

    option_word(&option_table[OPTION_ID_microbench], o->microbench, where, sizeof where);
    if (rc == 0 && strcmp(where, "here") != 0)
        return bench_micro_devices(o, path, where, e);
    option_word(&option_table[OPTION_ID_kernels], o->kernels, kernels, sizeof kernels);
    if (rc == 0)
        rc = cpu_kernels_select(o->kernels ? kernels : NULL, e);
    if (rc == 0)
        rc = measure(o, path, e);
    return rc < 0 ? rc : bench_micro_devices(o, path, NULL, e);
}
