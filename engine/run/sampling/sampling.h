/* The sampling parameters: plain data, one struct per turn, copied freely. Start from
 * sampling_default() and change what the user sets; sampling_check() validates it. Names, meanings
 * and defaults are llama.cpp's (common/common.h, common/arg.cpp). */
#ifndef ENGINE_RUN_SAMPLING_H
#define ENGINE_RUN_SAMPLING_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

/* name (of --samplers), letter (of --sampler-seq); in the order of llama.cpp's default */
/* clang-format off */
#define SAMPLING_STEPS(X)           \
    X(PENALTIES, "penalties", 'e')  \
    X(DRY, "dry", 'd')              \
    X(TOP_N_SIGMA, "top_n_sigma", 's') \
    X(TOP_K, "top_k", 'k')          \
    X(TYPICAL, "typ_p", 'y')        \
    X(TOP_P, "top_p", 'p')          \
    X(MIN_P, "min_p", 'm')          \
    X(XTC, "xtc", 'x')              \
    X(TEMPERATURE, "temperature", 't')
/* clang-format on */

enum sampling_step {
#define X(step, name, letter) SAMPLING_##step,
    SAMPLING_STEPS(X)
#undef X
        SAMPLING_STEP_COUNT
};

#define SAMPLING_ORDER_MAX 16
#define SAMPLING_BIAS_MAX 300
#define SAMPLING_BREAKER_MAX 8
#define SAMPLING_BREAKER_BYTES 40

struct logit_bias {
    int id;
    float bias; /* added to the logit; -INFINITY: excluded */
};

struct sampling {
    float temperature;    /* 0: greedy */
    int top_k;            /* 0: off */
    float top_p, min_p;   /* 1.0, 0.0: off */
    float repeat_penalty; /* 1.0: off */
    int repeat_last_n;    /* tokens the three penalties look back; 0: off, -1: context */
    uint64_t seed;
    /* subtracted from a token's logit: once if it occurred, and once per occurrence; 0.0: off */
    float presence_penalty, frequency_penalty;
    float typical_p;   /* 0.0 and 1.0: off */
    float top_n_sigma; /* 0.0 and less: off */
    /* probability of removing the likeliest tokens (0.0: off), and their least probability (more
     * than 0.5: never) */
    float xtc_probability, xtc_threshold;
    /* multiplier × base ^ (length of the repetition - allowed length) is subtracted from the logit
     * of a token that would continue a repetition; 0.0: off */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_penalty_last_n; /* last_n: 0: off, -1: context */
    /* texts that end the search for a repetition */
    char dry_breakers[SAMPLING_BREAKER_MAX][SAMPLING_BREAKER_BYTES + 1];
    int n_dry_breakers;
    /* sequence of enum sampling_step; n_order 0: the default order */
    uint8_t order[SAMPLING_ORDER_MAX];
    int n_order;
    /* added before everything else */
    struct logit_bias bias[SAMPLING_BIAS_MAX];
    int n_bias;
};

/* The defaults, which are llama.cpp's (0.8, 40, 0.95, 0.05, 1.0, 64, everything further off), seed
 * 0. */
struct sampling sampling_default(void);
/* ERR_USAGE naming the value and its range. */
int sampling_check(const struct sampling *s, struct error *e);
/* Parses "top_k;top_p;temperature", separated by ; or , or "kpt"; samplers not listed are off.
 * Empty: the default order. ERR_USAGE names the unknown sampler. */
int sampling_order_read(struct sampling *s, const char *names, struct error *e);
int sampling_order_read_letters(struct sampling *s, const char *letters, struct error *e);
/* Adds a bias or replaces a token's existing one. ERR_USAGE: too many, not a number. */
int sampling_bias_add(struct sampling *s, int64_t id, double bias, struct error *e);
/* Parses "15043+1", "15043-inf", several separated by commas. */
int sampling_bias_read(struct sampling *s, const char *text, struct error *e);
/* ERR_USAGE: empty, too long, or too many. */
int sampling_breaker_add(struct sampling *s, const char *text, size_t n, struct error *e);

#endif
