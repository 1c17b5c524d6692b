/* What is before the first layer and behind the last: tables of rows, projections of inputs, ends
 * of streams, the head, the MTP block. See bind.h. */
#include "engine/model/binding/parts.h"

#include "engine/file/packed.h"
#include "engine/layout/pack.h"

/* Pages of a row, which may start anywhere in a page. */
static size_t pages_of_row(size_t bytes)
{
    return (bytes + 2 * (size_t)BIND_PAGE - 2) / BIND_PAGE * BIND_PAGE;
}

/* Packings in which files have embeddings. */
static bool table_unpacked(const struct packed *p)
{
    return p->kind == PACKING_ROWS || p->kind == PACKING_MLX || p->kind == PACKING_MXFP4_ROWS ||
           p->kind == PACKING_NVFP4 || p->kind == PACKING_NVFP4_BLOCKS;
}

int bind_rows(struct binding *b, const struct tensor_view *t, enum tensor_role role, int cols,
              int rows, struct error *e)
{
    bool hashed = role == TENSOR_NGRAM_TABLE;

    if (!row_readable(t->type) ||
        (t->packed && (!table_unpacked(t->packed) || role == TENSOR_POSITIONS)))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s%s, which is not supported",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word,
                         t->packed ? ", packed" : "");
    b->total.embeddings += t->bytes;
    b->total.mapped += t->bytes;
    *(hashed ? &b->total.ngrams : &b->total.tables) += t->bytes;
    *(hashed ? &b->total.ngram_rows : &b->total.table_row) +=
        (uint64_t)rows * pages_of_row(dtype_row_bytes(t->type, cols));
    return 0;
}

/* A table whose rows are read in the mapped file: `rows` of them, or any number. */
static int bind_table(struct binding *b, struct tensor_view *table, enum tensor_role role,
                      int64_t rows, int cols, struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, 0, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, t, rows ? rows : t->dims[0], cols, 0, e)) ||
        (rc = bind_rows(b, t, role, cols, 1, e)))
        return rc;
    *table = *t;
    return 0;
}

static int bind_positions(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int rc = bind_table(b, &m->positions, TENSOR_POSITIONS, 0, m->hp.hidden, e);

    if (!rc && m->positions.dims[0] <= m->hp.position_offset)
        return error_set(e, ERR_MODEL, "%s: tensor %s holds no position", weight_file_path(m->file),
                         m->positions.name);
    if (!rc)
        m->n_params += m->positions.dims[0] * m->hp.hidden;
    return rc;
}

/* Where tokens' inputs of single layers come from. The table may have fewer rows than the
 * vocabulary, whose last tokens stand for images and sounds. */
static int bind_inputs_table(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int n = hparams_inputs(&m->hp), rc;

    if (!n)
        return 0;
    if ((rc = bind_table(b, &m->input_table, TENSOR_INPUT_TABLE, 0, n, e)))
        return rc;
    m->n_params += m->input_table.dims[0] * n;
    b->counted = &b->total.router_norms;
    if ((rc = bind_vector(b, &m->input_norm, TENSOR_INPUT_NORM, 0, n / m->hp.n_layers, e)))
        return rc;
    b->counted = &b->total.attention;
    return bind_plain(b, &m->input_project, TENSOR_INPUT_PROJECT, 0, n, m->hp.hidden, e);
}

/* A square matrix of each stream but the first: a tensor each, or all in one. */
static int bind_stream_matrices(struct binding *b, struct matrix *to, enum tensor_role role,
                                struct error *e)
{
    int n = b->model->hp.streams - 1, hidden = b->model->hp.hidden, rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        const struct tensor_view *t = bind_want(b, role, 0, i, e);
        bool all = t && t->n_dims == 3;

        if (!t)
            return ERR_MODEL;
        if ((rc = all ? bind_check_shape(b, t, n, hidden, hidden, e)
                      : bind_check_shape(b, t, hidden, hidden, 0, e)))
            return rc;
        rc = bind_add_matrix(b, &to[i], role, 0, t, all ? (int64_t)i * hidden : 0, hidden, hidden,
                             e);
    }
    return rc;
}

static int bind_stream_ends(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int rc;

    if (!m->hp.streams)
        return 0;
    b->counted = &b->total.attention;
    if (hparams_hyper(&m->hp))
        return bind_hyper_end(b, e);
    if ((rc = bind_stream_matrices(b, m->stream_in, TENSOR_STREAM_IN, e)))
        return rc;
    return bind_stream_matrices(b, m->stream_out, TENSOR_STREAM_OUT, e);
}

/* Layers that read others' keys may have some, which are not used (Gemma 3n's files). */
void bind_skip_keys(struct binding *b)
{
    static const enum tensor_role own[] = {TENSOR_K, TENSOR_V, TENSOR_K_NORM};
    const struct hparams *hp = &b->model->hp;

    for (int l = 0; l < hp->n_layers; l++)
        for (size_t i = 0; i < sizeof own / sizeof *own && hparams_layer(hp, l)->mixer.keys_of;
             i++) {
            const struct tensor_view *t = family_tensor(b->family, b->model->file, own[i], l, 0,
                                                        false);

            if (t)
                b->used[t->index] = 1;
        }
}

static int bind_projections(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int width = m->hp.embedding_width, hidden = m->hp.hidden,
        rc = bind_matrix_values(b, &m->project_in, TENSOR_PROJECT_IN, 0, hidden, width, e);

    return rc ? rc
              : bind_matrix_values(b, &m->project_out, TENSOR_PROJECT_OUT, 0, width, hidden, e);
}

static bool has(const struct binding *b, enum tensor_role role)
{
    return family_tensor(b->family, b->model->file, role, 0, 0, false) != NULL;
}

/* Its join, whose halves may be two tensors. */
static int bind_join(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int hidden = m->hp.hidden, rc;
    const struct tensor_view *embedding, *state;

    if (!has(b, TENSOR_MTP_JOIN_EMBEDDING) && !has(b, TENSOR_MTP_JOIN_STATE))
        return bind_plain(b, &m->mtp.join, TENSOR_MTP_JOIN, 0, hidden, 2 * hidden, e);
    if (!(embedding = bind_want(b, TENSOR_MTP_JOIN_EMBEDDING, 0, 0, e)) ||
        !(state = bind_want(b, TENSOR_MTP_JOIN_STATE, 0, 0, e)))
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, embedding, hidden, hidden, 0, e)) ||
        (rc = bind_check_shape(b, state, hidden, hidden, 0, e)))
        return rc;
    return bind_add_job(
        b, TENSOR_MTP_JOIN, 0,
        (struct matrix_job){.matrix = &m->mtp.join, .tensor = embedding, .beside = state}, hidden,
        2 * hidden, e);
}

/* Binds the MTP block. */
int bind_mtp(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    const struct model *of = b->options->mtp_of;
    int hidden = m->hp.hidden, rc = 0;

    if (has(b, TENSOR_MTP_EMBEDDINGS))
        rc = bind_table(b, &m->embeddings, TENSOR_MTP_EMBEDDINGS, m->hp.n_vocab, hidden, e);
    else
        m->embeddings = of->embeddings;
    if (rc)
        return rc;
    b->counted = &b->total.router_norms;
    if ((rc = bind_norm(b, &m->mtp.embedding_norm, TENSOR_MTP_EMBEDDING_NORM, 0, e)) ||
        (rc = bind_norm(b, &m->mtp.hidden_norm, TENSOR_MTP_HIDDEN_NORM, 0, e)))
        return rc;
    if (!has(b, TENSOR_MTP_NORM) && b->family->mtp_last_norm)
        m->output_norm = of->output_norm;
    else if ((rc = bind_norm(b, &m->output_norm, TENSOR_MTP_NORM, 0, e)))
        return rc;
    if (b->family->mtp_normed)
        m->mtp.state_norm = of->output_norm;
    b->counted = &b->total.attention;
    if ((rc = bind_join(b, e)) || (hparams_hyper(&m->hp) && (rc = bind_hyper_end(b, e))))
        return rc;
    b->counted = &b->total.head;
    if (has(b, TENSOR_MTP_HEAD))
        return bind_plain(b, &m->head, TENSOR_MTP_HEAD, 0, m->hp.n_vocab, hidden, e);
    m->head = of->head;
    m->head.lora = NULL; /* strengths are the model's sessions' */
    return 0;
}

int bind_ends(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int width = m->hp.embedding_width ? m->hp.embedding_width : m->hp.hidden, rc;

    if ((rc = bind_table(b, &m->embeddings, TENSOR_EMBEDDINGS, m->hp.n_vocab, width, e)) ||
        (m->hp.common.mixer.learned_positions && (rc = bind_positions(b, e))) ||
        (rc = bind_inputs_table(b, e)) || (rc = bind_stream_ends(b, e)))
        return rc;
    b->counted = &b->total.router_norms;
    if (m->hp.embedding_weighted &&
        ((rc = bind_vector(b, &m->embedding_scale, TENSOR_EMBEDDINGS_SCALE, 0, m->hp.hidden, e)) ||
         (rc = bind_vector(b, &m->embedding_shift, TENSOR_EMBEDDINGS_SHIFT, 0, m->hp.hidden, e))))
        return rc;
    if ((m->hp.embedding_width && (rc = bind_projections(b, e))) ||
        (norms_last(&m->hp.common.norms) &&
         (rc = bind_norm(b, &m->output_norm, TENSOR_OUTPUT_NORM, 0, e))))
        return rc;
    b->counted = &b->total.head;
    if (m->hp.tied_embeddings)
        return bind_add_matrix(b, &m->head, TENSOR_HEAD, 0,
                               bind_want(b, TENSOR_EMBEDDINGS, 0, 0, e), 0, m->hp.n_vocab, width,
                               e);
    m->n_params += (int64_t)m->hp.n_vocab * width;
    return bind_plain(b, &m->head, TENSOR_HEAD, 0, m->hp.n_vocab, width, e);
}
