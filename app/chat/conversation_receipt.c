/* The receipts of a chat's answers (app/setup/receipt_chat.h): what determines an answer is
 * recorded when it begins, its receipt is added to the transcript when it ends. The model's bytes
 * are hashed by a thread of idle priority; receipts written before it is done have no hash. UI
 * thread, except that one. */
#include "app/chat/internal.h"
#include "app/common/paths.h"
#include "app/setup/receipt_chat.h"
#include "engine/base/mem.h"
#include "engine/file/weights_digest.h"
#include "engine/model/model.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

#define SMALL ((uint64_t)256 << 20) /* weights that are hashed quickly */

/* ---- the model's hash ---- */

static bool is_unwanted(void *ctx)
{
    return atomic_load(&((struct chat_receipts *)ctx)->unwanted);
}

static void *hash(void *ctx)
{
    struct chat_receipts *r = ctx;
    const struct stop stop = {is_unwanted, r};
    const struct sched_param none = {0};
    struct error ignored;

    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    if (weights_digest(r->file, r->folder, NULL, NULL, &stop, r->model, &ignored) < 0)
        r->model[0] = 0;
    atomic_store(&r->made, true);
    return NULL;
}

/* Adds the hash to the receipts that wait for it. */
static void hash_take(struct chat_receipts *r)
{
    if (r->running && atomic_load(&r->made)) {
        pthread_join(r->thread, NULL);
        r->running = false;
    }
    if (r->running || !r->model[0])
        return;
    for (size_t i = 0; i < json_array_size(r->unhashed); i++)
        json_object_set_new(json_array_get(r->unhashed, i), "model_sha256", json_string(r->model));
    json_array_clear(r->unhashed);
}

/* The disk is needed to read experts that are not in memory. */
static void hash_begin(struct conversation *c, const struct engine_info *info)
{
    struct chat_receipts *r = &c->receipts;

    if (r->hashed || info->model->cache)
        return;
    r->hashed = true;
    r->small = info->model->packed_bytes + info->model->mapped_bytes < SMALL;
    r->file = info->model->file;
    r->folder = paths_cache(c->options->cache_dir);
    atomic_store(&r->made, false);
    atomic_store(&r->unwanted, false);
    r->running = pthread_create(&r->thread, NULL, hash, r) == 0;
}

void conversation_receipts_settle(struct conversation *c)
{
    struct chat_receipts *r = &c->receipts;
    const struct sched_param none = {0};

    if (r->running && !r->small)
        atomic_store(&r->unwanted, true);
    if (r->running) {
        /* the caller waits now, and at idle priority a busy machine might never run it */
        pthread_setschedparam(r->thread, SCHED_OTHER, &none);
        pthread_join(r->thread, NULL);
    }
    r->running = false;
    hash_take(r);
    json_array_clear(r->unhashed);
    r->hashed = false;
    r->model[0] = 0;
}

/* ---- an answer ---- */

static void forget(struct chat_receipts *r)
{
    json_decref(r->settings);
    mem_free(r->prompt);
    r->settings = NULL;
    r->prompt = NULL;
    r->n_prompt = 0;
    r->none = NULL;
    receipt_text_clear(&r->said);
}

/* The prompt holds more than the messages' texts: the list of tools, or calls and results. */
static bool has_tools(const struct conversation *c)
{
    for (size_t i = 0; i < c->transcript.n; i++)
        if (c->transcript.entries[i].tools)
            return true;
    return c->tools.mcp != NULL;
}

void conversation_receipt_begin(struct conversation *c, const struct turn *turn, bool go_on)
{
    struct chat_receipts *r = &c->receipts;
    const struct engine_info *info = conversation_info(c);

    forget(r);
    if (!info)
        return;
    r->settings = receipt_settings_now(c->options, info, turn->sampling.seed);
    if (has_tools(c))
        r->none = "the model was given tools, whose servers may answer otherwise (--mcp)";
    r->begun = go_on ? strlen(c->transcript.entries[c->transcript.n - 1].text) : 0;
}

void conversation_receipt_prompt(struct conversation *c, const struct prompt *prompt)
{
    struct chat_receipts *r = &c->receipts;

    if (r->settings && (r->prompt = mem_alloc((size_t)prompt->n + 1, sizeof *r->prompt))) {
        memcpy(r->prompt, prompt->ids, (size_t)prompt->n * sizeof *r->prompt);
        r->n_prompt = prompt->n;
    }
}

void conversation_receipt_changed(struct conversation *c, const char *why)
{
    if (c->busy && !c->compacting)
        c->receipts.none = why;
}

/* Whether adapters have other strengths than those they were opened with. */
static bool adapters_changed(struct conversation *c, const struct engine_info *info)
{
    const struct telemetry *t = conversation_telemetry(c);

    for (int i = 0; t && i < adapters_count(info->adapters); i++)
        if (t->strengths[i] != adapters_at(info->adapters, i)->strength)
            return true;
    return false;
}

static bool edits_changed(struct conversation *c)
{
    const struct telemetry *t = conversation_telemetry(c);

    return t && t->edits_others;
}

static const char *none_of(struct conversation *c, const struct engine_info *info,
                           const struct turn_done_event *done)
{
    const struct chat_receipts *r = &c->receipts;

    if (r->none)
        return r->none;
    if (done->altered)
        return "a lossy setting was changed in the chat (/experts-used, /kv)";
    if (edits_changed(c))
        return "experts were edited in the chat (/expert)";
    return adapters_changed(c, info) ? "the adapters' strengths were changed in the chat" : NULL;
}

static int make(struct conversation *c, const struct engine_info *info,
                const struct turn_done_event *done, json_t **out, struct error *e)
{
    struct chat_receipts *r = &c->receipts;
    char plan[TELEMETRY_PLAN_NAMES];
    const struct receipt_of of = {.info = info,
                                  .plan = telemetry_plan_names(conversation_telemetry(c), plan,
                                                               sizeof plan),
                                  .settings = r->settings,
                                  .prompt = r->prompt,
                                  .n_prompt = r->n_prompt,
                                  .sessions = 1,
                                  .answer = &r->said};
    struct receipt_ids before = {0};
    int rc = receipt_make(&of, out, e);

    if (rc == 0 &&
        (rc = receipt_chat_before(c->transcript.entries, c->transcript.n, &before, e)) < 0)
        rc = 0; /* from a damaged file: the whole prompt is written */
    rc = rc < 0 ? rc : receipt_chat_pack(*out, &before, e);
    receipt_ids_release(&before);
    if (rc == 0 && r->begun)
        json_object_set_new(*out, "begun", json_integer((json_int_t)r->begun));
    if (rc == 0 && done->reason == STOP_CANCELLED)
        json_object_set_new(*out, "stop", json_string(stop_reason_word(done->reason)));
    return rc;
}

/* If it cannot be reproduced, records why. */
static json_t *make_none(const struct conversation *c, const char *why)
{
    json_t *o = json_pack("{s:i, s:s}", "moetop_receipt", 1, "none", why);

    if (c->receipts.begun)
        json_object_set_new(o, "begun", json_integer((json_int_t)c->receipts.begun));
    return o;
}

void conversation_receipt_end(struct conversation *c, const struct turn_done_event *done)
{
    struct chat_receipts *r = &c->receipts;
    const struct engine_info *info = conversation_info(c);
    const char *none = info ? none_of(c, info, done) : NULL;
    struct error e = {0};
    json_t *receipt = NULL;
    int rc = 0;

    if (!info || !r->prompt || !r->said.n)
        return;
    if (none)
        receipt = make_none(c, none);
    else
        rc = make(c, info, done, &receipt, &e);
    if (rc == 0)
        rc = transcript_receipt(&c->transcript, c->transcript.n - 1, json_incref(receipt), &e);
    if (rc == 0 && !none) {
        if (!r->unhashed)
            r->unhashed = json_array();
        json_array_append(r->unhashed, receipt);
        hash_begin(c, info);
    }
    json_decref(receipt);
    if (rc < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    hash_take(r);
    forget(r);
}

void conversation_receipts_release(struct conversation *c)
{
    assert(!c->receipts.running);
    forget(&c->receipts);
    receipt_text_release(&c->receipts.said);
    json_decref(c->receipts.unhashed);
}
