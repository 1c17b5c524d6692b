/* See figures.h. */
#include "app/connect/figures.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum what { RUNNING, WAITING, KV, RATE, CACHED, QUERIED, SHARE, WHATS };

static const struct {
    const char *name;
    enum what what;
} names[] = {
    {"moetop_sessions_busy", RUNNING},
    {"moetop_queue", WAITING},
    {"moetop_kv_cache_usage_ratio", KV},
    {"moetop_cached_tokens_total", CACHED},
    {"moetop_prompt_tokens_total", QUERIED},
    {"llamacpp:requests_processing", RUNNING},
    {"llamacpp:requests_deferred", WAITING},
    {"llamacpp:kv_cache_usage_ratio", KV},
    {"llamacpp:predicted_tokens_seconds", RATE},
    {"vllm:num_requests_running", RUNNING},
    {"vllm:num_requests_waiting", WAITING},
    {"vllm:kv_cache_usage_perc", KV},
    {"vllm:gpu_cache_usage_perc", KV},
    {"vllm:prefix_cache_hits_total", CACHED},
    {"vllm:prefix_cache_queries_total", QUERIED},
    {"vllm:avg_generation_throughput_toks_per_s", RATE},
    {"sglang:num_running_reqs", RUNNING},
    {"sglang:num_queue_reqs", WAITING},
    {"sglang:token_usage", KV},
    {"sglang:gen_throughput", RATE},
    {"sglang:cache_hit_rate", SHARE},
};

void figures_init(struct figures *f)
{
    *f = (struct figures){NAN, NAN, NAN, NAN, NAN, ""};
}

/* Its place in names, -1: none. */
static int find(const char *line, size_t n)
{
    size_t len = 0;

    while (len < n && line[len] != ' ' && line[len] != '{')
        len++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, line, len) == 0)
            return (int)i;
    return -1;
}

/* The number behind name and labels; NAN: there is none. */
static double value_of(const char *line, size_t n)
{
    const char *close = memchr(line, '{', n) ? memrchr(line, '}', n) : NULL;
    const char *at = close ? close + 1 : memchr(line, ' ', n);
    char text[64];
    size_t len = at ? n - (size_t)(at - line) : 0;
    char *end;
    double v;

    if (!len || len >= sizeof text)
        return NAN;
    memcpy(text, at, len);
    text[len] = 0;
    v = strtod(text, &end);
    return end == text || !isfinite(v) ? NAN : v;
}

bool figures_read_metrics(struct figures *f, const char *text, size_t n)
{
    double v[WHATS];
    int from[WHATS]; /* the name that told it: another one means the same */
    bool any = false;

    for (int i = 0; i < WHATS; i++) {
        v[i] = NAN;
        from[i] = -1;
    }
    while (n) {
        const char *next = memchr(text, '\n', n);
        size_t len = next ? (size_t)(next - text) : n;
        int at = len && *text != '#' ? find(text, len) : -1;
        int what = at >= 0 ? (int)names[at].what : 0;
        double x = at >= 0 ? value_of(text, len) : NAN;

        if (!isnan(x) && (from[what] < 0 || from[what] == at)) {
            from[what] = at;
            v[what] = isnan(v[what]) ? x : v[what] + x;
            any = true;
        }
        text += len + (next != NULL);
        n -= len + (next != NULL);
    }
    f->running = v[RUNNING];
    f->waiting = v[WAITING];
    f->kv = v[KV];
    f->decode_tok_s = v[RATE];
    f->cached = v[QUERIED] > 0 ? v[CACHED] / v[QUERIED] : v[SHARE];
    return any;
}

bool figures_read_slots(struct figures *f, const char *text, size_t n)
{
    json_t *list = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *slot;
    bool any = json_array_size(list) > 0;
    size_t i;
    int busy = 0;

    json_array_foreach(list, i, slot)
    {
        busy += json_is_true(json_object_get(slot, "is_processing"));
    }
    if (any)
        f->running = busy;
    json_decref(list);
    return any;
}
