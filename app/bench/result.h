/* One measured test and its output. The first columns are llama-bench's, by the same names, so that
 * scripts made for its CSV, JSON and SQL work with ours; moetop's own follow. One table defines all
 * five formats and the reader. Main thread. */
#ifndef APP_BENCH_RESULT_H
#define APP_BENCH_RESULT_H

#include "app/common/report_format.h"
#include "engine/base/error.h"
#include "engine/base/series.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench_result {
    char cpu_info[96], gpu_info[128], backends[64], model_filename[512], model_type[96];
    uint64_t model_size, model_n_params;
    int n_batch, n_ubatch, n_threads;
    char type_k[8], type_v[8];
    int n_gpu_layers; /* layers with their attention on a device */
    char devices[128];
    int n_prompt, n_gen, n_depth;
    int n_parallel;     /* texts in parallel, each of so many tokens; 0: one */
    char test_time[24]; /* ISO 8601, UTC */
    /* moetop's own columns */
    char version[16], arm[128], placement[144], kernels[16], routing[16], test[96];
    double median_ts, p05_ts, p95_ts;  /* of the repetitions */
    double token_p50_ms, token_p95_ms; /* single tokens; 0: none generated */
    double ttft_ms;                    /* prompt suite: time to first token; 0: not measured */
    /* bytes a second; lowest, highest: of all readings, between the samples too */
    double bandwidth_before, bandwidth_after, bandwidth_lowest, bandwidth_highest;
    /* decode and small batches: the rate that the memory allows, and the share reached; 0: does not
     * apply */
    double roofline_ts, share;
    /* read per token; for a batch: of all of them, divided by their number */
    uint64_t token_bytes;
    bool in_cache;
    uint64_t rss, rss_peak;
    /* CPUs' worth of this process, of all others; NAN: unknown */
    double cpu_use, others_use, mhz;
    uint64_t read_bytes, write_bytes, read_calls, write_calls;
    /* of processor and GPU together, prompts' tokens counted too; NAN: not readable */
    double joules_a_token, watts;
    /* share of all experts used; maximum over mean, averaged over the layers; 0: not counted */
    double experts_seen, experts_imbalance;
    bool routing_imposed; /* experts were not chosen by the router */
    bool disturbed;       /* by other programs, or a drop of the clock frequency */
    char remark[200];
    /* samples: of n_prompt + n_gen tokens each; memory bandwidth before and after each, if
     * memory-bound */
    struct series ns, memory_before, memory_after;
};

void bench_result_release(struct bench_result *r);
/* Tokens of one sample. */
int bench_result_tokens(const struct bench_result *r);
/* Rates (tokens a second) of the samples, as mean, sd, median. */
int bench_result_rates(const struct bench_result *r, struct series_figures *out);

/* A whole report: header, one row per result, end. Results may be written as they are measured:
 * begin, row..., end. */
void bench_write_begin(FILE *f, enum report_format format);
void bench_write_row(FILE *f, enum report_format format, const struct bench_result *r, int index);
void bench_write_end(FILE *f, enum report_format format, int rows);

/* Results parsed from a JSON report (ours or llama-bench's: missing columns stay empty). *out is
 * mem_* memory, released one by one. ERR_IO, ERR_INPUT naming the file. */
int bench_read(struct bench_result **out, size_t *n, const char *path, struct error *e);
/* Compares two reports test by test: rates, ratio, and whether the difference exceeds the noise.
 * Returns how many tests both have. */
int bench_compare(FILE *f, const struct bench_result *a, size_t n_a, const struct bench_result *b,
                  size_t n_b);
/* "A is faster", "B is faster", "none" (within the noise), "too few runs" (all of A differ from all
 * of B, but with so few runs that may be chance). */
const char *bench_verdict(const struct series_figures *a, const struct series_figures *b);
/* "pp512", "tg128 @ d1024", "pp512+tg128", "tg128 x8" */
void bench_test_name(const struct bench_result *r, char *out, size_t size);

#endif
