/* See sampling.h. Any thread. */
#include "engine/run/sampling/sampling.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    char letter;
} steps[SAMPLING_STEP_COUNT] = {
#define X(step, name, letter) {name, letter},
    SAMPLING_STEPS(X)
#undef X
};

struct sampling sampling_default(void)
{
    return (struct sampling){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
        .typical_p = 1.0f,
        .xtc_threshold = 0.1f,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_penalty_last_n = -1,
        .dry_breakers = {"\n", ":", "\"", "*"},
        .n_dry_breakers = 4,
    };
}

static const struct {
    const char *name;
    size_t offset;
    float min, max;
    const char *range;
} reals[] = {
    {"temperature", offsetof(struct sampling, temperature), 0, 1e6f, "0 (greedy) or more"},
    {"top_p", offsetof(struct sampling, top_p), 0, 1, "0 to 1 (off)"},
    {"min_p", offsetof(struct sampling, min_p), 0, 1, "0 (off) to 1"},
    {"presence_penalty", offsetof(struct sampling, presence_penalty), -100, 100,
     "-100 to 100 (0: off)"},
    {"frequency_penalty", offsetof(struct sampling, frequency_penalty), -100, 100,
     "-100 to 100 (0: off)"},
    {"typical_p", offsetof(struct sampling, typical_p), 0, 1, "0 to 1 (off)"},
    {"top_n_sigma", offsetof(struct sampling, top_n_sigma), -1e6f, 1e6f, "0 (off) or more"},
    {"xtc_probability", offsetof(struct sampling, xtc_probability), 0, 1, "0 (off) to 1"},
    {"xtc_threshold", offsetof(struct sampling, xtc_threshold), 0, 1, "0 to 1"},
    {"dry_multiplier", offsetof(struct sampling, dry_multiplier), 0, 1e6f, "0 (off) or more"},
    {"dry_base", offsetof(struct sampling, dry_base), 0, 1e6f, "0 or more"},
};

static const struct {
    const char *name;
    size_t offset;
    int min;
    const char *range;
} ints[] = {
    {"top_k", offsetof(struct sampling, top_k), 0, "0 (off) or more"},
    {"repeat_last_n", offsetof(struct sampling, repeat_last_n), -1,
     "-1 (the context), 0 (off) or more"},
    {"dry_allowed_length", offsetof(struct sampling, dry_allowed_length), 0, "0 or more"},
    {"dry_penalty_last_n", offsetof(struct sampling, dry_penalty_last_n), -1,
     "-1 (the context), 0 (off) or more"},
};

int sampling_check(const struct sampling *s, struct error *e)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        float v = *(const float *)((const char *)s + reals[i].offset);

        if (!(v >= reals[i].min && v <= reals[i].max))
            return error_set(e, ERR_USAGE, "%s is %g; %s is possible", reals[i].name, (double)v,
                             reals[i].range);
    }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int v = *(const int *)((const char *)s + ints[i].offset);

        if (v < ints[i].min)
            return error_set(e, ERR_USAGE, "%s is %d; %s is possible", ints[i].name, v,
                             ints[i].range);
    }
    if (!(s->repeat_penalty > 0.0f && s->repeat_penalty <= 1e6f))
        return error_set(e, ERR_USAGE, "repeat_penalty is %g; more than 0 is possible, 1 is off",
                         (double)s->repeat_penalty);
    return 0;
}

/* ---- the order ---- */

static int order_add(struct sampling *s, int step, struct error *e)
{
    if (s->n_order == SAMPLING_ORDER_MAX)
        return error_set(e, ERR_USAGE, "samplers: more than %d", SAMPLING_ORDER_MAX);
    s->order[s->n_order++] = (uint8_t)step;
    return 0;
}

/* llama.cpp accepts further spellings: top-k, typical, temp … */
static int step_of(const char *name, size_t n)
{
    static const struct {
        const char *name;
        enum sampling_step step;
    } others[] = {
        {"top-k", SAMPLING_TOP_K},
        {"top-p", SAMPLING_TOP_P},
        {"min-p", SAMPLING_MIN_P},
        {"typical", SAMPLING_TYPICAL},
        {"typical_p", SAMPLING_TYPICAL},
        {"typical-p", SAMPLING_TYPICAL},
        {"typ-p", SAMPLING_TYPICAL},
        {"typ", SAMPLING_TYPICAL},
        {"temp", SAMPLING_TEMPERATURE},
        {"top-n-sigma", SAMPLING_TOP_N_SIGMA},
        {"top_nsigma", SAMPLING_TOP_N_SIGMA},
        {"nucleus", SAMPLING_TOP_P},
    };

    for (int i = 0; i < SAMPLING_STEP_COUNT; i++)
        if (strlen(steps[i].name) == n && memcmp(steps[i].name, name, n) == 0)
            return i;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].name) == n && memcmp(others[i].name, name, n) == 0)
            return (int)others[i].step;
    return -1;
}

int sampling_order_read(struct sampling *s, const char *names, struct error *e)
{
    s->n_order = 0;
    while (*names) {
        size_t n = strcspn(names, ";,");
        int step = step_of(names, n), rc;

        if (step < 0)
            return error_set(e, ERR_USAGE,
                             "samplers: '%.*s' is none; there are penalties, dry, top_n_sigma, "
                             "top_k, typ_p, top_p, min_p, xtc and temperature",
                             (int)(n < 40 ? n : 40), names);
        if ((rc = order_add(s, step, e)) < 0)
            return rc;
        names += n + (names[n] != 0);
    }
    return 0;
}

int sampling_order_read_letters(struct sampling *s, const char *letters, struct error *e)
{
    s->n_order = 0;
    for (; *letters; letters++) {
        int step = 0, rc;

        while (step < SAMPLING_STEP_COUNT && steps[step].letter != *letters)
            step++;
        if (step == SAMPLING_STEP_COUNT)
            return error_set(e, ERR_USAGE,
                             "sampler-seq: '%c' is no sampler; the letters are edskypmxt",
                             *letters);
        if ((rc = order_add(s, step, e)) < 0)
            return rc;
    }
    return 0;
}

/* ---- lists ---- */

int sampling_bias_add(struct sampling *s, int64_t id, double bias, struct error *e)
{
    int at = 0;

    if (id < 0 || id > INT32_MAX)
        return error_set(e, ERR_USAGE, "logit_bias: there is no token %lld", (long long)id);
    if (!(bias <= 1e6)) /* -inf is one */
        return error_set(e, ERR_USAGE, "logit_bias of token %lld is %g; a number is possible",
                         (long long)id, bias);
    while (at < s->n_bias && s->bias[at].id != (int)id)
        at++;
    if (at == SAMPLING_BIAS_MAX)
        return error_set(e, ERR_USAGE, "logit_bias: more than %d tokens", SAMPLING_BIAS_MAX);
    s->bias[at] = (struct logit_bias){(int)id, bias < -1e6 ? -INFINITY : (float)bias};
    s->n_bias += at == s->n_bias;
    return 0;
}

int sampling_bias_read(struct sampling *s, const char *text, struct error *e)
{
    const char *at = text;

    while (*at) {
        char *end;
        long long id;
        double bias;
        int rc;

        errno = 0;
        id = strtoll(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || (*end != '+' && *end != '-'))
            return error_set(e, ERR_USAGE, "logit-bias: '%.60s': write TOKEN+BIAS or TOKEN-BIAS",
                             text);
        at = end;
        bias = strtod(at, &end);
        if (end == at || (*end && *end != ',') || isnan(bias))
            return error_set(e, ERR_USAGE, "logit-bias: '%.60s': write TOKEN+BIAS or TOKEN-BIAS",
                             text);
        if ((rc = sampling_bias_add(s, id, bias, e)) < 0)
            return rc;
        at = end + (*end == ',');
    }
    return 0;
}

int sampling_breaker_add(struct sampling *s, const char *text, size_t n, struct error *e)
{
    if (!n || n > SAMPLING_BREAKER_BYTES || memchr(text, 0, n))
        return error_set(e, ERR_USAGE, "dry_sequence_breakers: 1 to %d bytes without a NUL each",
                         SAMPLING_BREAKER_BYTES);
    if (s->n_dry_breakers == SAMPLING_BREAKER_MAX)
        return error_set(e, ERR_USAGE, "dry_sequence_breakers: more than %d", SAMPLING_BREAKER_MAX);
    memcpy(s->dry_breakers[s->n_dry_breakers], text, n);
    s->dry_breakers[s->n_dry_breakers++][n] = 0;
    return 0;
}
