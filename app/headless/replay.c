/* See replay.h. */
#include "app/headless/replay.h"

#include "app/common/answer_text.h"
#include "app/common/signals.h"
#include "app/common/transcript.h"
#include "app/headless/batch_line.h"
#include "app/lab/routing.h"
#include "app/setup/engine_options.h"
#include "app/setup/grammar_options.h"
#include "app/setup/parallel.h"
#include "app/setup/receipt.h"
#include "app/setup/receipt_chat.h"
#include "app/setup/sampling_options.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/model/model.h"
#include "engine/run/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer being reproduced, and the parallel ones. */
struct replay {
    struct options o; /* with the settings of the receipts */
    const char *name; /* of the file */
    json_t *receipts; /* list */
    struct engine *g;
    char model[DIGEST_HEX];
    struct session **sessions; /* parallel of them, the engine's own first */
    int parallel, different;
    size_t at;            /* index of the receipt */
    const json_t *opened; /* receipt that the engine was opened for; NULL: no engine */
    /* the current answer */
    const json_t *want; /* its ids */
    struct receipt_text got;
    struct strbuf shown, thought; /* its text and reasoning, as a chat stores them */
    enum answer_part part;
    bool over; /* it has ended */
    int rc;
    struct error why;
};

/* ---- reading ---- */

/* A receipt, or an object that contains one. */
static void take_receipt(struct replay *r, json_t *o)
{
    json_t *own = json_object_get(o, "moetop_receipt") ? o : json_object_get(o, "receipt");

    if (json_is_object(own))
        json_array_append(r->receipts, own);
}

/* In a saved chat receipts are in its answers. */
static int take_chat(struct replay *r, const char *text, size_t n, struct error *e)
{
    struct transcript t;
    int rc;

    transcript_init(&t);
    if ((rc = transcript_read(&t, text, n, r->name, e)) == 0 &&
        (rc = receipt_chat_all(&t, r->receipts, e)) < 0)
        error_prefix(e, "%s", r->name);
    transcript_release(&t);
    return rc;
}

/* JSON Lines, as a batch writes them. */
static int take_lines(struct replay *r, const char *text, struct error *e)
{
    char label[300];
    int rc = 0;

    for (size_t line = 1; *text && rc == 0; line++) {
        size_t n = strcspn(text, "\n");
        json_t *root;

        snprintf(label, sizeof label, "%.200s: line %zu", r->name, line);
        if (n && !(root = json_read_own(text, n, label, e)))
            rc = e->code = ERR_INPUT;
        else if (n) {
            take_receipt(r, root);
            json_decref(root);
        }
        text += n + (text[n] == '\n');
    }
    return rc;
}

static int read_receipts(struct replay *r, struct error *e)
{
    static const struct file_kind kind = {"receipt", (size_t)1 << 30, ERR_INPUT};
    struct error ignored;
    char *text;
    json_t *root;
    size_t n;
    int rc = file_read(r->name, &kind, &text, &n, e);

    if (rc < 0)
        return rc;
    if (!(r->receipts = json_array()))
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", r->name);
    else if ((root = json_read_own(text, n, r->name, &ignored))) {
        if (json_object_get(root, "moetop_chat"))
            rc = take_chat(r, text, n, e);
        else
            take_receipt(r, root);
        json_decref(root);
    } else {
        rc = take_lines(r, text, e);
    }
    mem_free(text);
    if (rc == 0 && !json_array_size(r->receipts))
        rc = error_set(
            e, ERR_INPUT,
            "%s: no receipt in it: --stats-json, --batch --receipts and chats write them", r->name);
    return rc;
}

static int check_receipt(const struct replay *r, const json_t *receipt, struct error *e)
{
    const json_t *tokens = json_object_get(receipt, "tokens");

    if (json_integer_value(json_object_get(receipt, "moetop_receipt")) != 1)
        return error_set(e, ERR_INPUT, "%s: answer %zu: a receipt of another format; 1 is known",
                         r->name, r->at + 1);
    if (!json_is_object(json_object_get(receipt, "request")) ||
        !json_is_object(json_object_get(receipt, "settings")) ||
        (!json_object_get(receipt, "where") &&
         !json_is_string(json_object_get(receipt, "model_sha256"))) ||
        !json_is_array(tokens) || !json_is_array(json_object_get(receipt, "prompt_tokens")))
        return error_set(e, ERR_INPUT,
                         "%s: answer %zu: the receipt lacks request, settings, model_sha256, "
                         "prompt_tokens or tokens",
                         r->name, r->at + 1);
    return 0;
}

/* ---- opening ---- */

static int open_sessions(struct replay *r, struct error *e)
{
    int rc = 0;

    if (!(r->sessions = mem_alloc((size_t)r->parallel, sizeof *r->sessions)))
        return error_set(e, ERR_MEMORY, "out of memory for %d sessions", r->parallel);
    r->sessions[0] = engine_session(r->g);
    for (int i = 1; i < r->parallel && rc == 0; i++)
        rc = engine_session_open(r->g, &r->sessions[i], e);
    return rc;
}

static void close_engine(struct replay *r)
{
    engine_close(r->g);
    mem_free(r->sessions);
    r->g = NULL;
    r->sessions = NULL;
    r->opened = NULL;
}

/* The model of the command line, else that of the receipt. */
static int open_engine(struct replay *r, const json_t *receipt, bool named, struct error *e)
{
    const char *model = json_string_value(json_object_get(receipt, "model"));
    int rc = 0;

    close_engine(r);
    if (model && !named)
        rc = options_set(&r->o, &option_table[OPTION_ID_model], model, ORIGIN_CHAT, r->name, e);
    if (rc < 0 || (rc = routing_edits_of(&r->o, e)) < 0 ||
        (rc = engine_setup_open(&r->o, &r->g, e)) < 0 ||
        (rc = receipt_model(&r->o, engine_info(r->g), r->model, e)) < 0 ||
        (rc = open_sessions(r, e)) < 0)
        return rc;
    r->opened = receipt;
    return 0;
}

/* Applies its settings, and opens an engine with them. */
static int prepare(struct replay *r, const json_t *receipt, struct error *e)
{
    bool named = r->o.origin[OPTION_ID_model].from == ORIGIN_FLAG;
    int rc = receipt_settings(&r->o, receipt, r->name, e);

    if (rc < 0 || (rc = sampling_options_check(&r->o, e)) < 0)
        return rc;
    if (r->opened && receipt_same_engine(r->opened, receipt))
        return 0;
    return open_engine(r, receipt, named, e);
}

/* ---- reproducing ---- */

static int on_event(void *ctx, struct event *ev)
{
    struct replay *r = ctx;

    receipt_text_note(&r->got, ev);
    if (ev->kind == EVENT_TOKEN)
        answer_text_put(&r->shown, &r->thought, &r->part, &ev->token);
    if (ev->kind == EVENT_TURN_DONE)
        r->over = true;
    if (ev->kind == EVENT_ERROR) {
        r->rc = error_set(&r->why, ev->failure.code, "%s", ev->text ? ev->text : "out of memory");
        r->over = true;
    }
    return signals_last() != 0 || r->got.failed || r->shown.failed;
}

static int beside(void *ctx, struct event *ev)
{
    const struct replay *r = ctx;

    return r->over || signals_last() != 0;
}

static bool interrupted(void *ctx)
{
    return signals_last() != 0;
}

/* The first position that differs; -1: none. */
static int parting(const json_t *want, const int *got, int n)
{
    int m = (int)json_array_size(want);

    for (int i = 0; i < n && i < m; i++)
        if (json_integer_value(json_array_get(want, (size_t)i)) != got[i])
            return i;
    return n == m ? -1 : n < m ? n : m;
}

/* Parallel answers: the same prompt, other seeds. */
static int begin_beside(struct replay *r, struct turn *t, struct turn *others, struct error *e)
{
    int rc = 0;

    for (int i = 1; i < r->parallel && rc == 0; i++) {
        others[i] = *t;
        others[i].sampling.seed += (uint64_t)i;
        rc = engine_session_turn(r->sessions[i], &others[i], beside, r, e);
    }
    return rc;
}

static int compute(struct replay *r, struct turn *t, struct error *e)
{
    struct turn *others = mem_alloc((size_t)r->parallel, sizeof *others);
    struct error told;
    int rc;

    r->over = false;
    r->rc = 0;
    r->part = PART_ANSWER;
    strbuf_clear(&r->shown);
    strbuf_clear(&r->thought);
    receipt_text_clear(&r->got);
    rc = others ? begin_beside(r, t, others, e)
                : error_set(e, ERR_MEMORY, "out of memory for %d answers", r->parallel);
    if (rc == 0)
        engine_session_turn(r->sessions[0], t, on_event, r, &told);
    while (engine_step(r->g))
        ;
    for (int i = 0; i < r->parallel; i++)
        engine_session_forget(r->sessions[i]);
    mem_free(others);
    if (rc == 0 && r->rc < 0) {
        *e = r->why;
        rc = r->rc;
    }
    if (rc == 0 && (r->got.failed || r->shown.failed))
        rc = error_set(e, ERR_MEMORY, "out of memory for the answer");
    return rc < 0 ? rc : signals_check(e);
}

/* "answer 3", "answer 3 (message 6)" */
static const char *name_answer(const struct replay *r, char out[120])
{
    const char *where = json_string_value(
        json_object_get(json_array_get(r->receipts, r->at), "where"));

    snprintf(out, 120, "answer %zu%s%s%s", r->at + 1, where ? " (" : "", where ? where : "",
             where ? ")" : "");
    return out;
}

static void name_token(const struct replay *r, int id, char *out, size_t size)
{
    const struct tokenizer *t = engine_info(r->g)->tokenizer;
    size_t n = 0;
    const char *piece = t && id >= 0 && id < tokenizer_size(t) ? tokenizer_piece(t, id, &n, NULL)
                                                               : "";
    char safe[120];

    utf8_escape(safe, sizeof safe, piece, n < 100 ? n : 100, 0);
    if (id < 0)
        snprintf(out, size, "the end");
    else
        snprintf(out, size, "%d \"%s\"", id, safe);
}

static int id_at(const json_t *ids, int i)
{
    return (size_t)i < json_array_size(ids)
               ? (int)json_integer_value(json_array_get(ids, (size_t)i))
               : -1;
}

static void tell_parting(struct replay *r, const char *what, const json_t *want, const int *got,
                         int n, int at)
{
    char was[160], is[160], name[120];

    name_token(r, id_at(want, at), was, sizeof was);
    name_token(r, at < n ? got[at] : -1, is, sizeof is);
    printf("%s: token %d of the %s differs: %s then, %s now\n", name_answer(r, name), at + 1, what,
           was, is);
    r->different++;
}

static void tell_same(const struct replay *r, const json_t *receipt, const char *but)
{
    char name[120];

    const struct engine_info *info = engine_info(r->g);
    char names[TELEMETRY_PLAN_NAMES];
    const char *plan = json_string_value(json_object_get(receipt, "plan")),
               *kernels = json_string_value(json_object_get(receipt, "kernels"));

    printf("%s: the same, %d tokens, %zu bytes (then %s, %lld threads, %s, %lld at once; "
           "now %s, %d threads, %s, %d at once)%s%s\n",
           name_answer(r, name), r->got.n, r->got.text.len, plan ? plan : "?",
           (long long)json_integer_value(json_object_get(receipt, "threads")),
           kernels ? kernels : "?",
           (long long)json_integer_value(json_object_get(receipt, "sessions")),
           telemetry_plan_names(engine_telemetry(r->g), names, sizeof names), info->n_threads,
           info->kernels, r->parallel, but,
           json_is_string(json_object_get(receipt, "model_sha256"))
               ? ""
               : "; the chat had ended before its model was hashed");
}

static bool was_cancelled(const json_t *receipt)
{
    const char *stop = json_string_value(json_object_get(receipt, "stop"));

    return stop && strcmp(stop, stop_reason_word(STOP_CANCELLED)) == 0;
}

/* The first byte of a chat's text that was not reproduced; -1: none. Text held back when an answer
 * was cancelled may be missing there. */
static ptrdiff_t parting_text(const struct replay *r, const json_t *receipt)
{
    const char *was = json_string_value(json_object_get(receipt, "said")),
               *is = strbuf_text(&r->shown);
    size_t i = 0;

    while (was && was[i] && was[i] == is[i])
        i++;
    return !was || (!was[i] && (!is[i] || was_cancelled(receipt))) ? -1 : (ptrdiff_t)i;
}

static void tell_different(struct replay *r, const char *what)
{
    char name[120];

    printf("%s: %s\n", name_answer(r, name), what);
    r->different++;
}

/* The tokens are the same: checks the text. */
static void compare_text(struct replay *r, const json_t *receipt, const char *but)
{
    const char *was = json_string_value(json_object_get(receipt, "text_sha256"));
    ptrdiff_t at = parting_text(r, receipt);
    char text[DIGEST_HEX], line[120];

    receipt_hash_text(strbuf_text(&r->got.text), r->got.text.len, text);
    if (was && strcmp(was, text) != 0 && !was_cancelled(receipt)) {
        tell_different(r, "the same tokens, but the text is another one");
    } else if (at >= 0) {
        snprintf(line, sizeof line,
                 "the same tokens, but what stands in the chat differs from byte %td on", at + 1);
        tell_different(r, line);
    } else {
        tell_same(r, receipt, but);
    }
}

/* Byte for byte: tokens first, then their text. made: the prompt that the messages give now. */
static void compare(struct replay *r, const json_t *receipt, const struct prompt *prompt,
                    int made_differs)
{
    const json_t *before = json_object_get(receipt, "prompt_tokens");
    char but[160] = "";
    int at = parting(before, prompt->ids, prompt->n);

    if (at >= 0) {
        tell_parting(r, "prompt", before, prompt->ids, prompt->n, at);
        return;
    }
    at = parting(json_object_get(receipt, "tokens"), r->got.ids, r->got.n);
    if (at >= 0) {
        tell_parting(r, "answer", json_object_get(receipt, "tokens"), r->got.ids, r->got.n, at);
        return;
    }
    if (made_differs >= 0)
        snprintf(but, sizeof but,
                 "; what stands before it now makes another prompt, from token %d on",
                 made_differs + 1);
    compare_text(r, receipt, but);
}

static bool same_text(const struct replay *r, const json_t *before, const struct prompt *prompt)
{
    const struct tokenizer *t = engine_info(r->g)->tokenizer;
    struct strbuf was = {0}, is = {0};
    bool same;
    size_t n;

    for (size_t i = 0; t && i < json_array_size(before); i++) {
        int id = id_at(before, (int)i);
        const char *piece = id >= 0 && id < tokenizer_size(t) ? tokenizer_piece(t, id, &n, NULL)
                                                              : NULL;

        if (!piece)
            break;
        strbuf_put(&was, piece, n);
    }
    for (int i = 0; t && i < prompt->n; i++) {
        const char *piece = tokenizer_piece(t, prompt->ids[i], &n, NULL);

        strbuf_put(&is, piece, n);
    }
    same = was.len && was.len == is.len && memcmp(was.data, is.data, is.len) == 0;
    strbuf_release(&was);
    strbuf_release(&is);
    return same;
}

static int set_prompt(const json_t *before, struct prompt *prompt, struct error *e)
{
    size_t n = json_array_size(before);
    int *ids = mem_alloc(n + 1, sizeof *ids);

    if (!ids)
        return error_set(e, ERR_MEMORY, "out of memory for the prompt");
    for (size_t i = 0; i < n; i++)
        ids[i] = id_at(before, (int)i);
    mem_free(prompt->ids);
    prompt->ids = ids;
    prompt->n = (int)n;
    prompt->n_marks = prompt->n_messages = 0; /* they were positions in the other prompt */
    return 0;
}

/* The ids of an earlier answer are used as they were generated. In a chat more may have changed
 * since (its system message, a summary): there the stored ids are the prompt, and *differs is the
 * first that the messages would now give differently (-1: none). */
static int take_prompt(const struct replay *r, const json_t *receipt, struct prompt *prompt,
                       int *differs, struct error *e)
{
    const json_t *before = json_object_get(receipt, "prompt_tokens");
    int at = parting(before, prompt->ids, prompt->n),
        n = tokenizer_size(engine_info(r->g)->tokenizer);
    bool same = at < 0 || same_text(r, before, prompt);

    *differs = -1;
    if (at < 0 || (!same && !json_object_get(receipt, "where")))
        return 0;
    for (size_t i = 0; i < json_array_size(before); i++)
        if (id_at(before, (int)i) < 0 || id_at(before, (int)i) >= n)
            return error_set(e, ERR_INPUT, "%s: answer %zu: token %zu of the prompt is none of %d",
                             r->name, r->at + 1, i + 1, n);
    if (!json_array_size(before))
        return error_set(e, ERR_INPUT, "%s: answer %zu: the receipt's prompt is empty", r->name,
                         r->at + 1);
    *differs = same ? -1 : at;
    return set_prompt(before, prompt, e);
}

static int derive(struct replay *r, const json_t *receipt, struct batch_line *line, struct error *e)
{
    const struct stop stop = {interrupted, NULL};
    struct turn *t = &line->turn;
    int differs, rc;

    if (was_cancelled(receipt))
        t->max_tokens = (int)json_array_size(json_object_get(receipt, "tokens"));
    rc = prompt_make(engine_info(r->g), NULL, &line->said, t->max_tokens, &stop, &t->prompt, e);
    if (rc == 0)
        rc = take_prompt(r, receipt, &t->prompt, &differs, e);
    if (rc == 0)
        rc = compute(r, t, e);
    if (rc == 0)
        compare(r, receipt, &t->prompt, differs);
    return rc;
}

static int check_model(const struct replay *r, const json_t *receipt, struct error *e)
{
    const char *was = json_string_value(json_object_get(receipt, "model_sha256"));

    if (!was || strcmp(was, r->model) == 0)
        return 0;
    return error_set(e, ERR_MODEL,
                     "%s: answer %zu is of a model with SHA-256 %.16s…; %s has %.16s… (-m names "
                     "another file)",
                     r->name, r->at + 1, was, r->o.model ? r->o.model : "the bundled model",
                     r->model);
}

static int one(struct replay *r, const json_t *receipt, struct error *e)
{
    char *request = json_dumps(json_object_get(receipt, "request"), JSON_COMPACT);
    const char *seed = json_string_value(
        json_object_get(json_object_get(receipt, "settings"), "seed"));
    struct turn defaults = {.max_tokens = r->o.n_predict,
                            .ignore_eos = r->o.ignore_eos,
                            .stops = r->o.stop.items,
                            .n_stops = r->o.stop.n};
    struct batch_line line = {0};
    int rc = request ? grammar_from_options(&r->o, &defaults.grammar, e)
                     : error_set(e, ERR_MEMORY, "out of memory for %s", r->name);

    sampling_from_options(&r->o, &defaults.sampling);
    if (seed)
        defaults.sampling.seed = strtoull(seed, NULL, 10);
    if (rc == 0)
        rc = batch_line_read(&line, request, strlen(request), &defaults, false, NULL, e);
    if (rc == 0)
        rc = batch_line_edit(&line, engine_info(r->g), e);
    if (rc < 0)
        error_prefix(e, "%s: answer %zu", r->name, r->at + 1);
    else
        rc = derive(r, receipt, &line, e);
    batch_line_release(&line);
    grammar_free(defaults.grammar);
    free(request); /* allocated by jansson */
    return rc;
}

/* false: it is marked as not reproducible. */
static bool is_whole(const struct replay *r, const json_t *receipt)
{
    const char *none = json_string_value(json_object_get(receipt, "none"));
    char name[120];

    if (none)
        printf("%s: cannot be derived again: %s\n", name_answer(r, name), none);
    return !none;
}

static int all(struct replay *r, struct error *e)
{
    int rc = 0;

    for (; r->at < json_array_size(r->receipts) && rc == 0; r->at++) {
        const json_t *receipt = json_array_get(r->receipts, r->at);

        if (!is_whole(r, receipt))
            continue;
        if ((rc = check_receipt(r, receipt, e)) == 0 && (rc = prepare(r, receipt, e)) == 0 &&
            (rc = check_model(r, receipt, e)) == 0)
            rc = one(r, receipt, e);
    }
    if (rc == 0 && r->different)
        rc = error_set(e, ERR_INPUT, "%d of %zu answers could not be derived again", r->different,
                       json_array_size(r->receipts));
    return rc;
}

int replay_run(struct options *o, struct error *e)
{
    struct replay r = {.name = o->replay, .parallel = parallel_most(o)};
    int rc = options_copy(&r.o, o, e);

    signals_catch();
    if (rc == 0 && (rc = read_receipts(&r, e)) == 0)
        rc = all(&r, e);
    close_engine(&r);
    receipt_text_release(&r.got);
    strbuf_release(&r.shown);
    strbuf_release(&r.thought);
    json_decref(r.receipts);
    options_release(&r.o);
    return rc;
}
