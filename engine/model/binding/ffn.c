/* Routers and experts: one tensor each or all in one, in halves, shared, adjugate. See bind.h. */
#include "engine/model/binding/parts.h"

#include "engine/base/mem.h"

/* A tensor with a matrix for every expert, whose rows are `step` apart among `wide` ones, from
 * `first` on; and their biases. t NULL: each expert has its own tensors. */
struct stack {
    const struct tensor_view *t, *bias;
    int wide, first, step;
    bool transposed;
    bool same_bias; /* one for all of them */
};

static int find_stack(struct binding *b, int layer, enum tensor_role one, enum tensor_role all,
                      int rows, int cols, struct stack *s, struct error *e)
{
    const struct weight_file *f = b->model->file;
    int experts = hparams_layer(&b->model->hp, layer)->ffn.experts, rc;

    *s = (struct stack){
        .t = family_tensor(b->family, f, all, layer, 0, false), .wide = rows, .step = 1};
    if (!s->t && one != TENSOR_DOWN) {
        all = TENSOR_GATE_UPS;
        s->t = family_tensor(b->family, f, all, layer, 0, false);
        s->wide = 2 * rows;
        s->step = family_tensor_is(b->family, f, all, TENSOR_TURNS) ? 2 : 1;
        s->first = one == TENSOR_GATE ? 0 : s->step == 2 ? 1 : rows;
    }
    s->transposed = family_tensor_turned(b->family, f, all, s->t);
    s->bias = s->t ? family_tensor(b->family, f, all, layer, 0, true) : NULL;
    if (s->t && (rc = s->transposed ? bind_check_shape(b, s->t, experts, cols, s->wide, e)
                                    : bind_check_shape(b, s->t, experts, s->wide, cols, e)))
        return rc;
    if (s->t && !s->bias && one == TENSOR_DOWN &&
        (s->bias = family_tensor(b->family, f, TENSOR_SUM_BIAS, layer, 0, false))) {
        s->same_bias = true;
        return bind_check_shape(b, s->bias, rows, 0, 0, e);
    }
    return s->bias ? bind_check_shape(b, s->bias, experts, s->wide, 0, e) : 0;
}

static int add_stacked(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                       const struct stack *s, int x, int rows, int cols, struct error *e)
{
    int64_t at = (int64_t)x * s->wide;
    size_t row = dtype_row_bytes(s->t->type, cols);
    int rc = s->transposed
                 ? bind_add_transposed(b, m, role, layer, s->t, at * cols + s->first, s->step,
                                       s->wide, rows, cols, e)
                 : bind_add_job(b, role, layer,
                                (struct matrix_job){.matrix = m,
                                                    .tensor = s->t,
                                                    .from = (size_t)(at + s->first) * row,
                                                    .row_step = s->step > 1 ? (size_t)s->step * row
                                                                            : 0},
                                rows, cols, e);

    return rc || !s->bias ? rc
                          : bind_add_steps(b, &m->bias, s->bias, s->same_bias ? 0 : at + s->first,
                                           s->step, rows, e);
}

/* One of gate, up, down of every expert: a tensor each, one for all, or (gate and up) a fused one.
 */
static int bind_kind(struct binding *b, struct layer_weights *w, int layer, enum tensor_role one,
                     enum tensor_role all, size_t field, int rows, int cols, struct error *e)
{
    int experts = hparams_layer(&b->model->hp, layer)->ffn.experts;
    bool gguf = weight_file_format(b->model->file) == WEIGHT_GGUF;
    struct stack s;
    int rc = find_stack(b, layer, one, all, rows, cols, &s, e);

    for (int x = 0; x < experts && !rc; x++) {
        struct matrix *m = (struct matrix *)((char *)&w->experts[x] + field);
        const struct tensor_view *t;

        if (s.t) {
            rc = add_stacked(b, m, one, layer, &s, x, rows, cols, e);
            continue;
        }
        /* If none exists, the message uses the current spelling: GGUF files have one tensor for all
         * experts. */
        if (!(t = bind_want(b,
                            x == 0 && gguf &&
                                    !family_tensor(b->family, b->model->file, one, layer, 0, false)
                                ? all
                                : one,
                            layer, x, e)))
            return ERR_MODEL;
        if (!(rc = bind_check_shape(b, t, rows, cols, 0, e)))
            rc = bind_add_matrix(b, m, one, layer, t, 0, rows, cols, e);
    }
    return rc;
}

static int bind_expert(struct binding *b, struct expert_weights *w, int layer,
                       enum tensor_role gate, enum tensor_role up, enum tensor_role down, int width,
                       struct error *e)
{
    bool gated = activation_gated(hparams_layer(&b->model->hp, layer)->ffn.activation);
    int hidden = b->model->hp.hidden, rc;

    if ((gated && (rc = bind_plain(b, &w->gate, gate, layer, width, hidden, e))) ||
        (rc = bind_plain(b, &w->up, up, layer, width, hidden, e)))
        return rc;
    return bind_plain(b, &w->down, down, layer, hidden, width, e);
}

/* Gate and up of one tensor, gate first. */
static int bind_halves(struct binding *b, struct expert_weights *w, int layer,
                       const struct tensor_view *t, int width, struct error *e)
{
    int hidden = b->model->hp.hidden, rc = bind_check_shape(b, t, 2 * width, hidden, 0, e);

    if (!rc)
        rc = bind_add_matrix(b, &w->gate, TENSOR_GATE, layer, t, 0, width, hidden, e);
    return rc ? rc : bind_add_matrix(b, &w->up, TENSOR_UP, layer, t, width, width, hidden, e);
}

/* The always-used expert: the shared one after the routed ones, or all of a dense layer. */
static int bind_shared(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    struct expert_weights *x = &w->experts[s->experts];
    const struct tensor_view *fused = family_tensor(b->family, b->model->file,
                                                    TENSOR_SHARED_GATE_UP, layer, 0, false);
    int rc;

    if (fused && (rc = bind_halves(b, x, layer, fused, s->shared_width, e)))
        return rc;
    if (fused)
        return bind_plain(b, &x->down, TENSOR_SHARED_DOWN, layer, b->model->hp.hidden,
                          s->shared_width, e);
    return s->kind == FFN_DENSE ? bind_expert(b, x, layer, TENSOR_DENSE_GATE, TENSOR_DENSE_UP,
                                              TENSOR_DENSE_DOWN, s->shared_width, e)
                                : bind_expert(b, x, layer, TENSOR_SHARED_GATE, TENSOR_SHARED_UP,
                                              TENSOR_SHARED_DOWN, s->shared_width, e);
}

/* Folders may hold gates and ups of identities, too; nothing reads them. */
static void pass_over_identities(struct binding *b, const struct ffn_shape *s, int layer)
{
    static const enum tensor_role roles[] = {TENSOR_GATE, TENSOR_UP, TENSOR_DOWN};

    for (int x = s->experts; x < shape_choices(s); x++)
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            const struct tensor_view *t = family_tensor(b->family, b->model->file, roles[i], layer,
                                                        x, false);

            if (t)
                b->used[t->index] = 1;
        }
}

static int bind_routed(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int hidden = b->model->hp.hidden, rc;

    pass_over_identities(b, s, layer);
    if ((activation_gated(s->activation) &&
         (rc = bind_kind(b, w, layer, TENSOR_GATE, TENSOR_GATES,
                         offsetof(struct expert_weights, gate), s->width, hidden, e))) ||
        (rc = bind_kind(b, w, layer, TENSOR_UP, TENSOR_UPS, offsetof(struct expert_weights, up),
                        s->width, hidden, e)))
        return rc;
    return bind_kind(b, w, layer, TENSOR_DOWN, TENSOR_DOWNS, offsetof(struct expert_weights, down),
                     hidden, s->width, e);
}

/* A matrix of each adjugate expert: a tensor each, or all in one. */
static int bind_adjugates_of(struct binding *b, struct layer_weights *w, int layer,
                             enum tensor_role role, size_t field, int rows, int cols,
                             struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int n = shape_further(s), rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        struct matrix *to = (struct matrix *)((char *)&w->experts[s->experts + i] + field);
        const struct tensor_view *t = bind_want(b, role, layer, i, e);
        bool all = t && t->n_dims == 3;

        if (!t)
            return ERR_MODEL;
        if ((rc = all ? bind_check_shape(b, t, n, rows, cols, e)
                      : bind_check_shape(b, t, rows, cols, 0, e)))
            return rc;
        rc = bind_add_matrix(b, to, role, layer, t, all ? (int64_t)i * rows : 0, rows, cols, e);
    }
    return rc;
}

static int bind_adjugates(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, rc,
        width = hparams_layer(&b->model->hp, layer)->ffn.shared_width;

    if ((rc = bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_GATE,
                                offsetof(struct expert_weights, gate), width, hidden, e)) ||
        (rc = bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_UP,
                                offsetof(struct expert_weights, up), width, hidden, e)))
        return rc;
    return bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_DOWN,
                             offsetof(struct expert_weights, down), hidden, width, e);
}

int bind_experts(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int rc = 0;

    b->paging = b->options->expert_cache > 0;
    if (s->experts)
        rc = bind_routed(b, w, layer, e);
    b->paging = false;
    if (!rc && s->grouped)
        rc = bind_adjugates(b, w, layer, e);
    return rc || !s->shared ? rc : bind_shared(b, w, layer, e);
}

/* What a router makes its row of, and scores from it. */
static int bind_router_row(struct binding *b, struct router_weights *w, int layer, struct error *e)
{
    int n = hparams_layer(&b->model->hp, layer)->ffn.router.row, hidden = b->model->hp.hidden, rc;
    const struct {
        const float **to, **bias;
        enum tensor_role role;
        int cols;
    } parts[] = {{&w->in, &w->in_bias, TENSOR_ROUTER_IN, hidden},
                 {&w->first, &w->first_bias, TENSOR_ROUTER_FIRST, n},
                 {&w->second, &w->second_bias, TENSOR_ROUTER_SECOND, n}};
    char name[128];

    for (size_t i = 0; n && i < sizeof parts / sizeof *parts; i++) {
        if ((rc = bind_matrix_values(b, parts[i].to, parts[i].role, layer, n, parts[i].cols, e)) ||
            (rc = bind_bias(b, parts[i].bias, parts[i].role, layer, n, e)))
            return rc;
        family_tensor_name(b->family, b->model->file, parts[i].role, layer, 0, name, sizeof name);
        if (!family_tensor(b->family, b->model->file, parts[i].role, layer, 0, true))
            return error_set(e, ERR_MODEL, "%s: the bias of tensor %s is missing",
                             weight_file_path(b->model->file), name);
    }
    if (n && layer && (rc = bind_vector(b, &w->carry, TENSOR_ROUTER_CARRY, layer, n, e)))
        return rc;
    return n ? bind_vector(b, &w->norm, TENSOR_ROUTER_ROW_NORM, layer, n, e) : 0;
}

/* What the parts of a weighted stream are shifted by and multiplied with. */
int bind_residual(struct binding *b, struct residual_weights *w, enum tensor_role first, int layer,
                  struct error *e)
{
    const float **const to[] = {&w->scale, &w->shift, &w->stream_scale, &w->stream_shift};
    int rc = 0;

    for (int i = 0; i < 4 && !rc; i++)
        rc = bind_vector(b, to[i], (enum tensor_role)(first + i), layer, b->model->hp.hidden, e);
    return rc;
}

/* The scores of experts are computed in F32, whatever the file's type. */
/* The table that says which experts a token has; integers, which F32 holds exactly. */
static int bind_token_experts(struct binding *b, struct layer_weights *w, int layer,
                              struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    const struct tensor_view *t = bind_want(b, TENSOR_TOKEN_EXPERTS, layer, 0, e);
    int64_t n = (int64_t)b->model->hp.n_vocab * s->used;
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, t, b->model->hp.n_vocab, s->used, 0, e)))
        return rc;
    if (t->packed || (t->type != DTYPE_I32 && t->type != DTYPE_I64 && t->type != DTYPE_F32))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s; integers are needed here",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word);
    if (!MEM_ROOM(b->vectors, b->n_vectors, b->room_vectors, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the list of vectors");
    b->vectors[b->n_vectors++] = (struct vector_job){
        .vector = &w->token_experts,
        .tensor = t,
        .count = n,
        .step = 1,
        .below = s->experts,
        .to = bind_reserve(b, &b->arena, (size_t)n * sizeof(float), BIND_ALIGN)};
    b->model->n_params += n;
    return 0;
}

int bind_router(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int hidden = b->model->hp.hidden, choices = shape_choices(s), rc;
    const struct tensor_view *t;

    if ((rc = bind_router_row(b, &w->router_row, layer, e)))
        return rc;
    if (s->experts) {
        if ((rc = bind_matrix_values(b, &w->router, TENSOR_ROUTER, layer, choices,
                                     s->router.row ? s->router.row : hidden, e)) ||
            (rc = bind_add_bias(b, &w->score_bias, TENSOR_ROUTER, layer, 0, choices, choices, e)))
            return rc;
    }
    if (s->experts && s->router.choice_bias) {
        if (!(t = bind_want(b, TENSOR_ROUTER_BIAS, layer, 0, e)))
            return ERR_MODEL;
        if ((rc = t->n_dims == 1 ? bind_check_shape(b, t, choices, 0, 0, e)
                                 : bind_check_shape(b, t, 1, choices, 0, e)) ||
            (rc = bind_add_vector(b, &w->router_bias, t, 0, choices, e)))
            return rc;
    }
    if (s->experts && s->router.by_token && (rc = bind_token_experts(b, w, layer, e)))
        return rc;
    if (s->experts && s->router.expert_scales &&
        (rc = bind_values(b, &w->expert_scale, TENSOR_EXPERT_SCALE, layer, s->experts, VECTOR_PLAIN,
                          0, e)))
        return rc;
    if (!s->shared || s->shared_gate != SHARED_SIGMOID)
        return 0;
    if (!(t = bind_want(b, TENSOR_SHARED_ROUTER, layer, 0, e)))
        return ERR_MODEL;
    if ((rc = t->n_dims == 1 ? bind_check_shape(b, t, hidden, 0, 0, e)
                             : bind_check_shape(b, t, 1, hidden, 0, e)))
        return rc;
    return bind_add_vector(b, &w->shared_router, t, 0, hidden, e);
}
