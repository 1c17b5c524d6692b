/* What a conversation requests of the engine thread besides answers: settings, placements and their
 * measurement, calls. UI thread, except do_auto. */
#include "app/chat/internal.h"
#include "app/placement/auto.h"
#include "app/setup/engine_options.h"
#include "app/setup/resolve.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* F2's pace if none is configured: about reading speed */
#define PACE_DEFAULT 40.0

/* A worker that has ended needs no command; failure to send one is reported. */
void conversation_notify(struct conversation *c, struct command k)
{
    struct error e = {0};

    if (c->client && client_send(c->client, &k, &e) == ERR_MEMORY)
        conversation_say(c, SAY_TROUBLE, "%s: the engine goes on as before", e.text);
}

static void sampling_send(struct conversation *c)
{
    struct command k = {.kind = COMMAND_SAMPLING};

    sampling_from_options(c->options, &k.sampling);
    conversation_receipt_changed(c, "a setting was changed while it was written");
    conversation_notify(c, k);
}

static void pace_send(struct conversation *c)
{
    c->paced |= c->pace > 0;
    conversation_notify(c, (struct command){.kind = COMMAND_PACE, .number = c->pace});
}

/* For actions that need a loaded model. 0, or -1 with a notice. */
static int command_send(struct conversation *c, struct command *k)
{
    struct error e = {0};

    if (c->remote && k->kind == COMMAND_PLACE && remote_place(c->remote, k->text) == 0) {
        command_release(k);
        return 0;
    }
    if (c->remote) {
        conversation_say(c, SAY_NOTICE, "N/A: the model runs on %s, which is not told such things",
                         remote_host(c->remote));
        command_release(k);
        return -1;
    }
    if (!conversation_info(c)) {
        conversation_say(c, SAY_NOTICE, "not yet: the model is still loading");
        command_release(k);
        return -1;
    }
    if (client_send(c->client, k, &e) == 0)
        return 0;
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

int conversation_expert(struct conversation *c, int layer, int expert)
{
    struct command k = {.kind = COMMAND_EXPERT, .expert = {layer, expert}};

    assert(layer >= 0 && expert >= 0);
    return command_send(c, &k);
}

int conversation_call(struct conversation *c,
                      int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                      void *ctx, void (*release)(void *ctx))
{
    struct command k = {.kind = COMMAND_CALL, .call = {fn, release, ctx}};
    int rc = command_send(c, &k);

    assert(fn);
    c->calls += rc == 0;
    return rc;
}

void conversation_timeline(struct conversation *c, bool on)
{
    if (c->ready)
        conversation_notify(c, (struct command){.kind = COMMAND_TIMELINE, .number = on});
}

void conversation_pace_toggle(struct conversation *c)
{
    c->pace = c->pace > 0 ? 0 : c->pace_asked > 0 ? c->pace_asked : PACE_DEFAULT;
    pace_send(c);
}

double conversation_pace(const struct conversation *c)
{
    return c->pace;
}

void conversation_apply(struct conversation *c, const struct option *option)
{
    size_t id = (size_t)(option - option_table);

    if (id == OPTION_ID_pace) {
        c->pace = c->options->pace;
        if (c->pace > 0)
            c->pace_asked = c->pace;
        pace_send(c);
    } else if (id == OPTION_ID_audit && c->remote) {
        conversation_say(c, SAY_NOTICE,
                         "N/A: the model runs on %s, which audits its devices as it was told",
                         remote_host(c->remote));
    } else if (id == OPTION_ID_audit) {
        conversation_notify(c,
                            (struct command){.kind = COMMAND_AUDIT, .number = c->options->audit});
    } else if (id != OPTION_ID_place &&
               id != OPTION_ID_place_prompt) { /* a placement was requested before the option was
                                                  set */
        sampling_send(c);
    }
    if (c->hooks.set)
        c->hooks.set(c->hooks.ctx, option);
}

int conversation_place(struct conversation *c, const char *spec)
{
    const struct engine_info *info = conversation_info(c);
    struct command k = {.kind = COMMAND_PLACE};
    struct plan *plan = NULL;
    const char *rest = spec;
    struct error e = {0};
    char name[80];
    int rc;

    k.phase = planner_phase(&rest);
    rc = info ? place_resolve(spec, info, &plan, &e) : 0;

    if (rc < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    snprintf(name, sizeof name, "%s%s", plan && k.phase == PHASE_PROMPT ? "prompt " : "",
             plan ? plan->name : spec);
    if (rc == 1) {
        k.kind = COMMAND_PLAN;
        k.plan = plan;
    } else {
        if (!(k.text = mem_string(spec))) {
            conversation_say(c, SAY_TROUBLE, "out of memory: the placement stays as it is");
            return -1;
        }
    }
    if (k.phase == PHASE_TOKENS) {
        c->auto_asked = k.kind == COMMAND_PLACE && info && strcmp(spec, "auto") == 0;
        c->auto_done = false;
    }
    if ((rc = command_send(c, &k)) < 0)
        return rc;
    c->places_sent++;
    if (c->hooks.placing)
        c->hooks.placing(c->hooks.ctx, name, c->places_sent);
    return 0;
}

int conversation_place_told(struct conversation *c, const char *spec)
{
    if (conversation_place(c, spec) < 0)
        return -1;
    c->place_told = c->places_sent;
    if (!c->hooks.keys) /* the screen shows the pending placement */
        conversation_say(c, SAY_NOTICE, "switching the placement to %s ...", spec);
    return 0;
}

void conversation_answer_placed(struct conversation *c)
{
    struct error e = {0};

    if (c->busy && !c->compacting && c->transcript.n && c->plan[0] &&
        transcript_placed(&c->transcript, c->transcript.n - 1, c->plan, c->answered + 1, &e) < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
}

/* Each placement that a command asked for is reported once, even if a later one is in progress. */
void conversation_placed(struct conversation *c, const struct event *ev)
{
    log_write(LOG_LEVEL_INFO, "placement: %s", ev->text ? ev->text : "");
    snprintf(c->plan, sizeof c->plan, "%s", ev->text ? ev->text : "");
    conversation_answer_placed(c);
    if (ev->wishes > c->places_answered && c->place_told > c->places_answered)
        conversation_say(c, SAY_NOTICE, "the placement is %s now", c->plan);
    c->places_answered = ev->wishes;
}

static int do_auto(void *ctx, struct engine *g, char **text, struct error *e)
{
    (void)ctx;
    if (!place_auto_due(g, "auto"))
        return 0;
    engine_tell(g, "measuring what a GPU is worth with this model: a message or Ctrl-C stops it");
    return place_auto(g, e);
}

/* Once, if auto was requested; never before an answer has been given. */
void conversation_measure_after(struct conversation *c)
{
    if (c->remote || !c->auto_asked || c->auto_done || conversation_busy(c) || c->calls ||
        c->waiting || !c->stats.turns)
        return;
    c->auto_done = true;
    c->measuring = conversation_call(c, do_auto, NULL, NULL) == 0;
}
