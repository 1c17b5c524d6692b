/* Binding of hyper-connections. Thread: that of the binding. */
#include "engine/model/bind.h"

/* One place where the streams are read, whose first tensor is `role`; rows of its mix, 0: none;
 * scales: numbers of base's parts. */
static int bind_place(struct binding *b, struct hyper_weights *w, int role, int layer, int rows,
                      int scales, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    int all = hp->streams * hp->hidden, rc;

    if (hp->stream_kind == STREAMS_GATED) {
        if ((rc = bind_values(b, &w->norm, role + HYPER_NORM, layer, all, VECTOR_PLAIN, 0, e)))
            return rc;
        bind_one_more(b);
        if ((rc = bind_plain(b, &w->down, role + HYPER_DOWN, layer, hp->stream_rank, all, e)) ||
            (rc = bind_plain(b, &w->up, role + HYPER_UP, layer, all, hp->stream_rank, e)))
            return rc;
    }
    if (rows && (rc = bind_plain(b, &w->mix, role + HYPER_MIX, layer, rows, all, e)))
        return rc;
    if (hp->stream_kind == STREAMS_GATED)
        return 0;
    if ((rc = bind_values(b, &w->base, role + HYPER_BASE, layer, rows, VECTOR_PLAIN, 0, e)))
        return rc;
    return bind_values(b, &w->scale, role + HYPER_SCALE, layer, scales, VECTOR_PLAIN, 0, e);
}

int bind_hyper(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    int n = hp->streams, rows = hp->stream_kind == STREAMS_GATED ? n : (2 + n) * n, rc;

    if (!hparams_hyper(hp))
        return 0;
    rc = bind_place(b, &w->hyper[0], TENSOR_HYPER_MIXER_NORM, layer, rows, 3, e);
    return rc ? rc : bind_place(b, &w->hyper[1], TENSOR_HYPER_FFN_NORM, layer, rows, 3, e);
}

int bind_hyper_end(struct binding *b, struct error *e)
{
    const struct hparams *hp = &b->model->hp;

    return bind_place(b, &b->model->hyper_end, TENSOR_HYPER_END_NORM, 0,
                      hp->stream_kind == STREAMS_GATED ? 0 : hp->streams, 1, e);
}
