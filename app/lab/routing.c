/* See routing.h. */
#include "app/lab/routing.h"

#include "app/lab/edit_file.h"
#include "app/lab/record.h"
#include "app/lab/replay.h"
#include "engine/run/engine.h"

#include <string.h>

/* One a run: main() opens and closes it, the engine's thread uses it in between. */
static struct {
    struct recorder *recorder;
    struct routing_replay *replay;
    struct routing_hooks hooks;
    struct edit_lines edits;
} lab;

static int begin(void *ctx, const struct engine_info *info, struct error *e)
{
    int rc = lab.recorder ? recorder_model(lab.recorder, info, e) : 0;

    return rc == 0 && lab.replay ? routing_replay_model(lab.replay, info, e) : rc;
}

static int rows(void *ctx, const struct routing *r, struct error *e)
{
    return recorder_rows(lab.recorder, r, e);
}

static int impose(void *ctx, const struct session *s, int pos, const int *ids, int n,
                  uint16_t *experts, float *weights, size_t stride, struct error *e)
{
    return routing_replay_rows(lab.replay, s, pos, ids, n, experts, weights, stride, e);
}

/* Modes that compute the user's text with one model, and no more than once. */
static bool computes(const char *mode)
{
    static const char *const those[] = {
        "chat",       "one-shot",         "batch",         "serve",  "embed",
        "perplexity", "perplexity-lines", "kl-divergence", "choices"};

    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (!strcmp(mode, those[i]))
            return true;
    return false;
}

static int edits_begin(const struct options *o, const char *mode, struct error *e)
{
    if (o->routing_replay)
        return error_set(e, ERR_USAGE,
                         "--expert-edit: not with --routing-replay, whose trace says "
                         "who computes");
    if (o->connect)
        return error_set(e, ERR_USAGE,
                         "--expert-edit is of a model on this machine: leave "
                         "--connect away");
    if (!computes(mode))
        return error_set(e, ERR_USAGE,
                         "--expert-edit: not with --%s; experts are edited in the chat, -p, "
                         "--batch, --serve, --embed, --perplexity, --perplexity-lines, "
                         "--kl-divergence and --choices",
                         mode);
    return edit_file_read(&lab.edits, o->expert_edit, e);
}

int routing_begin(const struct options *o, const char *mode, struct error *e)
{
    int rc;

    if ((o->routing_scores || o->routing_logprobs) && !o->routing_trace)
        return error_set(e, ERR_USAGE, "--routing-%s belongs to --routing-trace FILE",
                         o->routing_scores ? "scores" : "logprobs");
    if (o->expert_edit && (rc = edits_begin(o, mode, e)) < 0)
        return rc;
    if (!o->routing_trace && !o->routing_replay)
        return 0;
    if (o->connect)
        return error_set(e, ERR_USAGE,
                         "--routing-trace and --routing-replay are of a model on this machine: "
                         "leave --connect away");
    if (!computes(mode))
        return error_set(e, ERR_USAGE,
                         "--%s: not with --%s; routing is that of the chat, -p, --batch, --serve, "
                         "--embed, --perplexity, --perplexity-lines, --kl-divergence and --choices",
                         o->routing_trace ? "routing-trace" : "routing-replay", mode);
    if (o->routing_trace && (rc = recorder_open(&lab.recorder, o->routing_trace, o->routing_scores,
                                                o->routing_logprobs, e)) < 0)
        return rc;
    if (o->routing_replay && (rc = routing_replay_open(&lab.replay, o->routing_replay, e)) < 0)
        return rc;
    lab.hooks = (struct routing_hooks){.begin = begin,
                                       .rows = lab.recorder ? rows : NULL,
                                       .impose = lab.replay ? impose : NULL,
                                       .scores = o->routing_trace && o->routing_scores,
                                       .logprobs = o->routing_trace && o->routing_logprobs};
    return 0;
}

int routing_record(struct engine *g, const char *path, bool scores, bool logprobs,
                   uint64_t *recorded, struct error *e)
{
    int rc;

    *recorded = 0;
    if (!path && !lab.recorder)
        return error_set(e, ERR_USAGE,
                         "/routing-trace: nothing is recorded; /routing-trace FILE begins");
    if (path && lab.recorder)
        return error_set(e, ERR_USAGE,
                         "/routing-trace: %s is being recorded; /routing-trace off "
                         "ends it",
                         recorder_path(lab.recorder));
    if (path) {
        if ((rc = recorder_open(&lab.recorder, path, scores, logprobs, e)) < 0)
            return rc;
        lab.hooks.begin = begin;
        lab.hooks.rows = rows;
        lab.hooks.scores = scores;
        lab.hooks.logprobs = logprobs;
        if ((rc = engine_routing_hooks_set(g, &lab.hooks, e)) == 0)
            return 0;
    } else {
        struct error ignored;

        *recorded = recorder_tokens(lab.recorder);
        lab.hooks.rows = NULL;
        lab.hooks.scores = lab.hooks.logprobs = false;
        rc = 0;
        (void)engine_routing_hooks_set(g, lab.replay ? &lab.hooks : NULL, &ignored);
    }
    {
        struct error ignored;
        int closed = recorder_close(lab.recorder, rc < 0 ? &ignored : e);

        lab.recorder = NULL;
        return rc < 0 ? rc : closed;
    }
}

const char *routing_recorded_path(void)
{
    return lab.recorder ? recorder_path(lab.recorder) : NULL;
}

const struct routing_hooks *routing_hooks_get(void)
{
    return lab.recorder || lab.replay ? &lab.hooks : NULL;
}

const char *const *routing_edits(int *n)
{
    *n = (int)lab.edits.n;
    return (const char *const *)lab.edits.lines;
}

int routing_edits_of(const struct options *o, struct error *e)
{
    edit_lines_release(&lab.edits);
    lab.edits = (struct edit_lines){0};
    return o->expert_edit ? edit_file_read(&lab.edits, o->expert_edit, e) : 0;
}

int routing_end(struct error *e)
{
    int rc = recorder_close(lab.recorder, e);

    routing_replay_close(lab.replay);
    edit_lines_release(&lab.edits);
    memset(&lab, 0, sizeof lab);
    return rc;
}
