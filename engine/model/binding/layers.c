/* Strict binding: every tensor the family needs must exist with the shape given by the
 * hyperparameters, and every tensor of the file must be used. Thread: the one that loads. It makes
 * lists of jobs (bind.h) instead of loading at once: the order of loading, its threads and its
 * memory are then decided in one place, with everything known. */
#include "engine/model/binding/parts.h"

#include "engine/base/mem.h"

#include <string.h>

static int bind_mixer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;

    return s->kind == MIXER_NONE         ? 0
           : s->kind == MIXER_MLA        ? bind_latent(b, w, layer, e)
           : s->kind == MIXER_COMPRESSED ? bind_compressed(b, w, layer, e)
           : s->kind == MIXER_CONVOLVED  ? bind_convolved(b, w, layer, e)
           : shape_recurrent(s)          ? bind_recurrent(b, w, layer, e)
                                         : bind_attention(b, w, layer, e);
}

/* The norms of one operator; role: of the only one, if there is no other. */
static int bind_around(struct binding *b, struct norm_weights *before, struct norm_weights *after,
                       enum tensor_role role, enum tensor_role role_after, int layer,
                       struct error *e)
{
    const struct norms_shape *s = &hparams_layer(&b->model->hp, layer)->norms;
    int rc = s->before ? bind_norm(b, before, role, layer, e) : 0;

    return rc || !s->after ? rc : bind_norm(b, after, norms_sum(s) ? role : role_after, layer, e);
}

/* Norms of a dense part and routed experts in parallel. */
static int bind_apart(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int rc;

    if ((rc = bind_norm(b, &w->routed_norm, TENSOR_ROUTED_NORM, layer, e)) ||
        (rc = bind_norm(b, &w->routed_after, TENSOR_ROUTED_AFTER, layer, e)) ||
        (rc = bind_norm(b, &w->shared_after, TENSOR_SHARED_AFTER, layer, e)))
        return rc;
    return bind_values(b, &w->router_norm.weight, TENSOR_ROUTER_NORM, layer, b->model->hp.hidden,
                       VECTOR_OVER_ROOT, 0, e);
}

static int bind_norms(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct layer_shape *s = hparams_layer(&b->model->hp, layer);
    enum tensor_role of_experts = s->parallel ? TENSOR_ATTENTION_NORM : TENSOR_EXPERT_NORM;
    int rc;

    if ((s->mixer.kind != MIXER_NONE &&
         (rc = bind_around(b, &w->attention_norm, &w->attention_after, TENSOR_ATTENTION_NORM,
                           TENSOR_ATTENTION_AFTER, layer, e))) ||
        (s->ffn.kind != FFN_NONE &&
         (rc = bind_around(b, &w->expert_norm, &w->expert_after, of_experts, TENSOR_EXPERT_AFTER,
                           layer, e))) ||
        (s->ffn.kind == FFN_DENSE_AND_ROUTED && (rc = bind_apart(b, w, layer, e))))
        return rc;
    if (s->weighted && ((rc = bind_residual(b, &w->mixed, TENSOR_MIXED_SCALE, layer, e)) ||
                        (rc = bind_residual(b, &w->combined, TENSOR_EXPERTS_SCALE, layer, e))))
        return rc;
    return s->scaled ? bind_values(b, &w->scale, TENSOR_LAYER_SCALE, layer, 1, VECTOR_PLAIN, 0, e)
                     : 0;
}

/* What joins the layer's own inputs to the stream. */
static int bind_layer_inputs(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, n = hparams_layer(&b->model->hp, layer)->inputs, rc;

    if (!n)
        return 0;
    if ((rc = bind_plain(b, &w->input_gate, TENSOR_INPUT_GATE, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->input_out, TENSOR_INPUT_OUT, layer, hidden, n, e)))
        return rc;
    return bind_norm(b, &w->input_after, TENSOR_INPUT_AFTER, layer, e);
}

/* What mixes the streams around a layer. */
static int bind_streams(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    int n = hp->streams, rc;

    if (!n || hparams_hyper(hp))
        return bind_hyper(b, w, layer, e);
    if ((rc = bind_norm(b, &w->stream_norm, TENSOR_STREAM_NORM, layer, e)) ||
        (rc = bind_matrix_values(b, &w->stream_router, TENSOR_STREAM_ROUTER, layer, n, hp->hidden,
                                 e)) ||
        (rc = bind_matrix_values(b, &w->stream_predict, TENSOR_STREAM_PREDICT, layer, n * n, n,
                                 e)) ||
        (rc = bind_matrix_values(b, &w->stream_correct, TENSOR_STREAM_CORRECT, layer, n, n, e)))
        return rc;
    return hp->streams_scaled
               ? bind_vector(b, &w->stream_scale, TENSOR_STREAM_SCALE, layer, hp->hidden, e)
               : 0;
}

/* The learned residual beside a layer's mixer. */
static int bind_laurel(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, n = b->model->hp.laurel, rc;

    if (!n)
        return 0;
    if ((rc = bind_plain(b, &w->laurel_in, TENSOR_LAUREL_IN, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->laurel_out, TENSOR_LAUREL_OUT, layer, hidden, n, e)))
        return rc;
    return bind_norm(b, &w->laurel_after, TENSOR_LAUREL_AFTER, layer, e);
}

static int bind_layer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int rc;

    b->counted = &b->total.router_norms;
    if ((rc = bind_norms(b, w, layer, e)) || (rc = bind_router(b, w, layer, e)) ||
        (rc = bind_streams(b, w, layer, e)))
        return rc;
    b->counted = &b->total.attention;
    if ((rc = bind_mixer(b, w, layer, e)) || (rc = bind_layer_inputs(b, w, layer, e)) ||
        (rc = bind_laurel(b, w, layer, e)) || (rc = bind_ngrams(b, w, layer, e)))
        return rc;
    b->counted = &b->total.experts;
    return bind_experts(b, w, layer, e);
}

/* Whether it is a tensor of a layer beyond the model's last. */
static bool behind_the_last(const struct binding *b, const char *name)
{
    int layer;

    return (sscanf(name, "model.layers.%d.", &layer) == 1 ||
            sscanf(name, "blk.%d.", &layer) == 1) &&
           layer >= b->model->hp.n_layers;
}

/* Purpose of an unused tensor, in words; NULL: unknown. */
static const char *purpose_of(const struct binding *b, const char *name)
{
    const char *what = family_ignores(b->family, name);

    return what ? what : b->family->extra_layers && behind_the_last(b, name) ? FAMILY_MTP : NULL;
}

#define PURPOSES 8

/* Counted by purpose, for the one-line report. */
struct unused {
    const char *what[PURPOSES];
    int tensors[PURPOSES];
};

static void count_unused(struct unused *u, const char *what)
{
    int i = 0;

    while (i < PURPOSES - 1 && u->what[i] && strcmp(u->what[i], what) != 0)
        i++;
    u->what[i] = what;
    u->tensors[i]++;
}

static void tell_unused(const struct unused *u, char *out, size_t size)
{
    for (int i = 0; i < PURPOSES && u->what[i]; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%d tensor%s of %s",
                 i ? ", " : "not used: ", u->tensors[i], u->tensors[i] == 1 ? "" : "s", u->what[i]);
}

/* An unknown tensor means a variant of the architecture that this program would compute wrongly. */
static int check_all_used(struct binding *b, struct error *e)
{
    const struct weight_file *f = b->model->file;
    struct unused unused = {0};
    static const enum tensor_role read_before[] = {TENSOR_ROPE_SHORT, TENSOR_ROPE_LONG,
                                                   TENSOR_ROPE_FREQS};

    for (size_t i = 0; i < sizeof read_before / sizeof *read_before; i++) {
        const struct tensor_view *t = family_tensor(b->family, f, read_before[i], 0, 0, false);

        if (t)
            b->used[t->index] = 1;
    }
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const char *what = b->used[i] ? NULL : purpose_of(b, weight_file_at(f, i)->name);

        if (what && b->options->mtp_used && b->model->has_mtp && strcmp(what, FAMILY_MTP) == 0)
            continue;
        if (what)
            count_unused(&unused, what);
        else if (!b->used[i])
            return error_set(e, ERR_MODEL,
                             "%s: tensor %s is no part of a %s model of %d layers and %d experts",
                             weight_file_path(f), weight_file_at(f, i)->name, b->family->name,
                             b->model->hp.n_layers, b->model->hp.n_experts);
    }
    tell_unused(&unused, b->model->unused, sizeof b->model->unused);
    return 0;
}

/* Vectors first, together: matrices may be packed long after them, and scattered vectors would
 * populate their huge pages before that. */
static void join_arena(struct binding *b)
{
    bind_reserve(b, &b->arena, 0, BIND_PAGE);
    for (size_t i = 0; i < b->n_matrices; i++)
        if (!b->matrices[i].mapped && !b->matrices[i].paged)
            b->matrices[i].to += b->arena;
    b->arena += b->arena_matrices;
}

int bind_model(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    uint64_t most = 0;
    int rc;

    if (!(b->used = mem_alloc(weight_file_count(m->file), 1)))
        return error_set(e, ERR_MEMORY, "out of memory for the binding");
    if ((rc = b->options->mtp_of ? bind_mtp(b, e) : bind_ends(b, e)))
        return rc;
    for (int l = 0; l < m->hp.n_layers; l++)
        if ((rc = bind_layer(b, &m->layers[l], l, e)))
            return rc;
    bind_skip_keys(b);
    if (!b->options->mtp_of && (rc = check_all_used(b, e)))
        return rc;
    join_arena(b);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (b->by_type[t] > most) {
            most = b->by_type[t];
            m->type = (enum dtype)t;
        }
    /* Active: parameters that a token is multiplied with. A look-up in the embeddings is not, so
     * those count only if they are the head. */
    m->n_params_active =
        m->n_params - (m->hp.tied_embeddings ? 0 : m->embeddings.dims[0] * m->embeddings.dims[1]) -
        (m->input_table.data ? m->input_table.dims[0] * m->input_table.dims[1] : 0);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;
        const struct ngram_weights *g = &m->layers[l].ngrams;

        for (int i = 0; i < g->n_parts; i++)
            m->n_params_active -= g->parts[i]->dims[0] * g->parts[i]->dims[1];
        m->n_params_active -= (int64_t)(activation_gated(s->activation) ? 3 : 2) * m->hp.hidden *
                              s->width * (s->experts - s->used);
        if (s->grouped)
            m->n_params_active -= (int64_t)3 * m->hp.hidden * s->shared_width *
                                  (shape_further(s) - shape_further_used(s));
    }
    return 0;
}

void bind_release(struct binding *b)
{
    mem_free(b->matrices);
    mem_free(b->vectors);
    mem_free(b->used);
}
