/* See block.h. */
#include "engine/model/block.h"

static int experts_in(const struct model *m, int layer)
{
    return shape_experts(hparams_layer(&m->hp, layer));
}

/* Those of hyper-connections, the first of which is `part`. */
static int list_hyper(struct block_matrix *to, int n, const struct hyper_weights *w,
                      enum matrix_part part)
{
    to[n++] = (struct block_matrix){&w->down, part};
    to[n++] = (struct block_matrix){&w->up, part + 1};
    to[n++] = (struct block_matrix){&w->mix, part + 2};
    return n;
}

int model_block_matrices(const struct model *m, struct block_id id,
                         struct block_matrix out[BLOCK_MATRICES])
{
    const struct layer_weights *l = id.kind == BLOCK_HEAD ? NULL : &m->layers[id.layer];
    const struct expert_weights *x = NULL;
    struct block_matrix all[BLOCK_MATRICES] = {{&m->head, MATRIX_HEAD}};
    int n = 1, found = 0;

    if (id.kind == BLOCK_EXPERT) {
        if (id.expert >= experts_in(m, id.layer))
            return 0;
        x = &l->experts[id.expert];
        all[0] = (struct block_matrix){&x->gate, MATRIX_GATE};
        all[1] = (struct block_matrix){&x->up, MATRIX_UP};
        all[2] = (struct block_matrix){&x->down, MATRIX_DOWN};
        n = 3;
    } else if (l) {
        all[0] = (struct block_matrix){&l->q, MATRIX_Q};
        all[1] = (struct block_matrix){&l->k, MATRIX_K};
        all[2] = (struct block_matrix){&l->v, MATRIX_V};
        all[3] = (struct block_matrix){&l->o, MATRIX_O};
        all[4] = (struct block_matrix){&l->in, MATRIX_IN};
        all[5] = (struct block_matrix){&l->z, MATRIX_Z};
        all[6] = (struct block_matrix){&l->b, MATRIX_B};
        all[7] = (struct block_matrix){&l->a, MATRIX_A};
        all[8] = (struct block_matrix){&l->z_in, MATRIX_Z_IN};
        all[9] = (struct block_matrix){&l->a_in, MATRIX_A_IN};
        all[10] = (struct block_matrix){&l->q_a, MATRIX_Q_A};
        all[11] = (struct block_matrix){&l->kv_a, MATRIX_KV_A};
        all[12] = (struct block_matrix){&l->k_b, MATRIX_K_B};
        all[13] = (struct block_matrix){&l->v_b, MATRIX_V_B};
        all[14] = (struct block_matrix){&l->index_q, MATRIX_INDEX_Q};
        all[15] = (struct block_matrix){&l->index_k, MATRIX_INDEX_K};
        all[16] = (struct block_matrix){&l->index_weights, MATRIX_INDEX_WEIGHTS};
        all[17] = (struct block_matrix){&l->index_gate, MATRIX_INDEX_GATE};
        all[18] = (struct block_matrix){&l->compress_keys, MATRIX_COMPRESS_KEYS};
        all[19] = (struct block_matrix){&l->compress_gates, MATRIX_COMPRESS_GATES};
        all[20] = (struct block_matrix){&l->o_a, MATRIX_O_A};
        all[21] = (struct block_matrix){&l->input_gate, MATRIX_INPUT_GATE};
        all[22] = (struct block_matrix){&l->input_out, MATRIX_INPUT_OUT};
        all[23] = (struct block_matrix){&l->laurel_in, MATRIX_LAUREL_IN};
        all[24] = (struct block_matrix){&l->laurel_out, MATRIX_LAUREL_OUT};
        all[25] = (struct block_matrix){&l->v_before, MATRIX_V_BEFORE};
        all[26] = (struct block_matrix){&l->ngrams.key, MATRIX_NGRAM_KEY};
        all[27] = (struct block_matrix){&l->ngrams.value, MATRIX_NGRAM_VALUE};
        n = 28;
        if (id.layer == 0)
            all[n++] = (struct block_matrix){&m->input_project, MATRIX_INPUT_PROJECT};
        for (int i = 0; id.layer == 0 && i + 1 < m->hp.streams; i++)
            all[n++] = (struct block_matrix){&m->stream_in[i], MATRIX_STREAM_IN};
        for (int i = 0; id.layer == 0 && i + 1 < m->hp.streams; i++)
            all[n++] = (struct block_matrix){&m->stream_out[i], MATRIX_STREAM_OUT};
        n = list_hyper(all, n, &l->hyper[0], MATRIX_HYPER_MIXER_DOWN);
        n = list_hyper(all, n, &l->hyper[1], MATRIX_HYPER_FFN_DOWN);
        if (id.layer == 0)
            n = list_hyper(all, n, &m->hyper_end, MATRIX_HYPER_END_DOWN);
        if (id.layer == 0)
            all[n++] = (struct block_matrix){&m->mtp.join, MATRIX_JOIN};
    }
    for (int i = 0; i < n; i++)
        if (all[i].w->bytes)
            out[found++] = all[i];
    return found;
}

const char *matrix_part_name(enum matrix_part part)
{
    static const char *const names[MATRIX_PARTS] = {"q",
                                                    "k",
                                                    "v",
                                                    "o",
                                                    "in",
                                                    "z",
                                                    "beta",
                                                    "a",
                                                    "z_in",
                                                    "a_in",
                                                    "q_a",
                                                    "kv_a",
                                                    "k_b",
                                                    "v_b",
                                                    "index_q",
                                                    "index_k",
                                                    "index_weights",
                                                    "index_gate",
                                                    "compress_keys",
                                                    "compress_gates",
                                                    "o_a",
                                                    "input_gate",
                                                    "input_out",
                                                    "laurel_in",
                                                    "laurel_out",
                                                    "v_before",
                                                    "ngram_key",
                                                    "ngram_value",
                                                    "input_project",
                                                    "stream_in",
                                                    "stream_out",
                                                    "hc_attn_down",
                                                    "hc_attn_up",
                                                    "hc_attn_mix",
                                                    "hc_ffn_down",
                                                    "hc_ffn_up",
                                                    "hc_ffn_mix",
                                                    "hc_down",
                                                    "hc_up",
                                                    "hc_mix",
                                                    "join",
                                                    "gate",
                                                    "up",
                                                    "down",
                                                    "head"};

    return names[part];
}

size_t model_qk_norm_values(const struct model *m, int layer, bool queries)
{
    const struct mixer_shape *s = &hparams_layer(&m->hp, layer)->mixer;
    const float *norm = queries ? m->layers[layer].q_norm : m->layers[layer].k_norm;

    return !norm                         ? 0
           : s->kind == MIXER_MLA        ? (size_t)(queries ? s->q_rank : s->kv_rank)
           : s->kind == MIXER_COMPRESSED ? (size_t)(queries ? s->q_rank : s->key_dim)
           : s->qk_norm == QK_NORM_WHOLE
               ? (size_t)(queries ? s->heads : s->kv_heads) * (size_t)s->key_dim
               : (size_t)s->key_dim;
}

size_t model_recurrent_values(const struct model *m, int layer)
{
    const struct mixer_shape *s = &hparams_layer(&m->hp, layer)->mixer;
    const struct recurrent_weights *w = &m->layers[layer].recurrent;
    size_t heads = (size_t)s->heads, channels = (size_t)shape_channels(s);

    if (!shape_recurrent(s))
        return 0;
    if (s->kind == MIXER_MAMBA1)
        return channels * ((size_t)s->taps + (w->conv_bias != NULL) + (size_t)s->state + 2) +
               (size_t)shape_selection(s);
    return channels * ((size_t)s->taps + (w->conv_bias != NULL)) +
           heads * ((w->a != NULL) + (w->skip != NULL)) +
           (w->dt_bias ? heads * (s->kind == MIXER_KIMI_DELTA ? (size_t)s->key_dim : 1) : 0) +
           (w->norm ? (s->kind == MIXER_MAMBA2 ? heads : 1) * (size_t)s->value_dim : 0);
}

static uint64_t norm_bytes(const struct model *m, const struct norm_weights *n)
{
    return (uint64_t)m->hp.hidden * sizeof(float) * ((n->weight != NULL) + (n->bias != NULL));
}

static uint64_t layer_norm_bytes(const struct model *m, const struct layer_weights *l)
{
    return norm_bytes(m, &l->attention_norm) + norm_bytes(m, &l->expert_norm) +
           norm_bytes(m, &l->attention_after) + norm_bytes(m, &l->expert_after) +
           norm_bytes(m, &l->routed_norm) + norm_bytes(m, &l->routed_after) +
           norm_bytes(m, &l->shared_after) + norm_bytes(m, &l->router_norm) +
           norm_bytes(m, &l->input_after) + norm_bytes(m, &l->stream_norm) +
           norm_bytes(m, &l->laurel_after);
}

uint64_t model_hyper_values(const struct model *m, const struct hyper_weights *w)
{
    uint64_t n = (uint64_t)m->hp.streams;

    return (w->norm ? n * (uint64_t)m->hp.hidden : 0) +
           (w->base ? (uint64_t)w->mix.rows + (w == &m->hyper_end ? 1 : 3) : 0);
}

/* What mixes a layer's streams, besides matrices. */
static uint64_t stream_bytes(const struct model *m, const struct layer_weights *l)
{
    uint64_t n = (uint64_t)m->hp.streams, hidden = (uint64_t)m->hp.hidden;

    if (hparams_hyper(&m->hp))
        return sizeof(float) *
               (model_hyper_values(m, &l->hyper[0]) + model_hyper_values(m, &l->hyper[1]) +
                (l == m->layers ? model_hyper_values(m, &m->hyper_end) : 0));
    return sizeof(float) * (n * hidden + n * n * n + n * n + (l->stream_scale ? hidden : 0));
}

/* F32 values of compressors besides their matrices and the indexer's norm. */
static uint64_t compressor_values(const struct mixer_shape *s)
{
    if (s->kind != MIXER_COMPRESSED || !s->block)
        return 0;
    return (uint64_t)s->block * (uint64_t)(shape_compressed(s) + shape_index_compressed(s)) +
           (uint64_t)s->key_dim;
}

/* What a router makes its row of, and scores from it. */
static uint64_t router_row_values(const struct model *m, int layer)
{
    const struct router_shape *s = &hparams_layer(&m->hp, layer)->ffn.router;
    uint64_t n = (uint64_t)s->row;

    return n * ((uint64_t)m->hp.hidden + 2 * n + 4 + (m->layers[layer].router_row.carry != NULL));
}

/* Of n-grams besides their matrices and table. */
static uint64_t ngram_values(const struct ngram_shape *s)
{
    return s->size ? (uint64_t)s->channels * (uint64_t)(3 + s->taps) : 0;
}

/* Convolutions and factors of convolved attention. */
static uint64_t convolved_values(const struct model *m, int layer)
{
    const struct mixer_shape *s = &hparams_layer(&m->hp, layer)->mixer;
    const struct layer_weights *l = &m->layers[layer];

    return s->kind != MIXER_CONVOLVED
               ? 0
               : (uint64_t)shape_channels(s) *
                         (uint64_t)(s->taps + (l->recurrent.conv_bias != NULL) +
                                    s->head_taps * s->key_dim + (l->head_conv_bias != NULL)) +
                     (uint64_t)s->kv_heads;
}

struct block_bytes model_block_parts(const struct model *m, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    struct block_bytes b = {0};
    int n = model_block_matrices(m, id, list);

    for (int i = 0; i < n; i++) {
        b.matrices += list[i].w->bytes;
        b.biases += list[i].w->bias ? (uint64_t)list[i].w->rows * sizeof(float) : 0;
    }
    if (id.kind == BLOCK_HEAD) {
        b.norms = norm_bytes(m, &m->output_norm);
    } else if (id.kind == BLOCK_ATTENTION) {
        const struct layer_weights *l = &m->layers[id.layer];
        const struct ffn_shape *s = &hparams_layer(&m->hp, id.layer)->ffn;
        uint64_t choices = (uint64_t)shape_choices(s),
                 cols = (uint64_t)(s->router.row ? s->router.row : m->hp.hidden);

        b.norms = layer_norm_bytes(m, l) + (l->scale ? sizeof(float) : 0) + stream_bytes(m, l) +
                  (model_qk_norm_values(m, id.layer, true) +
                   model_qk_norm_values(m, id.layer, false) + model_recurrent_values(m, id.layer)) *
                      sizeof(float);
        b.router = ((l->router ? choices : 0) + (l->shared_router != NULL)) * cols * sizeof(float) +
                   router_row_values(m, id.layer) * sizeof(float) +
                   ((l->router_bias ? choices : 0) + (l->score_bias ? choices : 0) +
                    (l->expert_scale ? (uint64_t)s->experts : 0)) *
                       sizeof(float);
        if (l->head_router)
            b.router += (uint64_t)hparams_layer(&m->hp, id.layer)->mixer.experts *
                        (uint64_t)m->hp.hidden * sizeof(float);
        b.norms += (convolved_values(m, id.layer) +
                    ngram_values(&hparams_layer(&m->hp, id.layer)->mixer.ngrams)) *
                   sizeof(float);
        if (hparams_layer(&m->hp, id.layer)->weighted)
            b.norms += 8 * (uint64_t)m->hp.hidden * sizeof(float);
        if (l->index_norm)
            b.norms += (l->index_bias ? 1 : 2) *
                       (uint64_t)hparams_layer(&m->hp, id.layer)->mixer.index_dim * sizeof(float);
        b.norms += compressor_values(&hparams_layer(&m->hp, id.layer)->mixer) * sizeof(float);
        b.router += l->token_experts ? (uint64_t)m->hp.n_vocab * (uint64_t)s->used * sizeof(float)
                                     : 0;
        if (l->sinks)
            b.biases += (uint64_t)hparams_layer(&m->hp, id.layer)->mixer.heads * sizeof(float);
    }
    return b;
}

uint64_t model_block_bytes(const struct model *m, struct block_id id)
{
    struct block_bytes b = model_block_parts(m, id);

    return b.matrices + b.biases + b.norms + b.router;
}

uint64_t model_token_experts(const struct model *m, int layer)
{
    const struct ffn_shape *f = &hparams_layer(&m->hp, layer)->ffn;
    uint64_t routed = 0, further = 0;

    for (int x = 0; x < experts_in(m, layer); x++)
        *(x < f->experts ? &routed : &further) +=
            model_block_parts(m, (struct block_id){BLOCK_EXPERT, layer, x}).matrices;
    if (f->grouped)
        further = further * (uint64_t)shape_further_used(f) / (uint64_t)shape_further(f);
    return (f->experts ? routed * (uint64_t)f->used / (uint64_t)f->experts : 0) + further;
}

uint64_t model_token_mixer(const struct model *m, int layer)
{
    const struct mixer_shape *s = &hparams_layer(&m->hp, layer)->mixer;
    const struct layer_weights *l = &m->layers[layer];
    uint64_t all = model_block_parts(m, (struct block_id){BLOCK_ATTENTION, layer, 0}).matrices;

    if (!s->experts)
        return all;
    return all -
           (l->q.bytes + l->o.bytes) * (uint64_t)(s->experts - s->used) / (uint64_t)s->experts;
}

void model_largest_expert(const struct model *m, uint64_t bytes[3])
{
    struct block_matrix list[BLOCK_MATRICES];

    bytes[0] = bytes[1] = bytes[2] = 0;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = id.kind == BLOCK_EXPERT ? model_block_matrices(m, id, list) - 1 : -1; i >= 0;
             i--) {
            uint64_t *most = &bytes[list[i].part - MATRIX_GATE];

            *most = list[i].w->bytes > *most ? list[i].w->bytes : *most;
        }
}

bool model_block_next(const struct model *m, struct block_id *id)
{
    int expert = id->kind == BLOCK_EXPERT ? id->expert + 1 : 0;

    if (id->kind == BLOCK_HEAD)
        return false;
    if (id->layer >= 0 && expert < experts_in(m, id->layer))
        *id = (struct block_id){BLOCK_EXPERT, id->layer, expert};
    else if (id->layer + 1 < m->hp.n_layers)
        *id = (struct block_id){BLOCK_ATTENTION, id->layer + 1, 0};
    else
        *id = (struct block_id){BLOCK_HEAD, 0, 0};
    return true;
}
