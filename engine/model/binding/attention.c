/* What mixers have: attention, latent and compressed attention, their norms and indexers. See
 * bind.h. */
#include "engine/model/binding/parts.h"

/* Files may hold keys and values of a layer that reads another one's; nothing reads them. */
static void pass_over_keys(struct binding *b, int layer)
{
    static const enum tensor_role roles[] = {TENSOR_K, TENSOR_V, TENSOR_K_NORM};

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const struct tensor_view *t = family_tensor(b->family, b->model->file, roles[i], layer, 0,
                                                    false);

        if (t)
            b->used[t->index] = 1;
    }
}

/* Of q and k. */
static int bind_head_norms(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    bool whole = a->qk_norm == QK_NORM_WHOLE;
    char name[128];
    int rc;

    if (a->qk_norm == QK_NORM_NONE)
        return 0;
    if (a->q_norm_unsaid != 0.0f &&
        !family_tensor(b->family, b->model->file, TENSOR_Q_NORM, layer, 0, false)) {
        family_gguf_name(b->family, TENSOR_Q_NORM, layer, false, false, name, sizeof name);
        if (name[0]) /* as in a GGUF file made of the folder */
            b->model->n_params += 2 * a->key_dim;
        return (rc = bind_add_filled(b, &w->q_norm, a->q_norm_unsaid, a->key_dim, e))
                   ? rc
                   : bind_add_filled(b, &w->k_norm, 1.0f, a->key_dim, e);
    }
    if ((rc = bind_vector(b, &w->q_norm, TENSOR_Q_NORM, layer,
                          whole ? a->heads * a->key_dim : a->key_dim, e)))
        return rc;
    bind_one_more(b);
    if (a->keys_of)
        return 0;
    if ((rc = bind_vector(b, &w->k_norm, TENSOR_K_NORM, layer,
                          whole ? a->kv_heads * a->key_dim : a->key_dim, e)))
        return rc;
    bind_one_more(b);
    return 0;
}

/* The indexer of blocks; in folders one matrix gives its queries and its key. */
static int bind_block_indexer(struct binding *b, struct layer_weights *w, int layer,
                              struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    const struct tensor_view *both = family_tensor(b->family, b->model->file, TENSOR_INDEX_QK,
                                                   layer, 0, false);
    int hidden = b->model->hp.hidden, dim = a->index_dim, q = a->index_heads * dim, rc;

    if (!both)
        rc = (rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, q, hidden, e))
                 ? rc
                 : bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, dim, hidden, e);
    else if (!(rc = bind_check_shape(b, both, q + dim, hidden, 0, e)) &&
             !(rc = bind_add_matrix(b, &w->index_q, TENSOR_INDEX_Q, layer, both, 0, q, hidden, e)))
        rc = bind_add_matrix(b, &w->index_k, TENSOR_INDEX_K, layer, both, q, dim, hidden, e);
    if (rc || (rc = bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, dim, e)))
        return rc;
    bind_one_more(b);
    if ((rc = bind_vector(b, &w->index_q_norm, TENSOR_INDEX_Q_NORM, layer, dim, e)))
        return rc;
    bind_one_more(b);
    return 0;
}

/* A folder's heads of several experts become heads of one matrix, those that read the same keys
 * beside each other. */
static int bind_regrouped(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, of_one = a->kv_heads * a->key_dim, rc;
    struct job_heads rows = {a->experts, a->kv_heads, a->key_dim, false}, columns = rows;
    const struct tensor_view *q = bind_want(b, TENSOR_HEADS_Q, layer, 0, e), *kv, *o;

    columns.columns = true;
    if (!q || !(kv = bind_want(b, TENSOR_KV, layer, 0, e)) ||
        !(o = bind_want(b, TENSOR_HEADS_O, layer, 0, e)))
        return ERR_MODEL;
    if (q->packed || o->packed || dtype_is_quantised(o->type))
        return error_set(e, ERR_MODEL, "%s: tensor %s is packed; floats are needed here",
                         weight_file_path(b->model->file), q->packed ? q->name : o->name);
    if ((rc = bind_check_shape(b, q, a->experts, of_one, hidden, e)) ||
        (rc = bind_check_shape(b, kv, 2 * of_one, hidden, 0, e)) ||
        (rc = bind_check_shape(b, o, a->experts, hidden, of_one, e)) ||
        (rc = bind_add_job(b, TENSOR_Q, layer,
                           (struct matrix_job){.matrix = &w->q, .tensor = q, .heads = rows},
                           a->experts * of_one, hidden, e)) ||
        (rc = bind_add_matrix(b, &w->k, TENSOR_K, layer, kv, 0, of_one, hidden, e)) ||
        (rc = bind_add_matrix(b, &w->v, TENSOR_V, layer, kv, of_one, of_one, hidden, e)) ||
        (rc = bind_add_job(b, TENSOR_O, layer,
                           (struct matrix_job){.matrix = &w->o, .tensor = o, .heads = columns},
                           hidden, a->experts * of_one, e)))
        return rc;
    return bind_vector(b, &w->o.bias, TENSOR_HEADS_BIAS, layer, hidden, e);
}

/* Scores are computed in F32, as those of other experts are. */
static int bind_head_router(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int experts = hparams_layer(&b->model->hp, layer)->mixer.experts, hidden = b->model->hp.hidden;
    const struct tensor_view *t = bind_want(b, TENSOR_HEADS_ROUTER, layer, 0, e);
    int rc = t ? bind_check_shape(b, t, experts, hidden, 0, e) : ERR_MODEL;

    return rc ? rc : bind_add_vector(b, &w->head_router, t, 0, (int64_t)experts * hidden, e);
}

int bind_attention(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    const struct mixer_shape *a = &hparams_layer(hp, layer)->mixer;
    const struct tensor_view *fused = family_tensor(b->family, b->model->file, TENSOR_QKV, layer, 0,
                                                    false);
    bool turned = family_tensor_turned(b->family, b->model->file, TENSOR_QKV, fused);
    int q = a->heads * shape_query_dim(a), kv = a->kv_heads * a->key_dim,
        values = a->kv_heads * shape_value_dim(a), all = q + kv + values, rc;
    struct {
        struct matrix *m;
        enum tensor_role role;
        int first, rows;
    } part[3] = {
        {&w->q, TENSOR_Q, 0, q}, {&w->k, TENSOR_K, q, kv}, {&w->v, TENSOR_V, q + kv, values}};

    if (a->experts && (rc = bind_head_router(b, w, layer, e)))
        return rc;
    if (a->experts && family_tensor(b->family, b->model->file, TENSOR_HEADS_Q, layer, 0, false))
        return bind_regrouped(b, w, layer, e);
    if (fused && (rc = turned ? bind_check_shape(b, fused, hp->hidden, all, 0, e)
                              : bind_check_shape(b, fused, all, hp->hidden, 0, e)))
        return rc;
    if (a->keys_of)
        pass_over_keys(b, layer);
    for (int i = 0; i < (a->keys_of ? 1 : a->values_are_keys ? 2 : 3); i++) {
        if (!fused) {
            if ((rc = bind_plain(b, part[i].m, part[i].role, layer, part[i].rows, hp->hidden, e)))
                return rc;
            continue;
        }
        if ((rc = turned ? bind_add_transposed(b, part[i].m, part[i].role, layer, fused,
                                               part[i].first, 1, all, part[i].rows, hp->hidden, e)
                         : bind_add_matrix(b, part[i].m, part[i].role, layer, fused, part[i].first,
                                           part[i].rows, hp->hidden, e)) ||
            (rc = bind_add_bias(b, &part[i].m->bias, TENSOR_QKV, layer, part[i].first, part[i].rows,
                                all, e)))
            return rc;
    }
    if ((rc = bind_head_norms(b, w, layer, e)))
        return rc;
    if ((a->index_heads && (rc = bind_block_indexer(b, w, layer, e))) ||
        (a->sinks && (rc = bind_vector(b, &w->sinks, TENSOR_SINKS, layer, a->heads, e))) ||
        (shape_gates(a) &&
         (rc = bind_plain(b, &w->z, TENSOR_MIX_Z, layer, shape_gates(a), hp->hidden, e))))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hp->hidden, a->heads * shape_value_dim(a), e);
}

/* All heads of k or v: heads x rows of cols. */
static int bind_heads(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                      int heads, int rows, int cols, struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, t, heads, rows, cols, e)))
        return rc;
    return bind_add_matrix(b, m, role, layer, t, 0, heads * rows, cols, e);
}

/* Keys and values from a latent row, separate in GGUF files, else to be separated: only then can
 * queries and outputs stay in the latent space (absorbed, arXiv:2405.04434, 2.1.2). */
static int bind_latent_heads(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    const struct tensor_view *both = family_tensor(b->family, b->model->file, TENSOR_KV_B, layer, 0,
                                                   false);
    int nope = a->key_dim - a->rope_dims, each = nope + a->value_dim, rc;

    if (!both && weight_file_format(b->model->file) == WEIGHT_GGUF)
        return (rc = bind_heads(b, &w->k_b, TENSOR_K_B, layer, a->heads, a->kv_rank, nope, e))
                   ? rc
                   : bind_heads(b, &w->v_b, TENSOR_V_B, layer, a->heads, a->value_dim, a->kv_rank,
                                e);
    if (!(both = bind_want(b, TENSOR_KV_B, layer, 0, e)))
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, both, a->heads * each, a->kv_rank, 0, e)) ||
        (rc = bind_add_job(
             b, TENSOR_K_B, layer,
             (struct matrix_job){.matrix = &w->k_b, .tensor = both, .split = {each, 0, nope, true}},
             a->heads * a->kv_rank, nope, e)))
        return rc;
    return bind_add_job(b, TENSOR_V_B, layer,
                        (struct matrix_job){.matrix = &w->v_b,
                                            .tensor = both,
                                            .split = {each, nope, a->value_dim, false}},
                        a->heads * a->value_dim, a->kv_rank, e);
}

/* Queries of the indexer come from the row that MLA's do. */
static int bind_indexer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, heads = a->index_heads, dim = a->index_dim, rc;

    if ((rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, heads * dim, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, dim, hidden, e)) ||
        (rc = bind_plain(b, &w->index_weights, TENSOR_INDEX_WEIGHTS, layer, heads, hidden, e)) ||
        (rc = bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, dim, e)))
        return rc;
    return bind_bias(b, &w->index_norm_bias, TENSOR_INDEX_NORM, layer, dim, e);
}

int bind_latent(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, q = a->heads * a->key_dim, rc;

    rc = !a->q_rank ? bind_plain(b, &w->q, TENSOR_Q, layer, q, hidden, e)
         : (rc = bind_plain(b, &w->q_a, TENSOR_Q_A, layer, a->q_rank, hidden, e)) ? rc
         : (rc = bind_vector(b, &w->q_norm, TENSOR_Q_A_NORM, layer, a->q_rank, e))
             ? rc
             : bind_plain(b, &w->q, TENSOR_Q_B, layer, q, a->q_rank, e);
    if (rc ||
        (rc = bind_plain(b, &w->kv_a, TENSOR_KV_A, layer, a->kv_rank + a->rope_dims, hidden, e)) ||
        (rc = bind_vector(b, &w->k_norm, TENSOR_KV_A_NORM, layer, a->kv_rank, e)) ||
        (rc = bind_latent_heads(b, w, layer, e)) ||
        (a->gated && (rc = bind_plain(b, &w->z, TENSOR_MIX_Z, layer, a->heads, hidden, e))) ||
        (a->index_heads && (rc = bind_indexer(b, w, layer, e))))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hidden, a->heads * a->value_dim, e);
}

/* What compressed rows are made of, and their indexer's. */
static int bind_compressors(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, n = shape_compressed(a), of_index = shape_index_compressed(a),
        rc;

    if ((rc = bind_plain(b, &w->compress_keys, TENSOR_COMPRESS_KEYS, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->compress_gates, TENSOR_COMPRESS_GATES, layer, n, hidden, e)) ||
        (rc = bind_matrix_values(b, &w->compress_bias, TENSOR_COMPRESS_BIAS, layer, a->block, n,
                                 e)) ||
        (rc = bind_vector(b, &w->compress_norm, TENSOR_COMPRESS_NORM, layer, a->key_dim, e)) ||
        !a->index_heads)
        return rc;
    if ((rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, a->index_heads * a->index_dim,
                         a->q_rank, e)) ||
        (rc = bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, of_index, hidden, e)) ||
        (rc = bind_plain(b, &w->index_gate, TENSOR_INDEX_GATE, layer, of_index, hidden, e)) ||
        (rc = bind_plain(b, &w->index_weights, TENSOR_INDEX_WEIGHTS, layer, a->index_heads, hidden,
                         e)) ||
        (rc = bind_matrix_values(b, &w->index_bias, TENSOR_INDEX_BIAS, layer, a->block, of_index,
                                 e)))
        return rc;
    return bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, a->index_dim, e);
}

int bind_compressed(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, q = a->heads * a->key_dim, out = a->out_groups * a->out_rank,
        rc;

    if ((rc = bind_plain(b, &w->q_a, TENSOR_Q_A, layer, a->q_rank, hidden, e)) ||
        (rc = bind_vector(b, &w->q_norm, TENSOR_Q_A_NORM, layer, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->q, TENSOR_Q_B, layer, q, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->kv_a, TENSOR_KV_A, layer, a->key_dim, hidden, e)) ||
        (rc = bind_vector(b, &w->k_norm, TENSOR_KV_A_NORM, layer, a->key_dim, e)) ||
        (rc = bind_vector(b, &w->sinks, TENSOR_SINKS, layer, a->heads, e)) ||
        (a->block && (rc = bind_compressors(b, w, layer, e))) ||
        (rc = bind_plain(b, &w->o_a, TENSOR_O_A, layer, out, q / a->out_groups, e)))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hidden, out, e);
}
