/* See sampling_options.h. */
#include "app/setup/sampling_options.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t fresh_seed(void)
{
    uint64_t seed;
    struct timespec t;

    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        clock_gettime(CLOCK_REALTIME, &t);
        seed = (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec << 20 ^ (uint64_t)getpid();
    }
    return seed >> 32; /* short enough to be read and typed */
}

/* ---- options ---- */

/* One --dry-sequence-breaker, with its escapes processed. */
static int add_breaker(struct sampling *s, const char *text, struct error *e)
{
    char plain[SAMPLING_BREAKER_BYTES + 2];
    size_t n = 0;

    for (; *text && n < sizeof plain; text++) {
        char c = *text;

        if (c == '\\' && text[1] && strchr("nt\\\"", text[1])) {
            c = *++text;
            c = (char)(c == 'n' ? '\n' : c == 't' ? '\t' : c);
        }
        plain[n++] = c;
    }
    return sampling_breaker_add(s, plain, n, e);
}

static int read_lists(const struct options *o, struct sampling *s, struct error *e)
{
    const struct option_list *breakers = &o->dry_sequence_breaker;
    int rc = 0;

    if (o->samplers && *o->samplers)
        rc = sampling_order_read(s, o->samplers, e);
    else if (o->sampler_seq && *o->sampler_seq)
        rc = sampling_order_read_letters(s, o->sampler_seq, e);
    for (size_t i = 0; i < o->logit_bias.n && rc == 0; i++)
        rc = sampling_bias_read(s, o->logit_bias.items[i], e);
    if (breakers->n)
        s->n_dry_breakers = 0;
    for (size_t i = 0; i < breakers->n && rc == 0; i++)
        if (strcmp(breakers->items[i], "none") == 0)
            s->n_dry_breakers = 0;
        else
            rc = add_breaker(s, breakers->items[i], e);
    return rc;
}

static int read_options(const struct options *o, struct sampling *s, struct error *e)
{
    *s = sampling_default();
    s->temperature = (float)o->temp;
    s->top_k = o->top_k;
    s->top_p = (float)o->top_p;
    s->min_p = (float)o->min_p;
    s->repeat_penalty = (float)o->repeat_penalty;
    s->repeat_last_n = o->repeat_last_n;
    s->presence_penalty = (float)o->presence_penalty;
    s->frequency_penalty = (float)o->frequency_penalty;
    s->typical_p = (float)o->typical_p;
    s->top_n_sigma = (float)o->top_n_sigma;
    s->xtc_probability = (float)o->xtc_probability;
    s->xtc_threshold = (float)o->xtc_threshold;
    s->dry_multiplier = (float)o->dry_multiplier;
    s->dry_base = (float)o->dry_base;
    s->dry_allowed_length = o->dry_allowed_length;
    s->dry_penalty_last_n = o->dry_penalty_last_n;
    s->seed = o->seed == OPTION_SEED_RANDOM ? fresh_seed() : o->seed;
    return read_lists(o, s, e);
}

void sampling_from_options(const struct options *o, struct sampling *s)
{
    struct error ignored;

    read_options(o, s, &ignored);
}

int sampling_options_check(const struct options *o, struct error *e)
{
    struct sampling s;

    return read_options(o, &s, e);
}

/* ---- JSON ---- */

static const struct {
    const char *key;
    size_t offset;
    bool whole;
} numbers[] = {
    {"temperature", offsetof(struct sampling, temperature), false},
    {"top_k", offsetof(struct sampling, top_k), true},
    {"top_p", offsetof(struct sampling, top_p), false},
    {"min_p", offsetof(struct sampling, min_p), false},
    {"repeat_penalty", offsetof(struct sampling, repeat_penalty), false},
    {"repeat_last_n", offsetof(struct sampling, repeat_last_n), true},
    {"presence_penalty", offsetof(struct sampling, presence_penalty), false},
    {"frequency_penalty", offsetof(struct sampling, frequency_penalty), false},
    {"typical_p", offsetof(struct sampling, typical_p), false},
    {"top_n_sigma", offsetof(struct sampling, top_n_sigma), false},
    {"xtc_probability", offsetof(struct sampling, xtc_probability), false},
    {"xtc_threshold", offsetof(struct sampling, xtc_threshold), false},
    {"dry_multiplier", offsetof(struct sampling, dry_multiplier), false},
    {"dry_base", offsetof(struct sampling, dry_base), false},
    {"dry_allowed_length", offsetof(struct sampling, dry_allowed_length), true},
    {"dry_penalty_last_n", offsetof(struct sampling, dry_penalty_last_n), true},
};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static int read_number(struct sampling *s, size_t i, const json_t *v, struct error *e)
{
    char *field = (char *)s + numbers[i].offset;

    if (numbers[i].whole) {
        if (!json_is_integer(v) || json_integer_value(v) < INT_MIN ||
            json_integer_value(v) > INT_MAX)
            return error_set(e, ERR_INPUT, "'%s' must be a whole number", numbers[i].key);
        *(int *)field = (int)json_integer_value(v);
        return 0;
    }
    if (!json_is_number(v) || fabs(json_number_value(v)) > 1e30)
        return error_set(e, ERR_INPUT, "'%s' must be a number", numbers[i].key);
    *(float *)field = (float)json_number_value(v);
    return 0;
}

static int read_seed(struct sampling *s, const json_t *v, struct error *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < -1)
        return error_set(e, ERR_INPUT, "'seed' must be a whole number from 0 (or -1: a new one)");
    if (json_integer_value(v) >= 0)
        s->seed = (uint64_t)json_integer_value(v);
    return 0;
}

static int add_bias(struct sampling *s, int64_t id, const json_t *bias, struct error *e)
{
    if (!json_is_number(bias) && !json_is_false(bias))
        return error_set(e, ERR_INPUT, "'logit_bias': a bias must be a number, or false for never");
    if (sampling_bias_add(s, id, json_is_false(bias) ? -HUGE_VAL : json_number_value(bias), e) < 0)
        return e->code = ERR_INPUT;
    return 0;
}

static int read_bias(struct sampling *s, const json_t *v, struct error *e)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = 0;

    s->n_bias = 0;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item)
        {
            char *end;
            long long id = strtoll(key, &end, 10);

            if (*key < '0' || *key > '9' || *end)
                return error_set(e, ERR_INPUT, "'logit_bias': '%.40s' is no token's number", key);
            if ((rc = add_bias(s, id, item, e)) < 0)
                return rc;
        }
        return 0;
    }
    if (!json_is_array(v))
        return error_set(e, ERR_INPUT,
                         "'logit_bias' must be [[TOKEN, BIAS] …] or {\"TOKEN\": BIAS}");
    json_array_foreach(v, i, item)
    {
        const json_t *id = json_array_get(item, 0);

        if (json_array_size(item) != 2 || !json_is_integer(id))
            return error_set(e, ERR_INPUT,
                             "'logit_bias' must be [[TOKEN, BIAS] …] or {\"TOKEN\": BIAS}");
        if ((rc = add_bias(s, json_integer_value(id), json_array_get(item, 1), e)) < 0)
            return rc;
    }
    return 0;
}

static int read_breakers(struct sampling *s, const json_t *v, struct error *e)
{
    json_t *item;
    size_t i;

    if (!json_is_array(v))
        return error_set(e, ERR_INPUT, "'dry_sequence_breakers' must be a list of texts");
    s->n_dry_breakers = 0;
    json_array_foreach(v, i, item)
    {
        if (!json_is_string(item))
            return error_set(e, ERR_INPUT, "'dry_sequence_breakers' must be a list of texts");
        if (sampling_breaker_add(s, json_string_value(item), json_string_length(item), e) < 0)
            return e->code = ERR_INPUT;
    }
    return 0;
}

static int read_samplers(struct sampling *s, const json_t *v, struct error *e)
{
    char names[512] = "";
    json_t *item;
    size_t i, n = 0;

    if (!json_is_array(v) && !json_is_string(v))
        return error_set(e, ERR_INPUT, "'samplers' must be a list of names, or letters");
    if (json_is_string(v))
        return sampling_order_read_letters(s, json_string_value(v), e) < 0 ? e->code = ERR_INPUT
                                                                           : 0;
    json_array_foreach(v, i, item)
    {
        if (!json_is_string(item) || n + json_string_length(item) + 2 > sizeof names)
            return error_set(e, ERR_INPUT, "'samplers' must be a list of names, or letters");
        n += (size_t)snprintf(names + n, sizeof names - n, "%s;", json_string_value(item));
    }
    return sampling_order_read(s, names, e) < 0 ? e->code = ERR_INPUT : 0;
}

static const struct {
    const char *key;
    int (*read)(struct sampling *s, const json_t *v, struct error *e);
} others[] = {
    {"seed", read_seed},
    {"logit_bias", read_bias},
    {"dry_sequence_breakers", read_breakers},
    {"samplers", read_samplers},
};
#define OTHERS (sizeof others / sizeof *others)

const char *sampling_json_key(size_t i)
{
    return i < NUMBERS ? numbers[i].key : i < NUMBERS + OTHERS ? others[i - NUMBERS].key : NULL;
}

int sampling_read_json(struct sampling *s, const json_t *o, const char **param, struct error *e)
{
    const char *key;
    int rc = 0;

    for (size_t i = 0; (key = sampling_json_key(i)) && rc == 0; i++) {
        const json_t *v = json_object_get(o, key);

        if (param)
            *param = key;
        if (v && !json_is_null(v))
            rc = i < NUMBERS ? read_number(s, i, v, e) : others[i - NUMBERS].read(s, v, e);
    }
    if (rc < 0)
        return rc;
    if (sampling_check(s, e) == 0)
        return 0;
    for (size_t i = 0; param && i < NUMBERS; i++)
        if (strncmp(e->text, numbers[i].key, strlen(numbers[i].key)) == 0)
            *param = numbers[i].key;
    return e->code = ERR_INPUT;
}
