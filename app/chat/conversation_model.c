/* Switches the model within a conversation: the old engine is closed before the new one is opened,
 * since two seldom fit into memory; what can be checked before (existence, support, whether it will
 * fit) is checked while the old one still answers. UI thread. */
#include "app/chat/internal.h"
#include "app/common/model_places.h"
#include "app/common/paths.h"
#include "app/setup/fit_remedy.h"
#include "app/setup/prompt.h"
#include "app/setup/recommended.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

static void remark(void *ctx, const char *line)
{
    conversation_say(ctx, SAY_NOTICE, "%s", line);
}

const char *conversation_model_path(const struct conversation *c)
{
    return c->setup ? c->setup->model_path : "";
}

const struct model_files *conversation_models(struct conversation *c, bool anew, struct error *e)
{
    const struct option_list *named = &c->options->models_dir;
    char bundled[PATH_MAX];
    struct error ignored;
    int rc;

    if (c->models.n && !anew)
        return &c->models;
    model_files_release(&c->models);
    rc = model_places_find(&c->models, named->items, named->n, e);
    if (rc == 0 && paths_model(NULL, bundled, sizeof bundled, &ignored) == 0)
        rc = model_files_find(&c->models, bundled, e);
    if (rc == 0 && c->setup)
        rc = model_files_find(&c->models, c->setup->model_path, e);
    return rc < 0 ? NULL : &c->models;
}

/* Memory that closing the current engine will free. */
static uint64_t held(struct conversation *c)
{
    const struct telemetry *t = conversation_telemetry(c);

    return t ? telemetry_held(t) : 0;
}

/* The options with this model (NULL: the bundled one), and the settings to open its engine with. */
static int prepare(struct conversation *c, const char *path, struct engine_setup **out,
                   struct error *e)
{
    struct engine_setup *s = mem_alloc(1, sizeof *s);
    char line[300] = "";
    int rc = s ? recommended_switch(c->options, path, remark, c, e)
               : error_set(e, ERR_MEMORY, "out of memory for another model");

    if (rc == 0 && (rc = engine_setup_init(c->options, s, e)) == 0) {
        if (!c->options->force)
            rc = fit_admit(&s->config, s->page_auto, held(c), line, sizeof line, e);
        if (rc < 0)
            engine_setup_release(s);
    }
    if (rc < 0) {
        mem_free(s);
        return rc;
    }
    if (line[0])
        remark(c, line);
    *out = s;
    return 0;
}

/* Resets all state about the old engine. */
static void engine_forget(struct conversation *c)
{
    c->ready = c->worker_gone = c->measuring = c->auto_done = false;
    c->failure.code = 0;
    c->calls = 0;
    c->plan[0] = 0;
    c->places_sent = c->place_told = c->places_answered = 0;
    conversation_tokens_forget(c);
    c->likely.n = 0;
    stats_restart(&c->stats);
}

/* Starts the worker with `next`. If not even its thread can be started, the conversation ends. */
static void engine_replace(struct conversation *c, struct engine_setup *next)
{
    struct error e = {0};

    if (c->hooks.closing)
        c->hooks.closing(c->hooks.ctx);
    prompter_release(&c->prompter);
    conversation_receipts_settle(c);
    worker_stop(c->worker);
    c->worker = NULL;
    c->client = NULL;
    engine_setup_release(c->setup);
    mem_free(c->setup);
    c->setup = next;
    engine_forget(c);
    c->pace = c->pace_asked = pace_from_options(c->options, true);
    next->config.pace = c->pace;
    if (worker_start(&c->worker, &next->config, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        c->failure = e;
        c->over = true;
        return;
    }
    c->client = worker_client(c->worker);
}

/* No computation is running. */
static int change(struct conversation *c, const char *path)
{
    struct engine_setup *next;
    struct error e = {0}, ignored;
    char *back = c->options->model ? mem_string(c->options->model) : NULL;

    if ((c->options->model && !back) || prepare(c, path, &next, &e) < 0) {
        if (back || !c->options->model)
            recommended_switch(c->options, back, NULL, NULL, &ignored);
        mem_free(back);
        conversation_say(c, SAY_TROUBLE, "%s", e.code ? e.text : "out of memory");
        return -1;
    }
    c->change.on = true;
    c->change.back = back;
    if (!c->hooks.keys) /* the screen shows the progress */
        conversation_say(c, SAY_NOTICE, "opening %s ...", next->model_path);
    engine_replace(c, next);
    return 0;
}

int conversation_model(struct conversation *c, const char *path)
{
    assert(path);
    if (c->remote) {
        conversation_say(c, SAY_NOTICE,
                         "N/A: the model is the server's; -m beside --connect chooses another one");
        return -1;
    }
    if (!c->ready) {
        conversation_say(c, SAY_NOTICE, "not yet: a model is still loading");
        return -1;
    }
    mem_free(c->change.wanted);
    c->change.wanted = NULL;
    if (file_same(path, c->setup->model_path)) {
        conversation_say(c, SAY_NOTICE, "that is the model in use");
        return -1;
    }
    if (!conversation_working(c))
        return change(c, path);
    if (!(c->change.wanted = mem_string(path))) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return -1;
    }
    if (conversation_busy(c))
        conversation_say(c, SAY_NOTICE, "after this answer");
    return 0;
}

/* Reopens the previous model; if that fails too, the conversation ends as if it had no model. */
static void go_back(struct conversation *c)
{
    struct engine_setup *before;
    struct error e = {0};
    char *back = c->change.back;

    c->change.on = false;
    c->change.back = NULL;
    if (!c->hooks.keys) /* the screen shows the event */
        conversation_say(c, SAY_TROUBLE, "%s", c->failure.text);
    if (prepare(c, back, &before, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        c->failure = e;
    } else {
        conversation_say(c, SAY_NOTICE, "going on with the model before, %s", before->model_path);
        engine_replace(c, before);
    }
    mem_free(back);
}

/* A chat without messages gets the model's system message. */
static void answers_now(struct conversation *c)
{
    char name[256], *text = NULL;
    struct error e = {0};

    c->change.on = false;
    mem_free(c->change.back);
    c->change.back = NULL;
    if (transcript_model(&c->transcript, c->setup->model_path, &e) < 0 ||
        (!conversation_goes_on(c) && (prompt_system(c->options, &text, &e) < 0 ||
                                      transcript_system(&c->transcript, text, &e) < 0)))
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    mem_free(text);
    if (conversation_goes_on(c))
        conversation_turn_save(c);
    model_places_name(c->setup->model_path, name, sizeof name);
    conversation_say(c, SAY_NOTICE, "%s answers from now on", name);
}

void conversation_model_settle(struct conversation *c)
{
    if (c->change.on && c->worker_gone)
        go_back(c);
    else if (c->change.on && c->ready)
        answers_now(c);
    if (c->change.wanted && c->ready && !conversation_working(c)) {
        char *path = c->change.wanted;

        c->change.wanted = NULL;
        change(c, path);
        mem_free(path);
    }
}
