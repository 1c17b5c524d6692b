/* See figures.h. */
#include "app/connect/figures.h"

#include "engine/base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum figure_kind {
    RUNNING,        /* requests being answered */
    OPEN,           /* requests of all kinds, ours for its metrics too */
    WAITING,        /* requests in the queue */
    KV,             /* share of the KV cache in use */
    DECODE_RATE,    /* tokens a second */
    GENERATED,      /* counter of tokens, from which the rate is made */
    ENDED,          /* counter of tokens, without those of the running requests */
    COMPUTED,       /* counter of prompt tokens without the cached ones */
    PROMPTED,       /* counter of prompt tokens with the cached ones */
    CACHED,         /* counter of cached prompt tokens */
    CACHED_SHARE,   /* the same as a share */
    DRAFTED,        /* counter of drafted tokens */
    ACCEPTED,       /* counter of accepted ones */
    DRAFTS,         /* counter of passes with drafts */
    ACCEPTED_SHARE, /* accepted of the drafted ones */
    DRAFT_LENGTH,   /* tokens of a pass with drafts */
    KINDS
};

static const struct {
    const char *name, *label;
    enum figure_kind kind;
} names[] = {
#define METRIC(name, label, kind) {name, label, kind},
#include "app/connect/metrics.def"
#undef METRIC
};

#define NAMES (sizeof names / sizeof *names)

void figures_init(struct figures *f)
{
    *f = (struct figures){.running = NAN,
                          .waiting = NAN,
                          .kv = NAN,
                          .decode_tok_s = NAN,
                          .prompt_tok_s = NAN,
                          .cached = NAN,
                          .accepted = NAN,
                          .draft_length = NAN,
                          .generated = NAN,
                          .ended = NAN,
                          .computed = NAN};
}

/* Ratios of several replicas or ranks are averaged, not summed. */
static bool is_mean(enum figure_kind kind)
{
    return kind == KV || kind == CACHED_SHARE || kind == ACCEPTED_SHARE || kind == DRAFT_LENGTH;
}

/* Whether a line has that name and label; `labels`: its bytes of name and labels. */
static bool is_meant(size_t row, const char *line, size_t labels)
{
    size_t len = strlen(names[row].name);

    return len <= labels && memcmp(names[row].name, line, len) == 0 &&
           (len == labels || line[len] == '{') &&
           (!*names[row].label ||
            memmem(line + len, labels - len, names[row].label, strlen(names[row].label)));
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

/* The value after name and labels, which end at `at`, before a timestamp or an exemplar; NAN: none.
 */
static double value_of(const char *line, size_t n, size_t at)
{
    size_t len = 0;
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

struct sample {
    double sum;
    int n;
};

static bool take_line(struct sample *samples, const char *line, size_t n)
{
    size_t labels = labels_end(line, n);
    double x = value_of(line, n, labels);
    bool any = false;

    for (size_t i = 0; i < NAMES && !isnan(x); i++)
        if (is_meant(i, line, labels)) {
            samples[i].sum += x;
            samples[i].n++;
            any = true;
        }
    return any;
}

/* The value of each kind: of several metrics for one kind (metrics.def, best first) the first that
 * the server reports, its samples summed, or averaged if it is a ratio. NAN: none was reported. */
static void by_kind(const struct sample *samples, double *v)
{
    for (int k = 0; k < KINDS; k++)
        v[k] = NAN;
    for (size_t i = NAMES; i-- > 0;)
        if (samples[i].n)
            v[names[i].kind] = is_mean(names[i].kind) ? samples[i].sum / samples[i].n
                                                      : samples[i].sum;
}

/* The first row of a kind that has samples; NAMES: none. */
static size_t row_of(const struct sample *samples, enum figure_kind kind)
{
    size_t i = 0;

    while (i < NAMES && !(names[i].kind == kind && samples[i].n))
        i++;
    return i;
}

/* fmin takes a NAN for no value. */
static double most_one(double x)
{
    return x > 1 ? 1 : x;
}

/* A share of two counters; before anything was counted: NAN. */
static double share(double part, double all)
{
    return all > 0 ? most_one(part / all) : NAN;
}

static void take_kinds(struct figures *f, const double *v)
{
    f->running = !isnan(v[RUNNING]) ? v[RUNNING] : v[OPEN] < 1 ? 0 : v[OPEN] - 1;
    f->waiting = v[WAITING];
    f->kv = most_one(v[KV]);
    f->generated = v[GENERATED];
    f->ended = v[ENDED];
    f->computed = isnan(v[COMPUTED]) ? v[PROMPTED] - v[CACHED] : v[COMPUTED];
    f->decode_tok_s = v[DECODE_RATE];
    f->cached = share(v[CACHED], isnan(v[PROMPTED]) ? v[CACHED] + v[COMPUTED] : v[PROMPTED]);
    if (isnan(v[CACHED]))
        f->cached = most_one(v[CACHED_SHARE]);
    f->accepted = share(v[ACCEPTED], v[DRAFTED]);
    f->draft_length = v[DRAFTS] > 0 ? 1 + v[ACCEPTED] / v[DRAFTS] : NAN;
    if (isnan(v[DRAFTED]) && v[DRAFT_LENGTH] > 0) {
        f->accepted = most_one(v[ACCEPTED_SHARE]);
        f->draft_length = v[DRAFT_LENGTH];
    }
}

bool figures_read_metrics(struct figures *f, const char *text, size_t n)
{
    struct sample samples[NAMES] = {{0, 0}};
    double v[KINDS];
    bool any = false;

    while (n) {
        const char *next = memchr(text, '\n', n);
        size_t len = next ? (size_t)(next - text) : n;

        if (len && *text != '#')
            any |= take_line(samples, text, len);
        text += len + (next != NULL);
        n -= len + (next != NULL);
    }
    by_kind(samples, v);
    if (row_of(samples, GENERATED) < row_of(samples, DECODE_RATE))
        v[DECODE_RATE] = NAN; /* the counter is the better source */
    take_kinds(f, v);
    return any;
}

static double number_of(const json_t *o, const char *path)
{
    const json_t *v = json_walk(o, path);

    return json_is_number(v) && json_number_value(v) >= 0 ? json_number_value(v) : NAN;
}

/* The tokens of a slot's newest answer. */
static double slot_generated(const json_t *slot)
{
    double n = number_of(slot, "next_token.0.n_decoded");

    if (isnan(n)) /* older versions */
        n = number_of(slot, "next_token.n_decoded");
    return isnan(n) ? 0 : n;
}

struct slots {
    double busy, held, room, generated; /* generated: by the busy ones */
};

/* A slot that was never used has no tokens, and does not say so. */
static void take_slot(struct figures *f, struct slots *all, const json_t *slot)
{
    double held = number_of(slot, "n_prompt_tokens");
    bool busy = json_is_true(json_object_get(slot, "is_processing"));

    all->busy += busy;
    all->held += isnan(held) ? 0 : held;
    all->room += number_of(slot, "n_ctx");
    all->generated += busy ? slot_generated(slot) : 0;
    if (f->n_slots < FIGURES_SLOTS) {
        f->slots[f->n_slots].task = (int)json_integer_value(json_object_get(slot, "id_task"));
        f->slots[f->n_slots].generated = slot_generated(slot);
    }
    f->n_slots++;
}

bool figures_read_slots(struct figures *f, const char *text, size_t n)
{
    json_t *list = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *slot;
    struct slots all = {0};
    size_t i;

    f->n_slots = 0;
    json_array_foreach(list, i, slot)
    {
        take_slot(f, &all, slot);
    }
    json_decref(list);
    if (!f->n_slots)
        return false;
    if (isnan(f->running))
        f->running = all.busy;
    if (isnan(f->kv))
        f->kv = share(all.held, all.room);
    if (!isnan(f->ended)) {
        f->generated = f->ended + all.generated;
        f->decode_tok_s = NAN;
    }
    if (!isnan(f->ended) || f->n_slots > FIGURES_SLOTS)
        f->n_slots = 0;
    return true;
}

/* What a counter says of a time; NAN: nothing. */
static double rate(double now, double before, double seconds)
{
    return now >= before && seconds > 0 ? (now - before) / seconds : NAN;
}

/* The tokens that a slot made since: of a task that came and went in between nothing is known. */
static double slots_rate(const struct figures *f, const struct figures *before, double seconds)
{
    double sum = 0;

    for (int i = 0; i < f->n_slots; i++) {
        double same = f->slots[i].task == before->slots[i].task ? before->slots[i].generated : 0;

        sum += fmax(f->slots[i].generated - same, 0);
    }
    return rate(sum, 0, seconds);
}

void figures_rate(struct figures *f, const struct figures *before, double seconds)
{
    f->prompt_tok_s = rate(f->computed, before->computed, seconds);
    if (f->n_slots)
        f->decode_tok_s = f->n_slots == before->n_slots ? slots_rate(f, before, seconds) : NAN;
    else if (isnan(f->decode_tok_s))
        f->decode_tok_s = rate(f->generated, before->generated, seconds);
}
