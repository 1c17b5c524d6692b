/* The values by which a token is drawn: plain data, one struct a turn, copied freely. Whoever makes
 * one begins with sampling_default() and changes what he was told; sampling_check() says what is
 * wrong with it. Names, meanings and defaults are llama.cpp's (common/common.h, common/arg.cpp). */
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
    float bias; /* added to the logit; -INFINITY: never */
};

struct sampling {
    float temperature;    /* 0: greedy */
    int top_k;            /* 0: off */
    float top_p, min_p;   /* 1.0, 0.0: off */
    float repeat_penalty; /* 1.0: off */
    int repeat_last_n;    /* tokens the three penalties look back; 0: off, -1: context */
    uint64_t seed;
    /* taken from a token's logit: once for having occurred, and for each time it did; 0.0: off */
    float presence_penalty, frequency_penalty;
    float typical_p;   /* 0.0 and 1.0: off */
    float top_n_sigma; /* 0.0 and less: off */
    /* how often the likeliest are left out (0.0: off), and from which probability on (more than
     * 0.5: never) */
    float xtc_probability, xtc_threshold;
    /* multiplier × base ^ (what would be repeated - allowed length) is taken from the logit of a
     * token that would go on repeating; 0.0: off */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_penalty_last_n; /* last_n: 0: off, -1: context */
    /* texts over which no repetition is looked for */
    char dry_breakers[SAMPLING_BREAKER_MAX][SAMPLING_BREAKER_BYTES + 1];
    int n_dry_breakers;
    /* enum sampling_step, one after the other; n_order 0: the default order */
    uint8_t order[SAMPLING_ORDER_MAX];
    int n_order;
    /* added before everything else */
    struct logit_bias bias[SAMPLING_BIAS_MAX];
    int n_bias;
};

/* What the program uses where nothing else is said: llama.cpp's defaults (0.8, 40, 0.95, 0.05, 1.0,
 * 64, everything further off), seed 0. */
struct sampling sampling_default(void);
/* ERR_USAGE naming the value and its range. */
int sampling_check(const struct sampling *s, struct error *e);
/* "top_k;top_p;temperature", with ; or , between them, or "kpt"; what is not named is left out.
 * Empty: the default order. ERR_USAGE names what is no sampler. */
int sampling_order_read(struct sampling *s, const char *names, struct error *e);
int sampling_order_read_letters(struct sampling *s, const char *letters, struct error *e);
/* One more, or another bias for a token that has one. ERR_USAGE: too many, no number. */
int sampling_bias_add(struct sampling *s, int64_t id, double bias, struct error *e);
/* "15043+1", "15043-inf", several with commas between them. */
int sampling_bias_read(struct sampling *s, const char *text, struct error *e);
/* ERR_USAGE: empty, too long, or too many. */
int sampling_breaker_add(struct sampling *s, const char *text, size_t n, struct error *e);

#endif
