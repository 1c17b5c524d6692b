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

/* The end of the model that an MTP block is of. */
static struct hyper_weights end_of(const struct model *of)
{
    struct hyper_weights w = of->hyper_end;

    w.down.lora = w.up.lora = w.mix.lora = NULL; /* strengths are the model's sessions' */
    return w;
}

/* An MTP block's end may be its model's in GGUF files, as llama.cpp computes it there. */
int bind_hyper_end(struct binding *b, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    const struct model *of = b->options->mtp_of;
    bool gated = hp->stream_kind == STREAMS_GATED;
    int first = of ? TENSOR_MTP_END_NORM : TENSOR_HYPER_END_NORM;

    if (of && weight_file_format(b->model->file) == WEIGHT_GGUF &&
        !family_tensor(b->family, b->model->file, first + (gated ? HYPER_DOWN : HYPER_MIX), 0, 0,
                       false)) {
        b->model->hyper_end = end_of(of);
        return 0;
    }
    return bind_place(b, &b->model->hyper_end, first, 0, gated ? 0 : hp->streams, 1, e);
}
