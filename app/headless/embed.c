/* See embed.h. One text at a time: its rows fill passes of their own. */
#include "app/headless/embed.h"

#include "app/common/signals.h"
#include "app/headless/batch_input.h"
#include "app/setup/embedding.h"
#include "app/setup/engine_options.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct embedder {
    struct engine *engine;
    struct embedding_settings settings;
    float *values; /* of the newest text, mem_*; NULL: none */
    int n;
};

bool embed_wanted(const struct options *o)
{
    return o->embed != NULL;
}

static int on_event(void *ctx, struct event *ev)
{
    struct embedder *x = ctx;

    if (ev->kind == EVENT_EMBEDDING) {
        mem_free(x->values);
        x->values = ev->embedding.values;
        x->n = ev->embedding.n;
        ev->embedding.values = NULL;
    }
    if (ev->kind == EVENT_NOTICE && ev->text)
        fprintf(stderr, "moetop: %s\n", ev->text);
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

static int compute(struct embedder *x, const char *text, size_t n, int *tokens, struct error *e)
{
    const struct engine_info *info = engine_info(x->engine);
    struct turn t = {.embed = x->settings.pooling};
    struct turn_done_event done;
    int rc = embedding_ids(&x->settings, info, text, n, NULL, &t.prompt.ids, &t.prompt.n, e);

    if (rc == 0 && t.prompt.n > info->context)
        rc = error_set(e, ERR_CONTEXT, "the text has %d tokens, the context %d (-c)", t.prompt.n,
                       info->context);
    if (rc == 0)
        rc = engine_turn(x->engine, &t, on_event, x, &done, e);
    if (rc == 0 && (signals_last() || done.reason == STOP_CANCELLED))
        rc = error_set(e, ERR_CANCELLED, "interrupted");
    if (rc == 0 && !x->values)
        rc = error_set(e, ERR_MEMORY, "no memory for an embedding");
    *tokens = t.prompt.n;
    turn_release(&t);
    return rc;
}

static int print(struct embedder *x, size_t index, int tokens, struct error *e)
{
    embedding_normalize(x->values, x->n, x->settings.normalize);
    printf("{\"index\": %zu, \"tokens\": %d, \"embedding\": [", index, tokens);
    for (int i = 0; i < x->n; i++)
        printf(i ? ", %.9g" : "%.9g", (double)x->values[i]);
    puts("]}");
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : output_failed(NULL, errno, e);
}

static int embed_lines(struct embedder *x, struct batch_input *in, struct error *e)
{
    int rc;

    for (size_t i = 0; (rc = batch_input_next(in, e)) == 1; i++) {
        size_t n;
        json_t *o;
        const char *text = in->too_long ? NULL : text_of(in, i + 1, &n, &o, e);
        int tokens = 0;

        if (in->too_long)
            return error_set(e, ERR_INPUT, "line %zu is too long", i + 1);
        rc = text ? compute(x, text, n, &tokens, e) : e->code;
        json_decref(o);
        if (rc < 0 && rc != ERR_CANCELLED && text)
            error_prefix(e, "line %zu", i + 1);
        if (rc < 0 || (rc = print(x, i, tokens, e)) < 0)
            return rc;
    }
    return rc;
}

int embed_run(struct options *o, struct error *e)
{
    struct batch_input in = {0};
    struct embedder x = {0};
    int rc = batch_input_open(&in, o->embed, e);

    signals_catch();
    if (rc == 0 && (rc = engine_setup_open(o, &x.engine, e)) == 0) {
        x.settings = embedding_settings(embedding_asked(o), engine_info(x.engine));
        rc = embed_lines(&x, &in, e);
    }
    engine_close(x.engine);
    mem_free(x.values);
    batch_input_release(&in);
    return rc;
}
