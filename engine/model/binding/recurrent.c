/* Binding a recurrent mixer's tensors (bind.h). Thread: the one that loads. */
#include "engine/model/bind.h"

static bool in_gguf(const struct binding *b)
{
    return weight_file_format(b->model->file) == WEIGHT_GGUF;
}

static bool has(const struct binding *b, enum tensor_role role, int layer)
{
    return family_tensor(b->family, b->model->file, role, layer, 0, false) != NULL;
}

static int bind_taps(struct binding *b, const float **taps, enum tensor_role role, int layer,
                     int channels, struct error *e)
{
    int n = hparams_layer(&b->model->hp, layer)->mixer.taps;

    return bind_values(b, taps, role, layer, (int64_t)channels * n, VECTOR_PLAIN, n, e);
}

static int bind_convolution(struct binding *b, struct recurrent_weights *w, int layer,
                            struct error *e)
{
    static const enum tensor_role apart[] = {TENSOR_CONV_Q, TENSOR_CONV_K, TENSOR_CONV_V};
    int channels = shape_channels(&hparams_layer(&b->model->hp, layer)->mixer), rc = 0;

    if (has(b, TENSOR_CONV_Q, layer)) {
        for (int i = 0; i < 3 && !rc; i++)
            rc = bind_taps(b, &w->conv[i], apart[i], layer, channels / 3, e);
        return rc;
    }
    if ((rc = bind_taps(b, &w->conv[0], TENSOR_CONV, layer, channels, e)))
        return rc;
    return bind_bias(b, &w->conv_bias, TENSOR_CONV, layer, channels, e);
}

static int bind_vector(struct binding *b, const float **to, enum tensor_role role, int layer,
                       int64_t n, struct error *e)
{
    return bind_values(b, to, role, layer, n, VECTOR_PLAIN, 0, e);
}

/* llama.cpp's converters store -exp(A_log), for Kimi that or exp(A_log). */
static int bind_decay(struct binding *b, struct recurrent_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    bool kimi = s->kind == MIXER_KIMI_DELTA;
    int rc = bind_values(b, &w->a, TENSOR_DECAY, layer, s->heads,
                         in_gguf(b) ? (kimi ? VECTOR_SIZE : VECTOR_PLAIN)
                         : kimi     ? VECTOR_EXP
                                    : VECTOR_MINUS_EXP,
                         0, e);

    if (rc)
        return rc;
    return bind_values(b, &w->dt_bias, TENSOR_DT_BIAS, layer, s->heads * (kimi ? s->key_dim : 1),
                       VECTOR_PLAIN, 0, e);
}

static int bind_delta_net(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, values = s->heads * s->value_dim,
        channels = shape_channels(s), rc;
    bool z = has(b, TENSOR_MIX_Z, layer), a = has(b, TENSOR_MIX_A, layer);

    if ((rc = bind_plain(b, &w->in, TENSOR_MIX_IN, layer, channels + (z ? 0 : values), hidden,
                         e)) ||
        (z && (rc = bind_plain(b, &w->z, TENSOR_MIX_Z, layer, values, hidden, e))) ||
        (rc = bind_plain(b, &w->b, TENSOR_MIX_B, layer, (a ? 1 : 2) * s->heads, hidden, e)))
        return rc;
    return a ? bind_plain(b, &w->a, TENSOR_MIX_A, layer, s->heads, hidden, e) : 0;
}

/* A projection, in two matrices if rank is not 0. */
static int bind_thin(struct binding *b, struct matrix *in, struct matrix *out,
                     enum tensor_role role, int layer, int rows, int rank, struct error *e)
{
    enum tensor_role first = role == TENSOR_MIX_Z ? TENSOR_MIX_Z_IN : TENSOR_MIX_A_IN;
    int hidden = b->model->hp.hidden, rc;

    if (rank && (rc = bind_plain(b, in, first, layer, rank, hidden, e)))
        return rc;
    return bind_plain(b, out, role, layer, rows, rank ? rank : hidden, e);
}

static int bind_kimi(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, keys = s->heads * s->key_dim,
        values = s->heads * s->value_dim, rc;

    if ((rc = bind_plain(b, &w->q, TENSOR_Q, layer, keys, hidden, e)) ||
        (rc = bind_plain(b, &w->k, TENSOR_K, layer, keys, hidden, e)) ||
        (rc = bind_plain(b, &w->v, TENSOR_V, layer, values, hidden, e)) ||
        (rc = bind_thin(b, &w->z_in, &w->z, TENSOR_MIX_Z, layer, values, s->z_rank, e)) ||
        (rc = bind_plain(b, &w->b, TENSOR_MIX_B, layer, s->heads, hidden, e)))
        return rc;
    return bind_thin(b, &w->a_in, &w->a, TENSOR_MIX_A, layer, keys, s->a_rank, e);
}

static int bind_selective(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int values = s->value_dim, rc;

    if ((rc = bind_plain(b, &w->in, TENSOR_MIX_IN, layer, 2 * values, b->model->hp.hidden, e)) ||
        (rc = bind_plain(b, &w->a_in, TENSOR_MIX_A_IN, layer, shape_selection(s), values, e)))
        return rc;
    return bind_plain(b, &w->a, TENSOR_MIX_A, layer, values, s->a_rank, e);
}

/* Projections. */
static int bind_inputs(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden;

    switch (s->kind) {
    case MIXER_DELTA_NET: return bind_delta_net(b, w, layer, e);
    case MIXER_KIMI_DELTA: return bind_kimi(b, w, layer, e);
    case MIXER_MAMBA2:
        return bind_plain(b, &w->in, TENSOR_MIX_IN, layer,
                          s->heads * s->value_dim + shape_channels(s) + s->heads, hidden, e);
    case MIXER_MAMBA1: return bind_selective(b, w, layer, e);
    default: return bind_plain(b, &w->in, TENSOR_MIX_IN, layer, 3 * hidden, hidden, e);
    }
}

/* Mamba 1: everything is a channel's own. */
static int bind_state_space(struct binding *b, struct recurrent_weights *w, int layer,
                            struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int rc = bind_values(b, &w->a, TENSOR_DECAY, layer, (int64_t)s->value_dim * s->state,
                         in_gguf(b) ? VECTOR_PLAIN : VECTOR_MINUS_EXP, s->state, e);

    if (rc || (rc = bind_vector(b, &w->dt_bias, TENSOR_DT_BIAS, layer, s->value_dim, e)) ||
        (rc = bind_vector(b, &w->skip, TENSOR_SKIP, layer, s->value_dim, e)) ||
        (rc = bind_vector(b, &w->dt_norm, TENSOR_DT_NORM, layer, s->a_rank, e)) ||
        (rc = bind_vector(b, &w->b_norm, TENSOR_B_NORM, layer, s->state, e)))
        return rc;
    return bind_vector(b, &w->c_norm, TENSOR_C_NORM, layer, s->state, e);
}

int bind_recurrent(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int values = s->heads * s->value_dim, rc;

    if ((rc = bind_inputs(b, w, layer, e)) ||
        (rc = bind_plain(b, &w->o, TENSOR_O, layer, b->model->hp.hidden, values, e)) ||
        (rc = bind_convolution(b, &w->recurrent, layer, e)))
        return rc;
    if (s->kind == MIXER_SHORT_CONVOLUTION)
        return 0;
    if (s->kind == MIXER_MAMBA1)
        return bind_state_space(b, &w->recurrent, layer, e);
    if ((rc = bind_decay(b, &w->recurrent, layer, e)) ||
        (s->kind == MIXER_MAMBA2 && (rc = bind_values(b, &w->recurrent.skip, TENSOR_SKIP, layer,
                                                      s->heads, VECTOR_PLAIN, 0, e))))
        return rc;
    if (s->kind == MIXER_MAMBA2)
        return bind_groups(b, &w->recurrent.norm, TENSOR_MIX_NORM, layer, s->groups,
                           values / s->groups, e);
    return bind_vector(b, &w->recurrent.norm, TENSOR_MIX_NORM, layer, s->value_dim, e);
}

int bind_convolved(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, queries = s->heads * s->key_dim, half = shape_half_values(s),
        channels = shape_channels(s), rc;

    if ((rc = bind_plain(b, &w->q, TENSOR_Q, layer, queries, hidden, e)) ||
        (rc = bind_plain(b, &w->k, TENSOR_K, layer, s->kv_heads * s->key_dim, hidden, e)) ||
        (rc = bind_plain(b, &w->v, TENSOR_V, layer, half, hidden, e)) ||
        (rc = bind_plain(b, &w->v_before, TENSOR_V_BEFORE, layer, half, hidden, e)) ||
        (rc = bind_plain(b, &w->o, TENSOR_O, layer, hidden, queries, e)) ||
        (rc = bind_convolution(b, &w->recurrent, layer, e)) ||
        (rc = bind_values(b, &w->head_conv, TENSOR_CONV_HEADS, layer,
                          (int64_t)channels * s->key_dim * s->head_taps, VECTOR_PLAIN, s->head_taps,
                          e)) ||
        (rc = bind_bias(b, &w->head_conv_bias, TENSOR_CONV_HEADS, layer, channels, e)))
        return rc;
    return bind_vector(b, &w->key_scale, TENSOR_KEY_SCALE, layer, s->kv_heads, e);
}
