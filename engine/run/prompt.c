/* From a turn to token ids: template, the answers as they were generated, and the overflow policy.
 * Engine thread, before a turn's prefill. The number of renderings does not grow with the
 * conversation: one of all messages, one of what stays, and few corrections. Overflow: when the
 * conversation leaves less than a quarter of the context (or max_tokens, where that is less) for
 * the answer, its oldest turns are left out, the system message stays, and a notice says so. Once
 * turns are left out, more go than are needed (down to half of the context), so that the next turns
 * find their prefix in the cache again. */
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

struct ids {
    int *at, n, room;
};

static int ids_append(struct ids *v, const int *from, int n, struct error *e)
{
    if (v->n + n > v->room) {
        int room = 2 * (v->n + n) + 64;
        int *more = mem_resize(v->at, (size_t)room, sizeof *more);

        if (!more)
            return error_set(e, ERR_MEMORY, "no memory for a prompt of %d tokens", v->n + n);
        v->at = more;
        v->room = room;
    }
    if (n)
        memcpy(v->at + v->n, from, (size_t)n * sizeof *from);
    v->n += n;
    return 0;
}

/* How many session tokens from `at` on spell exactly this text; 0: they do not. What was generated
 * and what the tokenizer makes of the same text may differ; keeping the generated tokens keeps
 * their KV rows. */
static int spelled(const struct session *session, int at, const char *text)
{
    size_t len = strlen(text), done = 0;
    struct detokenizer d;
    char piece[1024];

    detokenizer_init(&d, session->engine->tokenizer, true);
    for (int i = at; i < session->n_tokens + (session->token_waits ? 1 : 0) && len; i++) {
        size_t n = detokenizer_push(&d, session->tokens[i], piece, sizeof piece);

        if (n > len - done || memcmp(text + done, piece, n) != 0)
            return 0;
        done += n;
        if (done == len)
            return i + 1 - at;
    }
    return 0;
}

static int find(const int *in, int n, const int *what, int m)
{
    for (int i = 0; m > 0 && i + m <= n; i++)
        if (memcmp(in + i, what, (size_t)m * sizeof *what) == 0)
            return i;
    return -1;
}

static bool follows_session(const struct session *session, const struct ids *v)
{
    return v->n <= session->n_tokens &&
           memcmp(v->at, session->tokens, (size_t)v->n * sizeof *v->at) == 0;
}

static bool cancelled(void *ctx)
{
    return engine_cancelled(ctx);
}

static int encode_text(struct engine *g, const char *text, bool parse_special, int **ids, int *n,
                       struct error *e)
{
    return tokenizer_encode_masked(g->tokenizer, text, strlen(text), parse_special, NULL,
                                   &(struct stop){cancelled, g}, ids, n, NULL, e);
}

/* One message's ids; an assistant's content that the session still holds is taken from there. */
static int append_message(struct session *session, struct ids *out, const struct message *m,
                          const int *ids, int n, struct error *e)
{
    int *content = NULL, n_content = 0, at, kept, rc;

    if (m->role != ROLE_ASSISTANT || !m->text[0] || out->n >= session->n_tokens ||
        !follows_session(session, out))
        return ids_append(out, ids, n, e);
    if ((rc = encode_text(session->engine, m->text, false, &content, &n_content, e)) < 0)
        return rc;
    at = find(ids, n, content, n_content);
    mem_free(content);
    if (at < 0)
        return ids_append(out, ids, n, e);
    if ((rc = ids_append(out, ids, at, e)) < 0)
        return rc;
    kept = follows_session(session, out) ? spelled(session, out->n, m->text) : 0;
    if (!kept)
        return ids_append(out, ids + at, n - at, e);
    if ((rc = ids_append(out, session->tokens + out->n, kept, e)) < 0)
        return rc;
    return ids_append(out, ids + at + n_content, n - at - n_content, e);
}

/* counts (n, may be NULL): how many of the ids each message takes; what follows the last message
 * counts to none. */
static int encode(struct session *session, const struct message *m, size_t n, bool open_ended,
                  struct ids *out, int *counts, struct error *e)
{
    struct engine *g = session->engine;
    struct stop stop = {cancelled, g};
    const char *last = open_ended ? m[n - 1].text : NULL;
    int *ids = NULL, n_ids = 0, *starts, rc, kept;

    n -= open_ended ? 1 : 0;
    out->n = 0;
    starts = mem_alloc(n + 1, sizeof *starts);
    if (!starts)
        return error_set(e, ERR_MEMORY, "no memory for a conversation of %zu messages", n);
    rc = chat_template_encode(g->chat, m, n, true, &stop, &ids, &n_ids, starts, e);
    if (rc == 0)
        rc = ids_append(out, ids, n ? starts[0] : 0, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        int before = out->n;

        rc = engine_cancelled(g) ? error_set(e, ERR_CANCELLED, "cancelled")
                                 : append_message(session, out, &m[i], ids + starts[i],
                                                  starts[i + 1] - starts[i], e);
        if (counts)
            counts[i] = out->n - before;
    }
    if (rc == 0)
        rc = ids_append(out, ids + (n ? starts[n] : 0), n_ids - (n ? starts[n] : 0), e);
    mem_free(ids);
    mem_free(starts);
    if (rc < 0 || !last || !last[0])
        return rc;
    kept = out->n < session->n_tokens && follows_session(session, out)
               ? spelled(session, out->n, last)
               : 0;
    if (kept)
        return ids_append(out, session->tokens + out->n, kept, e);
    if ((rc = encode_text(g, last, false, &ids, &n_ids, e)) == 0)
        rc = ids_append(out, ids, n_ids, e);
    mem_free(ids);
    return rc;
}

static int encode_raw(struct engine *g, const struct turn *t, struct ids *out, struct error *e)
{
    const struct hparams *hp = &g->model->hp;
    int *ids = NULL, n = 0, rc = 0;

    out->n = 0;
    if (hp->add_bos && hp->bos >= 0)
        rc = ids_append(out, &hp->bos, 1, e);
    for (size_t i = 0; i < t->n_messages && rc == 0; i++) {
        rc = encode_text(g, t->messages[i].text, true, &ids, &n, e);
        if (rc == 0)
            rc = ids_append(out, ids, n, e);
        mem_free(ids);
        ids = NULL;
    }
    if (rc == 0 && !out->n)
        rc = error_set(e, ERR_INPUT, "the prompt is empty");
    return rc;
}

/* The next larger number of messages to leave out: up to the next user message; -1: only the newest
 * turn is left. */
static int drop_more(const struct turn *t, int drop)
{
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0, last = t->n_messages;

    while (last > system && t->messages[last - 1].role != ROLE_USER)
        last--;
    for (size_t i = system + (size_t)drop + 1; i < last; i++)
        if (t->messages[i].role == ROLE_USER)
            return (int)(i - system);
    return -1;
}

static int count_turns(const struct turn *t, int drop)
{
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = 0;

    for (size_t i = system; i < system + (size_t)drop; i++)
        n += t->messages[i].role == ROLE_USER;
    return n ? n : drop > 0;
}

/* A conversation that may have to be made shorter: by `drop` messages behind the system's. */
struct shortening {
    struct session *session;
    const struct turn *turn;
    struct message *kept; /* (n_messages) */
    int *counts;          /* (n_messages) ids of each while all of them stood */
    int total, drop;
    struct ids out; /* without `drop` messages */
};

#define TRIES 6

static int encode_without(struct shortening *s, int drop, int *counts, struct error *e)
{
    const struct turn *t = s->turn;
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0, n = 0;

    for (size_t i = 0; i < t->n_messages; i++)
        if (i < system || i >= system + (size_t)drop)
            s->kept[n++] = t->messages[i];
    s->drop = drop;
    return encode(s->session, s->kept, n, t->continue_last, &s->out, counts, e);
}

/* How many ids stay without `drop` messages, by what they took. */
static int estimate(const struct shortening *s, int drop)
{
    size_t system = s->turn->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = s->total;

    for (int i = 0; i < drop; i++)
        n -= s->counts[system + (size_t)i];
    return n;
}

/* The fewest messages beyond `drop` without which at most `limit` ids should stay, or all but the
 * newest turn. */
static int drop_for(const struct shortening *s, int drop, int limit)
{
    size_t system = s->turn->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = estimate(s, drop), more;

    while ((more = drop_more(s->turn, drop)) >= 0) {
        for (; drop < more; drop++)
            n -= s->counts[system + (size_t)drop];
        if (n <= limit)
            break;
    }
    return drop;
}

/* Leaves out as few turns as make the rest fit. What the estimate is wrong by (a template may write
 * the system's text into the first user's) is nearly the same wherever the conversation begins, so
 * the second or third try is right. */
static int shorten(struct shortening *s, int limit, struct error *e)
{
    int fails = s->drop, fits = -1, wrong = s->out.n - estimate(s, s->drop), rc = 0, drop = -1;

    for (int i = 0; i < TRIES && rc == 0; i++) {
        drop = drop_for(s, fails, limit - wrong);
        if (drop == fails || (fits >= 0 && drop >= fits))
            break;
        rc = encode_without(s, drop, NULL, e);
        wrong = s->out.n - estimate(s, drop);
        if (s->out.n <= limit)
            fits = drop;
        else
            fails = drop;
    }
    if (fits < 0) /* the newest turn alone */
        fits = drop_for(s, fails, -1);
    return rc == 0 && s->drop != fits ? encode_without(s, fits, NULL, e) : rc;
}

/* limit: ids that leave room for an answer. */
static int encode_within(struct shortening *s, int limit, struct error *e)
{
    struct session *session = s->session;
    int context = session->engine->info.context, before = session->dropped_messages,
        rc = encode_without(s, 0, s->counts, e);

    s->total = s->out.n;
    /* What was left out before stays out, while that is enough. */
    if (rc == 0 && s->out.n > limit && before && (size_t)before < s->turn->n_messages)
        rc = encode_without(s, before, NULL, e);
    if (rc == 0 && s->out.n > limit)
        rc = shorten(s, limit < context / 2 ? limit : context / 2, e);
    if (rc == 0)
        session->dropped_messages = s->drop;
    return rc;
}

int prompt_build(struct session *session, const struct turn *t, int **ids, int *n,
                 int *dropped_turns, struct error *e)
{
    struct engine *g = session->engine;
    int context = g->info.context, room = context / 4, rc;
    struct shortening s = {.session = session, .turn = t};

    *dropped_turns = 0;
    if (!t->raw && g->chat_error.code) {
        *e = g->chat_error;
        return e->code;
    }
    if (!g->tokenizer || (!t->raw && !g->chat))
        return error_set(e, ERR_MODEL, "%s has no tokenizer", g->config.model_path);
    if (!t->n_messages)
        return error_set(e, ERR_INPUT, "the conversation is empty");
    if (t->continue_last && (t->raw || t->messages[t->n_messages - 1].role != ROLE_ASSISTANT))
        return error_set(e, ERR_INPUT, "only an assistant's message can be continued");
    if (t->max_tokens >= 0 && t->max_tokens < room)
        room = t->max_tokens;
    s.kept = mem_alloc(t->n_messages, sizeof *s.kept);
    s.counts = mem_alloc(t->n_messages, sizeof *s.counts);
    if (!s.kept || !s.counts)
        rc = error_set(e, ERR_MEMORY, "no memory for a conversation of %zu messages",
                       t->n_messages);
    else
        rc = t->raw ? encode_raw(g, t, &s.out, e) : encode_within(&s, context - room, e);
    if (rc == 0 && s.out.n == 0) /* a damaged template may say nothing at all */
        rc = error_set(
            e, ERR_MODEL,
            "the model's chat template makes no text of the conversation; --raw goes without it");
    if (rc == 0 && s.out.n >= context)
        rc = error_set(
            e, ERR_CONTEXT,
            "the prompt has %d tokens, the context %d (-c): shorten it or enlarge the context",
            s.out.n, context);
    mem_free(s.kept);
    mem_free(s.counts);
    if (rc < 0) {
        mem_free(s.out.at);
        return rc;
    }
    *ids = s.out.at;
    *n = s.out.n;
    if (s.drop) {
        *dropped_turns = count_turns(t, s.drop);
        engine_notice(g,
                      "the conversation has outgrown the context of %d tokens: the model no longer "
                      "sees its %d oldest turn%s",
                      context, *dropped_turns, *dropped_turns == 1 ? "" : "s");
    }
    return 0;
}
