/* See record.h. */
#include "app/lab/record.h"

#include "app/lab/token_class.h"
#include "app/lab/trace_write.h"
#include "engine/base/mem.h"
#include "engine/base/message.h"
#include "engine/base/path.h"
#include "engine/device/expert_edits.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"
#include "engine/run/report/messages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The sequence that a session is in, and the position that comes next in it. */
struct open_sequence {
    const struct session *session;
    int number, next;
};

struct recorder {
    char *path;
    bool scores, logprobs, failed; /* failed: a write; nothing comes behind it */
    struct trace_writer *writer;   /* NULL: no model yet */
    struct trace_head head;
    struct token_traits *traits; /* by token */
    int n_vocab, n_sequences;
    struct open_sequence *open;
    size_t n_open;
    uint8_t *by;
    int16_t *experts;
    float *weights, *row_scores;
    uint64_t n; /* tokens written */
};

int recorder_open(struct recorder **out, const char *path, bool scores, bool logprobs,
                  struct error *e)
{
    struct recorder *r;

    *out = NULL;
    if (!trace_path_known(path))
        return error_set(e, ERR_USAGE,
                         "--routing-trace %s: a .jsonl or a .safetensors file, by its ending",
                         path);
    if (!(r = mem_alloc(1, sizeof *r)) || !(r->path = mem_string(path))) {
        mem_free(r);
        return error_set(e, ERR_MEMORY, "out of memory for the routing trace");
    }
    r->scores = scores;
    r->logprobs = logprobs;
    *out = r;
    return 0;
}

int recorder_head(struct trace_head *h, const struct model *m, bool scores, struct error *e)
{
    const struct hparams *hp = &m->hp;

    *h = (struct trace_head){.version = TRACE_VERSION,
                             .hash = m->hash,
                             .layers = hp->n_layers,
                             .experts = hp->n_experts,
                             .scores = scores};
    snprintf(h->model, sizeof h->model, "%s", path_name(weight_file_path(m->file)));
    for (int l = 0; l < hp->n_layers && l < TRACE_LAYERS; l++) {
        const struct ffn_shape *s = &hparams_layer(hp, l)->ffn;

        if (s->kind == FFN_NONE || s->used <= 0 || s->experts <= 1)
            continue;
        h->routed[l] = (uint16_t)s->experts;
        h->used[l] = (uint16_t)s->used;
        h->slots = s->used > h->slots ? s->used : h->slots;
    }
    if (!h->slots)
        return error_set(e, ERR_USAGE, "%s has no layer with a router: there is no routing",
                         weight_file_path(m->file));
    if (hp->n_layers > TRACE_LAYERS || hp->n_experts > TRACE_EXPERTS || h->slots > TRACE_SLOTS)
        return error_set(e, ERR_USAGE, "%s: more layers or experts than a routing trace holds",
                         weight_file_path(m->file));
    return 0;
}

int recorder_model(struct recorder *r, const struct engine_info *info, struct error *e)
{
    struct trace_head head;
    int rc = recorder_head(&head, info->model, r->scores, e);
    size_t cells;

    if (rc < 0)
        return error_prefix(e, "--routing-trace");
    head.logprobs = r->logprobs;
    r->n_open = 0; /* sessions of an engine before it */
    if (r->writer && head.hash == r->head.hash &&
        trace_head_match(&r->head, r->path, &head, head.model, e) == 0)
        return 0;
    if (r->writer)
        return error_set(e, ERR_USAGE,
                         "--routing-trace %s is of %s: a trace is of one model; end it first, or "
                         "begin another run",
                         r->path, r->head.model);
    r->head = head;
    cells = (size_t)(head.layers * head.slots);
    r->by = mem_alloc((size_t)head.layers, 1);
    r->experts = mem_alloc(cells, sizeof *r->experts);
    r->weights = mem_alloc(cells, sizeof *r->weights);
    r->row_scores = mem_alloc((size_t)head.layers * (size_t)head.experts, sizeof *r->row_scores);
    r->n_vocab = info->model->hp.n_vocab;
    r->traits = mem_alloc((size_t)r->n_vocab, sizeof *r->traits);
    if (!r->by || !r->experts || !r->weights || !r->row_scores || !r->traits)
        return error_set(e, ERR_MEMORY, "out of memory for the routing trace");
    for (int id = 0; id < r->n_vocab && info->tokenizer; id++)
        r->traits[id] = token_traits(info->tokenizer, id);
    return trace_writer_open(&r->writer, r->path, &head, e);
}

/* The session's sequence; a new one where it begins at its start, or does not go on. NULL: no
 * memory. */
static struct open_sequence *sequence_of(struct recorder *r, const struct routing *from)
{
    struct open_sequence *s = NULL;

    for (size_t i = 0; i < r->n_open; i++)
        if (r->open[i].session == from->session)
            s = &r->open[i];
    if (!s) {
        if (!MEM_FIT(r->open, r->n_open + 1))
            return NULL;
        s = &r->open[r->n_open++];
        *s = (struct open_sequence){.session = from->session, .number = -1};
    }
    if (s->number < 0 || from->pos == 0 || from->pos != s->next)
        s->number = r->n_sequences++;
    s->next = from->pos + from->rows;
    return s;
}

/* The message that a position belongs to. */
static void place_message(const struct routing *r, int pos, struct trace_token *t)
{
    const struct prompt *p = r->prompt;
    const int *messages = p && p->n_messages ? prompt_messages(p) : NULL;

    t->message = -1;
    t->role = TRACE_ROLE_TEXT;
    for (int i = 0; messages && i < p->n_messages && (messages[2 * i] <= pos || i == 0); i++) {
        t->message = i;
        t->role = (uint8_t)messages[2 * i + 1];
    }
    t->answer = p && pos >= p->n;
    if (t->answer && t->message < 0)
        t->role = ROLE_ASSISTANT;
}

int recorder_rows(struct recorder *r, const struct routing *from, struct error *e)
{
    const struct trace_head *h = &r->head;
    struct open_sequence *s;
    int rc;

    if (r->failed)
        return 0;
    s = sequence_of(r, from);
    rc = s ? 0 : error_set(e, ERR_MEMORY, "out of memory for the routing trace");
    for (int i = 0; i < from->rows && rc == 0; i++) {
        struct trace_token t = {.seed = (int64_t)from->seed,
                                .sequence = s->number,
                                .position = from->pos + i,
                                .token = from->ids[i],
                                .logprob = h->logprobs ? from->logprobs[i] : NAN};

        if (t.token >= 0 && t.token < r->n_vocab) {
            t.class = r->traits[t.token].class;
            t.script = r->traits[t.token].script;
            t.stopword = r->traits[t.token].stopword;
        }
        place_message(from, t.position, &t);
        for (int l = 0; l < h->layers; l++) {
            size_t at = (size_t)l * from->layer_stride + (size_t)(i * from->used);

            r->by[l] = from->imposed                                       ? BY_REPLAY
                       : h->used[l] > 0 && expert_edits_of(from->edits, l) ? BY_EDITED
                                                                           : BY_ROUTER;
            for (int k = 0; k < h->slots; k++) {
                bool there = k < h->used[l] && k < from->used;

                r->experts[l * h->slots + k] = there ? (int16_t)from->experts[at + (size_t)k] : -1;
                r->weights[l * h->slots + k] = there ? from->weights[at + (size_t)k] : 0;
            }
            for (int x = 0; h->scores && x < h->routed[l]; x++)
                r->row_scores[l * h->experts + x] =
                    from->scores[(size_t)l * from->score_stride + (size_t)i * (size_t)h->experts +
                                 (size_t)x];
        }
        rc = trace_writer_token(r->writer, &t, r->by, r->experts, r->weights,
                                h->scores ? r->row_scores : NULL, e);
        r->n += rc == 0;
    }
    if (rc == 0)
        rc = trace_writer_flush(r->writer, e);
    r->failed = rc < 0;
    return rc;
}

const char *recorder_path(const struct recorder *r)
{
    return r->path;
}

uint64_t recorder_tokens(const struct recorder *r)
{
    return r->n;
}

int recorder_close(struct recorder *r, struct error *e)
{
    int rc;

    if (!r)
        return 0;
    rc = trace_writer_close(r->writer, e);
    mem_free(r->path);
    mem_free(r->traits);
    mem_free(r->by);
    mem_free(r->open);
    mem_free(r->experts);
    mem_free(r->weights);
    mem_free(r->row_scores);
    mem_free(r);
    return rc;
}
