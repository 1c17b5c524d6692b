/* See embed.h. Texts are computed in groups of --parallel, so that short ones share passes; a group
 * is printed in order when all of it is done. */
#include "app/headless/embed.h"

#include "app/common/signals.h"
#include "app/headless/batch_input.h"
#include "app/setup/embedding.h"
#include "app/setup/engine_options.h"
#include "app/setup/parallel.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A text of a group. */
struct text {
    struct session *session;
    struct turn turn;
    size_t line; /* from 1 on */
    bool running;
    int tokens;
    float *values; /* (n), mem_*; NULL: none (yet) */
    int n;
    int rc;
    struct error why;
};

struct embedder {
    struct engine *engine;
    struct embedding_settings settings;
    struct batch_input in;
    size_t lines;       /* read */
    struct text *texts; /* n_texts, each with its session */
    int n_texts;
};

bool embed_wanted(const struct options *o)
{
    return o->embed != NULL;
}

static int on_notice(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_NOTICE && ev->text)
        fprintf(stderr, "moetop: %s\n", ev->text);
    return signals_last() != 0;
}

static int on_event(void *ctx, struct event *ev)
{
    struct text *t = ctx;

    if (ev->kind == EVENT_EMBEDDING) {
        t->values = ev->embedding.values;
        t->n = ev->embedding.n;
        event_taken(ev);
    } else if (ev->kind == EVENT_TURN_DONE) {
        t->running = false;
        if (ev->done_turn.reason == STOP_CANCELLED)
            t->rc = error_set(&t->why, ERR_CANCELLED, "interrupted");
    } else if (ev->kind == EVENT_ERROR) {
        t->running = false;
        t->rc = error_set(&t->why, ev->failure.code, "%s", ev->text ? ev->text : "out of memory");
    }
    return signals_last() != 0;
}

/* The text of a line: the line itself, or "text", "input", "prompt" or "content" of an object. *o:
 * a reference that holds it. */
static const char *text_of(const struct batch_input *in, size_t line, size_t *n, json_t **o,
                           struct error *e)
{
    static const char *const keys[] = {"text", "input", "prompt", "content"};
    char name[32];
    const json_t *v = NULL;

    *o = NULL;
    *n = in->n;
    if (!in->n || in->line[0] != '{')
        return in->line;
    snprintf(name, sizeof name, "line %zu", line);
    if (!(*o = json_read(in->line, in->n, name, e)))
        return NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !v; i++)
        v = json_object_get(*o, keys[i]);
    if (!json_is_string(v)) {
        error_set(e, ERR_INPUT, "line %zu has no \"text\"", line);
        return NULL;
    }
    *n = json_string_length(v);
    return json_string_value(v);
}

static int make_ids(const struct embedder *x, struct text *t, const char *text, size_t n)
{
    const struct engine_info *info = engine_info(x->engine);
    int rc = embedding_ids(&x->settings, info, text, n, NULL, &t->turn.prompt.ids,
                           &t->turn.prompt.n, &t->why);

    t->tokens = t->turn.prompt.n;
    if (rc == 0 && t->tokens > info->context)
        rc = error_set(&t->why, ERR_CONTEXT, "the text has %d tokens, the context %d (-c)",
                       t->tokens, info->context);
    return rc;
}

/* Begins the newest line; t->rc tells if it cannot. */
static void begin(struct embedder *x, struct text *t)
{
    json_t *o = NULL;
    const char *text;
    size_t n;

    t->line = ++x->lines;
    t->turn = (struct turn){.embed = x->settings.pooling};
    t->rc = 0;
    if (x->in.too_long) {
        t->rc = error_set(&t->why, ERR_INPUT, "line %zu is too long", t->line);
        return;
    }
    text = text_of(&x->in, t->line, &n, &o, &t->why);
    t->rc = text ? make_ids(x, t, text, n) : t->why.code;
    if (t->rc < 0 && text)
        error_prefix(&t->why, "line %zu", t->line);
    json_decref(o);
    if (t->rc < 0)
        return;
    t->running = true;
    engine_session_turn(t->session, &t->turn, on_event, t, NULL); /* events tell of errors */
}

/* Reads lines until the group is full, the input ends, or reading would wait: whoever writes a line
 * may wait for its embedding. Returns how many, or an error; *more: there may be others. */
static int begin_group(struct embedder *x, bool *more, struct error *e)
{
    int n = 0, rc = 1;

    while (n < x->n_texts && (n == 0 || batch_input_ready(&x->in)) &&
           (rc = batch_input_next(&x->in, e)) == 1) {
        begin(x, &x->texts[n++]);
        if (x->texts[n - 1].rc < 0)
            break; /* it is the last one */
    }
    *more = rc == 1;
    return rc < 0 ? rc : n;
}

static bool is_running(const struct embedder *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x->texts[i].running)
            return true;
    return false;
}

static int print(const struct embedder *x, struct text *t, struct error *e)
{
    if (t->rc == 0 && !t->values)
        t->rc = error_set(&t->why, ERR_MEMORY, "no memory for an embedding");
    if (t->rc < 0) {
        *e = t->why;
        return t->rc;
    }
    embedding_normalize(t->values, t->n, x->settings.normalize);
    printf("{\"index\": %zu, \"tokens\": %d, \"embedding\": [", t->line - 1, t->tokens);
    for (int i = 0; i < t->n; i++)
        printf(i ? ", %.9g" : "%.9g", (double)t->values[i]);
    puts("]}");
    return ferror(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* Computes and prints a group. 1: there may be more. */
static int embed_group(struct embedder *x, struct error *e)
{
    bool more;
    int n = begin_group(x, &more, e), rc = n < 0 ? n : 0;

    while (is_running(x, x->n_texts))
        engine_step(x->engine);
    for (int i = 0; i < x->n_texts; i++) {
        struct text *t = &x->texts[i];

        if (i < n && rc == 0)
            rc = print(x, t, e);
        mem_free(t->values);
        t->values = NULL;
        turn_release(&t->turn);
    }
    if (rc == 0 && fflush(stdout) != 0)
        rc = output_failed(NULL, errno, e);
    return rc < 0 ? rc : more;
}

static int open_sessions(struct embedder *x, int n, struct error *e)
{
    int rc = 0;

    if (!(x->texts = mem_alloc((size_t)n, sizeof *x->texts)))
        return error_set(e, ERR_MEMORY, "out of memory for %d texts at a time", n);
    x->texts[x->n_texts++].session = engine_session(x->engine);
    while (x->n_texts < n && rc == 0 &&
           (rc = engine_session_open(x->engine, &x->texts[x->n_texts].session, e)) == 0)
        x->n_texts++;
    return rc;
}

int embed_run(struct options *o, struct error *e)
{
    struct embedder x = {0};
    int rc = batch_input_open(&x.in, o->embed, e);

    signals_catch();
    if (rc == 0 && (rc = engine_setup_open(o, &x.engine, e)) == 0 &&
        (rc = open_sessions(&x, parallel_sessions(o), e)) == 0) {
        x.settings = embedding_settings(embedding_asked(o), engine_info(x.engine));
        engine_events_set(x.engine, on_notice, NULL);
        while ((rc = embed_group(&x, e)) == 1)
            ;
    }
    engine_close(x.engine);
    mem_free(x.texts);
    batch_input_release(&x.in);
    return rc;
}
