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

/* Ratios of several replicas or ranks are averaged, not summed. */
static bool is_share(int what)
{
    return what == KV || what == SHARE;
}

/* Its index in names, -1: none. */
static int find(const char *line, size_t n)
{
    size_t len = 0;

    while (len < n && !strchr(" \t{", line[len]))
        len++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, line, len) == 0)
            return (int)i;
    return -1;
}

/* The end of name and labels: label values are quoted and may contain braces. */
static size_t labels_end(const char *line, size_t n)
{
    size_t i = 0;
    bool quoted = false;

    while (i < n && !strchr(" \t{", line[i]))
        i++;
    if (i == n || line[i] != '{')
        return i;
    for (; i < n; i++)
        if (line[i] == '\\' && quoted)
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (line[i] == '}' && !quoted)
            return i + 1;
    return n;
}

/* The value after name and labels, before a timestamp or an exemplar; NAN: none. */
static double value_of(const char *line, size_t n)
{
    size_t at = labels_end(line, n), len = 0;
    char text[64];
    char *end;
    double v;

    while (at < n && strchr(" \t", line[at]))
        at++;
    while (at + len < n && !strchr(" \t\r", line[at + len]))
        len++;
    if (!len || len >= sizeof text)
        return NAN;
    memcpy(text, line + at, len);
    text[len] = 0;
    v = strtod(text, &end);
    return end == text || !isfinite(v) || v < 0 ? NAN : v;
}

bool figures_read_metrics(struct figures *f, const char *text, size_t n)
{
    double v[WHATS];
    int from[WHATS]; /* name of the source; another name with the same meaning is ignored */
    int samples[WHATS] = {0};
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
            samples[what]++;
            any = true;
        }
        text += len + (next != NULL);
        n -= len + (next != NULL);
    }
    for (int i = 0; i < WHATS; i++)
        if (is_share(i) && samples[i])
            v[i] = fmin(v[i] / samples[i], 1);
    f->running = v[RUNNING];
    f->waiting = v[WAITING];
    f->kv = v[KV];
    f->decode_tok_s = v[RATE];
    f->cached = v[QUERIED] > 0 ? v[CACHED] / v[QUERIED] : v[SHARE];
    if (f->cached > 1)
        f->cached = 1;
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
