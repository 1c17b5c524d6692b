/* See measure.h. The first half of each command (arguments) runs on the UI thread, the second on
 * the engine's; data is passed in one struct that the worker frees. */
#include "app/chat/commands/measure.h"

#include "app/placement/compare.h"
#include "app/setup/resolve.h"
#include "app/placement/profile.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/base/strbuf.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 32
#define REPEATS 2

struct request {
    struct engine *g; /* set on the engine's thread */
    uint64_t begun_ns, told_ns;
    int done, total; /* pieces of work, for the progress line */
    const char *what;
    struct compare compare;
    char *prompt, *path;
    struct message *chat; /* the whole chat: n_chat messages */
    size_t n_chat;
    uint64_t budget;
};

static void release(void *ctx)
{
    struct request *r = ctx;

    compare_release(&r->compare);
    for (size_t i = 0; i < r->n_chat; i++)
        mem_free(r->chat[i].text);
    mem_free(r->chat);
    mem_free(r->prompt);
    mem_free(r->path);
    mem_free(r);
}

/* Text written to a stream, as mem_* memory. */
static char *taken(FILE *f, char **made)
{
    char *text = NULL;

    if (f && fclose(f) == 0)
        text = mem_string(*made);
    free(*made);
    return text;
}

static int out_of_memory(struct conversation *c)
{
    conversation_say(c, SAY_TROUBLE, "out of memory");
    return -1;
}

/* After each piece of work: shows progress and the remaining time. Cancelling is handled by the
 * engine. */
static int progress(void *ctx)
{
    struct request *r = ctx;
    uint64_t now = clock_now();
    double left;
    char line[160];

    r->done++;
    if (now - r->told_ns < CLOCK_SECOND / 4 || r->done > r->total)
        return 0;
    r->told_ns = now;
    left = clock_seconds(now - r->begun_ns) / r->done * (r->total - r->done);
    snprintf(line, sizeof line, "%s: %.0f %%, about %.0f s left; Esc stops it", r->what,
             100.0 * r->done / r->total, ceil(left));
    engine_progress(r->g, line);
    return 0;
}

static void progress_begin(struct request *r, struct engine *g, const char *what, int total)
{
    r->g = g;
    r->what = what;
    r->total = total;
    r->done = 0;
    r->begun_ns = r->told_ns = clock_now();
}

/* Restores the session: a measurement changes neither its tokens nor its counts. */
struct held {
    int *ids, n;
};

static int hold(struct engine *g, struct held *h, struct error *e)
{
    const int *ids;

    h->n = engine_session_tokens(g, &ids);
    h->ids = mem_alloc((size_t)(h->n ? h->n : 1), sizeof *h->ids);
    if (!h->ids)
        return error_set(e, ERR_MEMORY, "out of memory");
    memcpy(h->ids, ids, (size_t)h->n * sizeof *ids);
    engine_counting_set(g, false);
    return 0;
}

static void let_go(struct engine *g, struct held *h)
{
    if (!h->ids)
        return;
    engine_session_uncancel(engine_session(g));
    engine_session_clear(g);
    if (h->n)
        engine_eval(g, h->ids, h->n, NULL, false, NULL);
    engine_counting_set(g, true);
    mem_free(h->ids);
}

/* ---- /place save ---- */

static int do_save(void *ctx, struct engine *g, char **text, struct error *e)
{
    char path[4096], line[4200];
    int rc = place_save(engine_plan(g), ctx, engine_info(g), path, sizeof path, e);

    if (rc == 0) {
        snprintf(line, sizeof line, "placement %s saved in %s", engine_plan(g)->name, path);
        *text = mem_string(line);
    }
    return rc;
}

int chat_place_save(struct conversation *c, const char *name)
{
    char *copy = mem_string(name);

    return copy ? conversation_call(c, do_save, copy, mem_free) : out_of_memory(c);
}

/* ---- /compare ---- */

static int do_compare(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct request *r = ctx;
    struct compare *c = &r->compare;
    const struct engine_info *info = engine_info(g);
    struct message m = {.role = ROLE_USER, .text = r->prompt};
    struct held held = {0};
    int *ids = NULL, n = 0, rc;
    char *made = NULL, fastest[1000];
    size_t size;
    FILE *f;

    rc = info->chat ? chat_template_encode(info->chat, &m, 1, NULL, true, NULL, &ids, &n, NULL, e)
         : info->tokenizer
             ? tokenizer_encode(info->tokenizer, r->prompt, strlen(r->prompt), false, &ids, &n, e)
             : error_set(e, ERR_MODEL, "/compare needs a model with a tokenizer");
    if (rc == 0 && (rc = hold(g, &held, e)) == 0)
        progress_begin(r, g, "comparing",
                       REPEATS * (int)c->n * (2 + TOKENS / COMPARE_BLOCK) + TOKENS / COMPARE_BLOCK);
    if (rc == 0)
        rc = compare_prompt(c, g, ids, n, TOKENS, REPEATS, progress, r, e);
    let_go(g, &held);
    mem_free(ids);
    if (rc < 0)
        return rc;
    f = open_memstream(&made, &size);
    for (size_t i = 0; i < c->n && f; i++) {
        struct series_figures decode, prefill;
        char verdict[120];
        struct compare_plan *p = &c->plans[i];

        series_summarise(&p->decode, &decode);
        series_summarise(&p->prefill, &prefill);
        compare_verdict(c, i, verdict, sizeof verdict);
        fprintf(f, "%-16s %8.1f ± %.1f tokens/s, prompt %.0f; %s; %s\n", p->name, decode.median,
                decode.sd, prefill.median, verdict,
                p->defer         ? "lossy"
                : p->same_bits   ? "same bits"
                : p->same_tokens ? "same text"
                                 : "THE TEXT DIFFERS");
    }
    if (f) {
        compare_fastest(c, fastest, sizeof fastest);
        fprintf(f, "%s\n%d tokens, in blocks of %d by turns, %d times", fastest, TOKENS, c->block,
                c->repeats);
    }
    *text = taken(f, &made);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

int chat_compare(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    struct request *r = mem_alloc(1, sizeof *r);
    char *list = mem_string(*arguments ? arguments : "cpu gpu"), *end;
    struct error e = {0};
    int rc;

    if (!r || !list) {
        mem_free(r);
        mem_free(list);
        return out_of_memory(c);
    }
    /* plans are separated by blanks or commas */
    end = list + strlen(list);
    while (end > list && strchr(" \t,", end[-1]))
        *--end = 0;
    for (char *from = list, *to = list;; from++) {
        bool gap = *from == ' ' || *from == '\t' || *from == ',';

        if (!gap || (to > list && to[-1] != ','))
            *to++ = gap ? ',' : *from;
        if (!*from)
            break;
    }
    rc = compare_parse(&r->compare, list, &e);
    mem_free(list);
    for (size_t i = t->n; i > 0 && !r->prompt && rc == 0; i--)
        if (t->entries[i - 1].role == ROLE_USER)
            r->prompt = mem_string(t->entries[i - 1].text);
    if (rc < 0 || !r->prompt) {
        conversation_say(c, SAY_TROUBLE, "%s",
                         rc < 0 ? e.text
                                : "/compare runs your last message again: say something first");
        release(r);
        return -1;
    }
    conversation_say(c, SAY_NOTICE, "comparing %zu placements on your last message ...",
                     r->compare.n);
    return conversation_call(c, do_compare, r, release);
}

/* ---- /profile and /suggest ---- */

/* The chat as the model sees it. Not from the session, which may hold fewer tokens by now. */
static int chat_tokens(const struct engine *g, const struct request *r, int **ids, int *n,
                       struct error *e)
{
    *ids = NULL;
    *n = 0;
    if (!r->n_chat)
        return error_set(e, ERR_INPUT, "there is nothing to count yet: say something first");
    return profile_chat_tokens(g, r->chat, r->n_chat, ids, n, e);
}

/* A request with a copy of the chat; NULL: no memory. */
static struct request *request_new(struct conversation *c)
{
    const struct transcript *t = conversation_transcript(c);
    struct request *r = mem_alloc(1, sizeof *r);

    if (r && !(r->chat = mem_alloc(t->n ? t->n : 1, sizeof *r->chat))) {
        release(r);
        return NULL;
    }
    for (size_t i = 0; r && i < t->n; i++) {
        struct message *m = &r->chat[r->n_chat];

        *m = (struct message){.role = t->entries[i].role,
                              .text = mem_string(t->entries[i].text ? t->entries[i].text : "")};
        if (!m->text) {
            release(r);
            return NULL;
        }
        r->n_chat++;
    }
    return r;
}

static int count(struct request *r, struct engine *g, const int *ids, int n, struct usage *u,
                 struct error *e)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    int rc = usage_model_init(u, hp, e);

    return rc < 0 ? rc : profile_text(g, ids, n, u, progress, r, e);
}

static int do_profile(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct request *r = ctx;
    struct profile_facts facts = {0};
    struct held held = {0};
    struct usage u = {0};
    char *made = NULL, *json = NULL;
    int *ids = NULL, n = 0, rc = chat_tokens(g, r, &ids, &n, e);
    size_t size;
    FILE *f;

    progress_begin(r, g, "counting", (n + PROFILE_CHUNK - 1) / PROFILE_CHUNK + 1);
    if (rc == 0 && (rc = hold(g, &held, e)) == 0)
        rc = count(r, g, ids, n, &u, e);
    if (rc == 0 && r->path) {
        profile_describe(g, "a chat", PROFILE_CHAT, &facts);
        rc = profile_times(g, ids, n, &facts, e);
        if (rc == 0)
            rc = profile_json(&u, &facts, &json, &size, e);
        if (rc == 0)
            rc = file_replace(r->path, json, size, e);
    }
    let_go(g, &held);
    if (rc == 0) {
        f = open_memstream(&made, &size);
        if (f) {
            profile_print_narrow(f, &u);
            if (r->path)
                fprintf(f, "saved: %s (use it with --profile or --suggest)\n", r->path);
        }
        *text = taken(f, &made);
    }
    usage_release(&u);
    profile_facts_release(&facts);
    mem_free(json);
    mem_free(ids);
    return rc;
}

int chat_profile(struct conversation *c, const char *arguments)
{
    struct request *r = request_new(c);

    if (!r)
        return out_of_memory(c);
    if (*arguments && !(r->path = mem_string(arguments))) {
        release(r);
        return out_of_memory(c);
    }
    return conversation_call(c, do_profile, r, release);
}

static int do_suggest(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct model *m = engine_info(g)->model;
    struct request *r = ctx;
    struct usage first = {0}, second = {0};
    struct held held = {0};
    struct suggestion s = {0};
    char *made = NULL, bytes[16], path[4096] = "";
    int *ids = NULL, n = 0, rc = chat_tokens(g, r, &ids, &n, e);
    uint64_t *sizes = NULL;
    size_t size;
    FILE *f;

    if (rc == 0)
        rc = suggestion_sizes(m, &sizes, e);
    progress_begin(r, g, "counting", (n + PROFILE_CHUNK - 1) / PROFILE_CHUNK + 1);
    if (rc == 0 && (rc = hold(g, &held, e)) == 0)
        rc = count(r, g, ids, n / 2, &first, e);
    if (rc == 0)
        rc = count(r, g, ids + n / 2, n - n / 2, &second, e);
    let_go(g, &held);
    if (rc == 0)
        rc = suggestion_make(&s, &first, &second, sizes, r->budget, e);
    if (rc == 0)
        rc = place_save(s.plan, "suggested", engine_info(g), path, sizeof path, e);
    if (rc == 0) {
        f = open_memstream(&made, &size);
        if (f) {
            fprintf(f,
                    "%d of %d experts, %s: %.1f %% of the calls of this chat's second half meet "
                    "them (first half %.1f %%, any others %.1f %%)\n%s\n",
                    s.experts, s.all_experts, size_format(s.bytes, bytes, sizeof bytes),
                    100 * s.hit_held_out, 100 * s.hit_trained, 100 * s.hit_uniform, s.verdict);
            fprintf(f, "/place suggested puts it in force (%s)\n", path);
        }
        *text = taken(f, &made);
    }
    suggestion_release(&s);
    usage_release(&first);
    usage_release(&second);
    mem_free(sizes);
    mem_free(ids);
    return rc;
}

int chat_suggest(struct conversation *c, const char *arguments)
{
    struct request *r = request_new(c);

    if (!r)
        return out_of_memory(c);
    if (size_parse(arguments, &r->budget) < 0 || !r->budget) {
        conversation_say(c, SAY_TROUBLE,
                         "/suggest SIZE: how much the device may hold, for example /suggest 600M");
        release(r);
        return -1;
    }
    return conversation_call(c, do_suggest, r, release);
}
