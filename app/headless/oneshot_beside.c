/* See oneshot_beside.h. */
#include "app/headless/oneshot_beside.h"

#include "app/common/paths.h"
#include "app/common/safe_text.h"
#include "app/common/signals.h"
#include "app/lab/second.h"
#include "app/setup/engine_options.h"
#include "engine/run/prompt.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int on_event(void *ctx, struct event *ev)
{
    said_note(ctx, ev);
    if (ev->kind == EVENT_NOTICE && ev->text)
        fprintf(stderr, "moetop: --beside: %s\n", ev->text);
    return signals_last() != 0;
}

static int answer(const struct options *o, struct engine *g, const struct dialogue *d,
                  uint64_t seed, struct said *s, struct error *e)
{
    struct turn t = {.max_tokens = o->n_predict,
                     .ignore_eos = o->ignore_eos,
                     .stops = o->stop.items,
                     .n_stops = o->stop.n,
                     .probabilities = true,
                     .logprobs = true,
                     .top_logprobs = SAID_LIKELY};
    int rc = grammar_from_options(o, &t.grammar, e);

    if (rc < 0)
        return rc;
    sampling_from_options(o, &t.sampling);
    t.sampling.seed = seed;
    rc = prompt_turn(g, NULL, d, &t, on_event, s, &s->end, e);
    grammar_free(t.grammar);
    if (rc == 0 && signals_last())
        rc = error_set(e, ERR_CANCELLED, "interrupted");
    return rc < 0 ? rc : said_experts(s, engine_telemetry(g), e);
}

static int print(const struct said *first, const struct engine_info *of_first,
                 const struct said *second, const struct engine_info *of_second, json_t **json,
                 struct error *e)
{
    const bool tty = isatty(STDERR_FILENO);
    struct utf8_marks marks = {0};
    struct strbuf out = {0};

    said_print(first, of_first, second, of_second, &out);
    if (out.failed) {
        strbuf_release(&out);
        return error_set(e, ERR_MEMORY, "out of memory");
    }
    fprintf(stderr, "\n2 %s:\n", second->name);
    safe_text_put(stderr, tty, &marks, strbuf_text(&second->text), second->text.len);
    fputs("\n\n", stderr);
    safe_text_put(stderr, tty, &marks, out.data, out.len);
    strbuf_release(&out);
    if (json && !(*json = said_json(first, of_first, second, of_second)))
        return error_set(e, ERR_MEMORY, "out of memory");
    return 0;
}

int oneshot_beside_check(const struct options *o, struct error *e)
{
    struct options second_of;
    struct engine_setup setup;
    int rc = second_options(&second_of, o, e);

    if (rc == 0 && o->mcp)
        rc = error_set(e, ERR_USAGE,
                       "--beside compares answers, not talks with tools: leave --mcp out");
    if (rc == 0 && (rc = engine_setup_init(&second_of, &setup, e)) == 0)
        engine_setup_release(&setup);
    options_release(&second_of);
    return rc;
}

int oneshot_beside(const struct options *o, const struct dialogue *d, uint64_t seed,
                   const struct said *first, const struct engine_info *info, json_t **json,
                   struct error *e)
{
    struct options second_of;
    struct engine *g = NULL;
    struct said second = {0};
    char path[PATH_MAX];
    int rc = second_options(&second_of, o, e);

    if (rc == 0)
        rc = engine_setup_open(&second_of, &g, e);
    if (rc == 0)
        rc = paths_model(second_of.model, path, sizeof path, e);
    if (rc == 0) {
        second_name(path, &o->beside_set, second.name, sizeof second.name);
        rc = answer(&second_of, g, d, seed, &second, e);
    }
    if (rc == 0)
        rc = print(first, info, &second, engine_info(g), json, e);
    said_release(&second);
    engine_close(g);
    options_release(&second_of);
    return rc;
}
