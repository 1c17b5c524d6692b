/* See prompt.h. The number of renderings does not grow with the conversation: one of all messages,
 * one of the kept ones, and a few corrections. */
#include "engine/run/prompt.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <string.h>

/* The inputs of a prompt. */
struct maker {
    const struct engine_info *info;
    const struct prompt_history *history;
    const struct stop *stop;
    const json_t *given; /* of struct dialogue */
};

struct ids {
    int *at, n, room;
    int marks[PROMPT_MARKS], n_marks; /* of struct prompt */
    int *messages, n_messages;        /* likewise: pairs of start and role */
};

static int ids_message(struct ids *v, enum role role, struct error *e)
{
    if (!MEM_FIT(v->messages, 2 * (v->n_messages + 1)))
        return error_set(e, ERR_MEMORY, "no memory for a prompt of %d messages", v->n_messages);
    v->messages[2 * v->n_messages] = v->n;
    v->messages[2 * v->n_messages + 1] = (int)role;
    v->n_messages++;
    return 0;
}

/* Records the start of a message, or of the answer. */
static void ids_mark(struct ids *v, int at)
{
    if (at < 1 || (v->n_marks && v->marks[v->n_marks - 1] >= at))
        return;
    if (v->n_marks == PROMPT_MARKS)
        memmove(v->marks, v->marks + 1, (size_t)--v->n_marks * sizeof *v->marks);
    v->marks[v->n_marks++] = at;
}

static int ids_append(struct ids *v, const int *from, int n, struct error *e)
{
    if (v->n + n > v->room) {
        int room = 2 * (v->n + n) + 64;

        if (!MEM_FIT(v->at, room))
            return error_set(e, ERR_MEMORY, "no memory for a prompt of %d tokens", v->n + n);
        v->room = room;
    }
    if (n)
        memcpy(v->at + v->n, from, (size_t)n * sizeof *from);
    v->n += n;
    return 0;
}

/* How many ids of the history from `at` on spell exactly this text; 0: none. */
static int spelled(const struct maker *m, int at, const char *text)
{
    const struct prompt_history *h = m->history;
    size_t len = strlen(text), done = 0;
    struct detokenizer d;
    char piece[1024];

    detokenizer_init(&d, m->info->tokenizer, true);
    for (int i = at; i < h->n && len; i++) {
        size_t n = detokenizer_push(&d, h->ids[i], piece, sizeof piece);

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

/* The prompt so far is a prefix of the history, and the history is longer. */
static bool follows(const struct prompt_history *h, const struct ids *v)
{
    return v->n < h->n && (!v->n || memcmp(v->at, h->ids, (size_t)v->n * sizeof *v->at) == 0);
}

static int check_wanted(const struct maker *m, struct error *e)
{
    return m->stop && m->stop->asked(m->stop->ctx) ? error_set(e, ERR_CANCELLED, "cancelled") : 0;
}

static int encode_text(const struct maker *m, const char *text, bool parse_special, int **ids,
                       int *n, struct error *e)
{
    return tokenizer_encode_masked(m->info->tokenizer, text, strlen(text), parse_special, NULL,
                                   m->stop, ids, n, NULL, e);
}

/* One message's ids; an assistant's content is taken from the history if it is there. */
static int append_message(const struct maker *maker, struct ids *out, const struct message *m,
                          const int *ids, int n, struct error *e)
{
    const struct prompt_history *h = maker->history;
    int *content = NULL, n_content = 0, at, kept, rc;

    if (m->role != ROLE_ASSISTANT || !m->text[0] || !follows(h, out))
        return ids_append(out, ids, n, e);
    if ((rc = encode_text(maker, m->text, false, &content, &n_content, e)) < 0)
        return rc;
    at = find(ids, n, content, n_content);
    mem_free(content);
    if (at < 0)
        return ids_append(out, ids, n, e);
    if ((rc = ids_append(out, ids, at, e)) < 0)
        return rc;
    kept = follows(h, out) ? spelled(maker, out->n, m->text) : 0;
    if (!kept)
        return ids_append(out, ids + at, n - at, e);
    if ((rc = ids_append(out, h->ids + out->n, kept, e)) < 0)
        return rc;
    return ids_append(out, ids + at + n_content, n - at - n_content, e);
}

/* Appends the end of the prompt: the beginning of an answer to be continued. */
static int append_open_end(const struct maker *m, struct ids *out, const char *text,
                           struct error *e)
{
    int *ids = NULL, n = 0, rc, kept = follows(m->history, out) ? spelled(m, out->n, text) : 0;

    if (kept)
        return ids_append(out, m->history->ids + out->n, kept, e);
    if ((rc = encode_text(m, text, false, &ids, &n, e)) == 0)
        rc = ids_append(out, ids, n, e);
    mem_free(ids);
    return rc;
}

/* counts (n, may be NULL): number of ids of each message; those after the last message are not
 * counted. */
static int encode(const struct maker *maker, const struct message *m, size_t n, bool open_ended,
                  struct ids *out, int *counts, struct error *e)
{
    const char *last = open_ended ? m[n - 1].text : NULL;
    int *ids = NULL, n_ids = 0, *starts, rc;

    n -= open_ended ? 1 : 0;
    out->n = out->n_marks = out->n_messages = 0;
    starts = mem_alloc(n + 1, sizeof *starts);
    if (!starts)
        return error_set(e, ERR_MEMORY, "no memory for a conversation of %zu messages", n);
    rc = chat_template_encode(maker->info->chat, m, n, maker->given, true, maker->stop, &ids,
                              &n_ids, starts, e);
    if (rc == 0)
        rc = ids_append(out, ids, n ? starts[0] : 0, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        int before = out->n;

        ids_mark(out, before);
        if ((rc = check_wanted(maker, e)) == 0 && (rc = ids_message(out, m[i].role, e)) == 0)
            rc = append_message(maker, out, &m[i], ids + starts[i], starts[i + 1] - starts[i], e);
        if (counts)
            counts[i] = out->n - before;
    }
    ids_mark(out, out->n);
    if (rc == 0)
        rc = ids_message(out, ROLE_ASSISTANT, e);
    if (rc == 0)
        rc = ids_append(out, ids + (n ? starts[n] : 0), n_ids - (n ? starts[n] : 0), e);
    mem_free(ids);
    mem_free(starts);
    return rc < 0 || !last || !last[0] ? rc : append_open_end(maker, out, last, e);
}

static int encode_raw(const struct maker *m, const struct dialogue *t, struct ids *out,
                      struct error *e)
{
    const struct hparams *hp = &m->info->model->hp;
    int *ids = NULL, n = 0, rc = 0;

    out->n = out->n_marks = out->n_messages = 0;
    if (hp->add_bos && hp->bos >= 0)
        rc = ids_append(out, &hp->bos, 1, e);
    for (size_t i = 0; i < t->n_messages && rc == 0; i++) {
        rc = encode_text(m, t->messages[i].text, true, &ids, &n, e);
        if (rc == 0)
            rc = ids_append(out, ids, n, e);
        mem_free(ids);
        ids = NULL;
    }
    if (rc == 0 && !out->n)
        rc = error_set(e, ERR_INPUT, "the prompt is empty");
    ids_mark(out, out->n - 1); /* if repeated, all but its last token is cached */
    return rc;
}

/* The next larger number of messages to drop: up to the next user message; -1: only the newest turn
 * is left. */
static int drop_more(const struct dialogue *t, int drop)
{
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0, last = t->n_messages;

    while (last > system && t->messages[last - 1].role != ROLE_USER)
        last--;
    for (size_t i = system + (size_t)drop + 1; i < last; i++)
        if (t->messages[i].role == ROLE_USER)
            return (int)(i - system);
    return -1;
}

static int count_turns(const struct dialogue *t, int drop)
{
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = 0;

    for (size_t i = system; i < system + (size_t)drop; i++)
        n += t->messages[i].role == ROLE_USER;
    return n ? n : drop > 0;
}

/* A conversation that may have to be shortened by `drop` messages after the system's. */
struct shortening {
    const struct maker *maker;
    const struct dialogue *dialogue;
    struct message *kept; /* (n_messages) */
    int *counts;          /* (n_messages) ids of each in the full rendering */
    int total, drop;
    struct ids out; /* without `drop` messages */
};

#define TRIES 6
#define TAIL 8        /* tokens at a prompt's end searched for the start of reasoning */
#define TAIL_PIECE 64 /* bytes searched of each */

static int encode_without(struct shortening *s, int drop, int *counts, struct error *e)
{
    const struct dialogue *t = s->dialogue;
    size_t system = t->messages[0].role == ROLE_SYSTEM ? 1 : 0, n = 0;

    for (size_t i = 0; i < t->n_messages; i++)
        if (i < system || i >= system + (size_t)drop)
            s->kept[n++] = t->messages[i];
    s->drop = drop;
    return encode(s->maker, s->kept, n, t->continue_last, &s->out, counts, e);
}

/* Estimates how many ids are left without `drop` messages, by their counts. */
static int estimate(const struct shortening *s, int drop)
{
    size_t system = s->dialogue->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = s->total;

    for (int i = 0; i < drop; i++)
        n -= s->counts[system + (size_t)i];
    return n;
}

/* The fewest messages beyond `drop` to drop so that an estimated `limit` ids are left, or all but
 * the newest turn. */
static int drop_for(const struct shortening *s, int drop, int limit)
{
    size_t system = s->dialogue->messages[0].role == ROLE_SYSTEM ? 1 : 0;
    int n = estimate(s, drop), more;

    while ((more = drop_more(s->dialogue, drop)) >= 0) {
        for (; drop < more; drop++)
            n -= s->counts[system + (size_t)drop];
        if (n <= limit)
            break;
    }
    return drop;
}

/* Drops as few turns as possible so that the rest fits. The error of the estimate (a template may
 * write the system's text into the first user's) is nearly the same wherever the conversation
 * begins, so the second or third try is right. */
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
    if (fits < 0) /* only the newest turn */
        fits = drop_for(s, fails, -1);
    return rc == 0 && s->drop != fits ? encode_without(s, fits, NULL, e) : rc;
}

/* limit: ids that leave space for an answer; before: messages dropped before. */
static int encode_within(struct shortening *s, int limit, int before, struct error *e)
{
    int context = s->maker->info->context, rc = encode_without(s, 0, s->counts, e);

    s->total = s->out.n;
    if (s->dialogue->whole)
        return rc;
    /* Messages dropped before stay dropped, while that suffices. */
    if (rc == 0 && s->out.n > limit && before && (size_t)before < s->dialogue->n_messages)
        rc = encode_without(s, before, NULL, e);
    if (rc == 0 && s->out.n > limit)
        rc = shorten(s, limit < context / 2 ? limit : context / 2, e);
    return rc;
}

static int check_dialogue(const struct engine_info *info, const struct dialogue *d, struct error *e)
{
    if (!d->raw && info->chat_error.code) {
        *e = info->chat_error;
        return e->code;
    }
    if (!info->tokenizer || (!d->raw && !info->chat))
        return error_set(e, ERR_MODEL, "%s has no tokenizer", weight_file_path(info->model->file));
    if (!d->n_messages)
        return error_set(e, ERR_INPUT, "the conversation is empty");
    if (d->continue_last && (d->raw || d->messages[d->n_messages - 1].role != ROLE_ASSISTANT))
        return error_set(e, ERR_INPUT, "only an assistant's message can be continued");
    return 0;
}

static int check_length(const struct ids *v, int context, struct error *e)
{
    if (v->n == 0) /* a damaged template may output nothing */
        return error_set(
            e, ERR_MODEL,
            "the model's chat template makes no text of the conversation; --raw goes without it");
    if (v->n >= context)
        return error_set(
            e, ERR_CONTEXT,
            "the prompt has %d tokens, the context %d (-c): shorten it or enlarge the context",
            v->n, context);
    return 0;
}

/* Sets the history of a session to this prompt; allocates for a full context. */
static int history_begin(struct prompt_history *h, const struct ids *v, int dropped, int context,
                         struct error *e)
{
    if (h->room < context && !MEM_FIT(h->ids, context))
        return error_set(e, ERR_MEMORY, "no memory for a prompt of %d tokens", v->n);
    h->room = context;
    h->n = v->n;
    h->dropped_messages = dropped;
    memcpy(h->ids, v->at, (size_t)v->n * sizeof *h->ids);
    return 0;
}

/* The parser's state at the start of the answer: some templates open the reasoning themselves. */
static struct answer_parts parts_of(const struct engine_info *info, const struct dialogue *d,
                                    const struct ids *v)
{
    struct answer_format f = chat_template_answers(info->chat);
    struct answer_parts parts;
    struct detokenizer text;
    char tail[TAIL * TAIL_PIECE];
    size_t n = 0;

    if (d->hermes)
        answer_format_learn(&f);
    if (d->continue_last) {
        f.harmony = false; /* its message is open */
    } else {
        detokenizer_init(&text, info->tokenizer, false);
        for (int i = v->n > TAIL ? v->n - TAIL : 0; i < v->n; i++)
            n += detokenizer_push(&text, v->at[i], tail + n, TAIL_PIECE);
    }
    answer_parts_init(&parts, f, answer_format_opens(&f, tail, n));
    return parts;
}

int prompt_make(const struct engine_info *info, struct prompt_history *h, const struct dialogue *d,
                int max_tokens, const struct stop *stop, struct prompt *out, struct error *e)
{
    static const struct prompt_history nothing;
    struct maker maker = {info, h ? h : &nothing, stop, d->given};
    struct shortening s = {.maker = &maker, .dialogue = d};
    uint64_t start = clock_now();
    int room = info->context / 4, rc;

    *out = (struct prompt){.start_ns = start, .goes_on = d->raw || d->continue_last};
    if ((rc = check_dialogue(info, d, e)) < 0 || (rc = check_wanted(&maker, e)) < 0)
        return rc;
    if (max_tokens >= 0 && max_tokens < room)
        room = max_tokens;
    s.kept = mem_alloc(d->n_messages, sizeof *s.kept);
    s.counts = mem_alloc(d->n_messages, sizeof *s.counts);
    if (!s.kept || !s.counts)
        rc = error_set(e, ERR_MEMORY, "no memory for a conversation of %zu messages",
                       d->n_messages);
    else
        rc = d->raw ? encode_raw(&maker, d, &s.out, e)
                    : encode_within(&s, info->context - room, maker.history->dropped_messages, e);
    mem_free(s.kept);
    mem_free(s.counts);
    if (rc == 0)
        rc = check_length(&s.out, info->context, e);
    if (rc == 0 && h)
        rc = history_begin(h, &s.out, d->raw ? h->dropped_messages : s.drop, info->context, e);
    if (rc == 0 && !MEM_FIT(s.out.at, s.out.n + 2 * s.out.n_messages))
        rc = error_set(e, ERR_MEMORY, "no memory for a prompt of %d tokens", s.out.n);
    if (rc == 0 && s.out.n_messages)
        memcpy(s.out.at + s.out.n, s.out.messages, 2 * (size_t)s.out.n_messages * sizeof(int));
    mem_free(s.out.messages);
    if (rc < 0) {
        mem_free(s.out.at);
        return rc;
    }
    if (!d->raw)
        out->parts = parts_of(info, d, &s.out);
    out->ids = s.out.at;
    out->n = s.out.n;
    memcpy(out->marks, s.out.marks, sizeof out->marks);
    out->n_marks = s.out.n_marks;
    out->n_messages = s.out.n_messages;
    out->dropped_turns = s.drop ? count_turns(d, s.drop) : 0;
    return 0;
}

void prompt_history_release(struct prompt_history *h)
{
    mem_free(h->ids);
    *h = (struct prompt_history){0};
}

void prompt_history_clear(struct prompt_history *h)
{
    h->n = h->dropped_messages = 0;
}

void prompt_history_note(struct prompt_history *h, const struct event *ev)
{
    if (ev->kind == EVENT_TOKEN && ev->token.id >= 0 && h->n < h->room)
        h->ids[h->n++] = ev->token.id;
    /* the token that completed a stop string is not in the session */
    if (ev->kind == EVENT_TURN_DONE && ev->done_turn.reason == STOP_STRING && h->n > 0)
        h->n--;
}

/* Forwards events of a turn to the caller. */
struct listener {
    struct prompt_history *history;
    int (*on_event)(void *ctx, struct event *ev);
    void *ctx;
};

static int listen(void *ctx, struct event *ev)
{
    const struct listener *l = ctx;

    if (l->history)
        prompt_history_note(l->history, ev);
    return l->on_event ? l->on_event(l->ctx, ev) : 0;
}

static bool unwanted(void *session)
{
    return session_cancelled(session);
}

/* The prompt was cancelled: its turn ends before it starts. */
static void end_unwanted(struct session *s, struct listener *l, const struct prompt *p,
                         struct turn_done_event *done)
{
    struct event ev = {.kind = EVENT_TURN_DONE, .done_turn = {.reason = STOP_CANCELLED}};

    ev.done_turn.total_ns = clock_now() - p->start_ns;
    engine_session_uncancel(s);
    listen(l, &ev);
    if (done)
        *done = ev.done_turn;
}

int prompt_turn(struct engine *g, struct prompt_history *h, const struct dialogue *d,
                const struct turn *t, int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e)
{
    struct session *s = engine_session(g);
    struct listener l = {h, on_event, ctx};
    struct stop stop = {unwanted, s};
    struct turn asked = *t;
    struct error own = {0};
    int rc;

    if (done)
        *done = (struct turn_done_event){.reason = STOP_ERROR};
    rc = prompt_make(engine_info(g), h, d, t->max_tokens, &stop, &asked.prompt, e ? e : &own);
    if (rc == 0) {
        rc = engine_turn(g, &asked, listen, &l, done, e);
    } else if (rc == ERR_CANCELLED) {
        end_unwanted(s, &l, &asked.prompt, done);
        rc = 0;
    }
    mem_free(asked.prompt.ids);
    return rc;
}
