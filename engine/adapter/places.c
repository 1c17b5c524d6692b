/* Maps a tensor's name to the model's matrix: names are those of the family's table, and the one
 * table here maps roles to parts of the model. See reading.h. */
#include "engine/adapter/names.h"
#include "engine/adapter/reading.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* WHERE_FIRST: one for all layers, in the block of the first one's mixer; WHERE_ADJUGATE: one, or
 * all where the name has no number of an expert */
enum where {
    WHERE_MIXER,
    WHERE_FIRST,
    WHERE_EXPERT,
    WHERE_ALL,
    WHERE_SHARED,
    WHERE_ADJUGATE,
    WHERE_HEAD
};

#define PARTS 3

/* Rows of several parts are stacked in one tensor in this order; MATRIX_PARTS: no more. */
static const struct role {
    enum tensor_role role;
    enum where where;
    enum matrix_part parts[PARTS];
} roles[] = {
    {TENSOR_Q, WHERE_MIXER, {MATRIX_Q, MATRIX_PARTS}},
    {TENSOR_K, WHERE_MIXER, {MATRIX_K, MATRIX_PARTS}},
    {TENSOR_V, WHERE_MIXER, {MATRIX_V, MATRIX_PARTS}},
    {TENSOR_V_BEFORE, WHERE_MIXER, {MATRIX_V_BEFORE, MATRIX_PARTS}},
    {TENSOR_NGRAM_KEY, WHERE_MIXER, {MATRIX_NGRAM_KEY, MATRIX_PARTS}},
    {TENSOR_NGRAM_VALUE, WHERE_MIXER, {MATRIX_NGRAM_VALUE, MATRIX_PARTS}},
    {TENSOR_O, WHERE_MIXER, {MATRIX_O, MATRIX_PARTS}},
    {TENSOR_QKV, WHERE_MIXER, {MATRIX_Q, MATRIX_K, MATRIX_V}},
    {TENSOR_KV, WHERE_MIXER, {MATRIX_K, MATRIX_V, MATRIX_PARTS}},
    {TENSOR_Q_A, WHERE_MIXER, {MATRIX_Q_A, MATRIX_PARTS}},
    {TENSOR_Q_B, WHERE_MIXER, {MATRIX_Q, MATRIX_PARTS}},
    {TENSOR_KV_A, WHERE_MIXER, {MATRIX_KV_A, MATRIX_PARTS}},
    {TENSOR_KV_B, WHERE_MIXER, {MATRIX_K_B, MATRIX_V_B, MATRIX_PARTS}},
    {TENSOR_O_A, WHERE_MIXER, {MATRIX_O_A, MATRIX_PARTS}},
    {TENSOR_INDEX_Q, WHERE_MIXER, {MATRIX_INDEX_Q, MATRIX_PARTS}},
    {TENSOR_INDEX_K, WHERE_MIXER, {MATRIX_INDEX_K, MATRIX_PARTS}},
    {TENSOR_INDEX_QK, WHERE_MIXER, {MATRIX_INDEX_Q, MATRIX_INDEX_K, MATRIX_PARTS}},
    {TENSOR_INDEX_WEIGHTS, WHERE_MIXER, {MATRIX_INDEX_WEIGHTS, MATRIX_PARTS}},
    {TENSOR_INDEX_GATE, WHERE_MIXER, {MATRIX_INDEX_GATE, MATRIX_PARTS}},
    {TENSOR_COMPRESS_KEYS, WHERE_MIXER, {MATRIX_COMPRESS_KEYS, MATRIX_PARTS}},
    {TENSOR_COMPRESS_GATES, WHERE_MIXER, {MATRIX_COMPRESS_GATES, MATRIX_PARTS}},
    {TENSOR_MIX_IN, WHERE_MIXER, {MATRIX_IN, MATRIX_PARTS}},
    {TENSOR_MIX_Z, WHERE_MIXER, {MATRIX_Z, MATRIX_PARTS}},
    {TENSOR_MIX_B, WHERE_MIXER, {MATRIX_B, MATRIX_PARTS}},
    {TENSOR_MIX_A, WHERE_MIXER, {MATRIX_A, MATRIX_PARTS}},
    {TENSOR_MIX_Z_IN, WHERE_MIXER, {MATRIX_Z_IN, MATRIX_PARTS}},
    {TENSOR_MIX_A_IN, WHERE_MIXER, {MATRIX_A_IN, MATRIX_PARTS}},
    {TENSOR_INPUT_GATE, WHERE_MIXER, {MATRIX_INPUT_GATE, MATRIX_PARTS}},
    {TENSOR_INPUT_OUT, WHERE_MIXER, {MATRIX_INPUT_OUT, MATRIX_PARTS}},
    {TENSOR_LAUREL_IN, WHERE_MIXER, {MATRIX_LAUREL_IN, MATRIX_PARTS}},
    {TENSOR_LAUREL_OUT, WHERE_MIXER, {MATRIX_LAUREL_OUT, MATRIX_PARTS}},
    {TENSOR_HYPER_MIXER_DOWN, WHERE_MIXER, {MATRIX_HYPER_MIXER_DOWN, MATRIX_PARTS}},
    {TENSOR_HYPER_MIXER_UP, WHERE_MIXER, {MATRIX_HYPER_MIXER_UP, MATRIX_PARTS}},
    {TENSOR_HYPER_MIXER_MIX, WHERE_MIXER, {MATRIX_HYPER_MIXER_MIX, MATRIX_PARTS}},
    {TENSOR_HYPER_FFN_DOWN, WHERE_MIXER, {MATRIX_HYPER_FFN_DOWN, MATRIX_PARTS}},
    {TENSOR_HYPER_FFN_UP, WHERE_MIXER, {MATRIX_HYPER_FFN_UP, MATRIX_PARTS}},
    {TENSOR_HYPER_FFN_MIX, WHERE_MIXER, {MATRIX_HYPER_FFN_MIX, MATRIX_PARTS}},
    {TENSOR_HYPER_END_DOWN, WHERE_FIRST, {MATRIX_HYPER_END_DOWN, MATRIX_PARTS}},
    {TENSOR_HYPER_END_UP, WHERE_FIRST, {MATRIX_HYPER_END_UP, MATRIX_PARTS}},
    {TENSOR_HYPER_END_MIX, WHERE_FIRST, {MATRIX_HYPER_END_MIX, MATRIX_PARTS}},
    {TENSOR_INPUT_PROJECT, WHERE_FIRST, {MATRIX_INPUT_PROJECT, MATRIX_PARTS}},
    {TENSOR_GATE, WHERE_EXPERT, {MATRIX_GATE, MATRIX_PARTS}},
    {TENSOR_UP, WHERE_EXPERT, {MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_DOWN, WHERE_EXPERT, {MATRIX_DOWN, MATRIX_PARTS}},
    {TENSOR_GATES, WHERE_ALL, {MATRIX_GATE, MATRIX_PARTS}},
    {TENSOR_UPS, WHERE_ALL, {MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_DOWNS, WHERE_ALL, {MATRIX_DOWN, MATRIX_PARTS}},
    {TENSOR_GATE_UPS, WHERE_ALL, {MATRIX_GATE, MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_SHARED_GATE, WHERE_SHARED, {MATRIX_GATE, MATRIX_PARTS}},
    {TENSOR_SHARED_UP, WHERE_SHARED, {MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_SHARED_DOWN, WHERE_SHARED, {MATRIX_DOWN, MATRIX_PARTS}},
    {TENSOR_SHARED_GATE_UP, WHERE_SHARED, {MATRIX_GATE, MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_DENSE_GATE, WHERE_SHARED, {MATRIX_GATE, MATRIX_PARTS}},
    {TENSOR_DENSE_UP, WHERE_SHARED, {MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_DENSE_DOWN, WHERE_SHARED, {MATRIX_DOWN, MATRIX_PARTS}},
    {TENSOR_ADJUGATE_GATE, WHERE_ADJUGATE, {MATRIX_GATE, MATRIX_PARTS}},
    {TENSOR_ADJUGATE_UP, WHERE_ADJUGATE, {MATRIX_UP, MATRIX_PARTS}},
    {TENSOR_ADJUGATE_DOWN, WHERE_ADJUGATE, {MATRIX_DOWN, MATRIX_PARTS}},
    {TENSOR_HEAD, WHERE_HEAD, {MATRIX_HEAD, MATRIX_PARTS}},
};
#define ROLES (sizeof roles / sizeof *roles)

/* Parses digits at *p; -1: none, or too many for a layer. */
static int number(const char **p)
{
    int n = 0, digits = 0;

    for (; **p >= '0' && **p <= '9' && digits < 7; digits++)
        n = 10 * n + *(*p)++ - '0';
    return digits && digits < 7 ? n : -1;
}

/* Whether the name matches the pattern, its words being numbers (family.h); the name may lack the
 * ".weight". parts: how many of our layers one of a folder is. */
static bool matches(const char *pattern, const char *name, int parts, struct place *out)
{
    int whole = -1, part = 0;
    bool first = false;

    out->layer = out->expert = -1;
    for (; *pattern && *name; pattern++) {
        if (pattern[0] == '%' && pattern[1] && strchr("lepsf", pattern[1])) {
            char word = *++pattern;
            int *to = word == 'l'   ? &out->layer
                      : word == 'e' ? &out->expert
                      : word == 's' ? &part
                                    : &whole;

            first |= word == 'f';
            if ((*to = number(&name)) < 0)
                return false;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    if (whole >= 0 && (part >= parts || (first && part)))
        return false;
    if (whole >= 0)
        out->layer = whole * parts + part;
    return !*name && (!*pattern || strcmp(pattern, ".weight") == 0);
}

/* Names of multimodal models have another prefix; and a folder trained on the model without its
 * head lacks the prefix "model.". */
static bool spelled(const struct reading *r, const char *pattern, const char *name,
                    struct place *out)
{
    const char *nested = r->family->nested;
    int parts = r->family->parts ? r->family->parts : 1;
    char other[400];

    if (matches(pattern, name, parts, out))
        return true;
    snprintf(other, sizeof other, "model.%s", name);
    if (matches(pattern, other, parts, out))
        return true;
    if (!nested || strncmp(name, nested, strlen(nested)) != 0)
        return false;
    snprintf(other, sizeof other, "model.%s", name + strlen(nested));
    return matches(pattern, other, parts, out);
}

bool place_of(const struct reading *r, enum weight_format format, const char *name, int *row,
              struct place *out)
{
    for (const struct family_tensor *t = r->family->tensors + *row; t->role != TENSOR_ROLES; t++) {
        const char *const *names = format == WEIGHT_GGUF ? t->gguf : t->json;

        ++*row;
        out->role = t->role;
        for (int i = 0; i < FAMILY_NAMES && names[i]; i++)
            if (spelled(r, names[i], name, out))
                return true;
    }
    return false;
}

/* The layer whose block has the role's matrix. */
static int layer_of(const struct role *role, const struct place *at)
{
    return role->where == WHERE_FIRST ? 0 : at->layer;
}

static int adjugates(const struct ffn_shape *s)
{
    return s->grouped ? shape_further(s) : 0;
}

/* The expert block of a place, or the first of n. false: the layer has none. */
static bool experts_of(enum where where, const struct ffn_shape *s, int expert, int *first, int *n)
{
    *first = *n = 0;
    switch (where) {
    case WHERE_SHARED: *first = s->experts; return !s->grouped;
    case WHERE_EXPERT: *first = expert; return expert < s->experts;
    case WHERE_ALL: *n = s->experts; return true;
    case WHERE_ADJUGATE:
        *first = s->experts + (expert < 0 ? 0 : expert);
        *n = expert < 0 ? adjugates(s) : 0;
        return s->grouped && expert < adjugates(s);
    default: return true;
    }
}

bool place_parts(const struct reading *r, const struct place *at, struct block_id *id, int *experts,
                 enum matrix_part parts[PARTS], int *n)
{
    const struct hparams *hp = &r->model->hp;
    size_t i = 0;
    int layer;

    while (i < ROLES && roles[i].role != at->role)
        i++;
    if (i == ROLES)
        return false;
    layer = layer_of(&roles[i], at);
    if (roles[i].where != WHERE_HEAD && (layer < 0 || layer >= hp->n_layers))
        return false;
    for (*n = 0; *n < PARTS && roles[i].parts[*n] != MATRIX_PARTS; ++*n)
        parts[*n] = roles[i].parts[*n];
    *experts = 0;
    *id = (struct block_id){roles[i].where <= WHERE_FIRST ? BLOCK_ATTENTION : BLOCK_EXPERT, layer,
                            0};
    if (roles[i].where == WHERE_HEAD) {
        *id = (struct block_id){BLOCK_HEAD, 0, 0};
        return true;
    }
    return experts_of(roles[i].where, &hparams_layer(hp, layer)->ffn, at->expert, &id->expert,
                      experts) &&
           reading_matrix(r, *id, parts[0]) != NULL;
}

struct matrix *reading_matrix(const struct reading *r, struct block_id id, enum matrix_part part)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(r->model, id, list);

    for (int i = 0; i < n; i++)
        if (list[i].part == part)
            return (struct matrix *)(uintptr_t)list[i].w; /* the model is still being built */
    return NULL;
}

const char *shape_text(const struct tensor_view *t, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "(");

    for (int i = 0; i < t->n_dims && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
    if (n < size)
        snprintf(out + n, size - n, ")");
    return out;
}

void reading_unplaced(struct reading *r, const char *tensor)
{
    strbuf_printf(&r->unplaced, "%s%s", r->unplaced.len ? ", " : "", tensor);
    r->info->n_unplaced++;
}

static int add(struct reading *r, struct share s, struct error *e)
{
    if (!MEM_ROOM(r->shares, r->n, r->room, 256))
        return error_set(e, ERR_MEMORY, "%s: out of memory", r->info->path);
    s.adapter = r->adapter;
    r->shares[r->n++] = s;
    return 0;
}

int reading_expert(struct reading *r, int layer, int expert, enum matrix_part part, int rank,
                   float scale, struct strided a, struct strided b, struct error *e)
{
    int experts = hparams_layer(&r->model->hp, layer)->ffn.experts;
    struct share s = {.w = reading_matrix(
                          r, (struct block_id){BLOCK_EXPERT, layer, expert < 0 ? experts : expert},
                          part),
                      .expert = true,
                      .rank = rank,
                      .scale = scale,
                      .a = a,
                      .b = b};

    return s.w ? add(r, s, e) : 0;
}

/* A GGUF file's converter has reordered the rows of queries and keys of some families, so that
 * rotated pairs are adjacent. */
static enum share_turn turn_of(const struct reading *r, enum weight_format format,
                               enum matrix_part part)
{
    bool gguf = weight_file_format(r->model->file) == WEIGHT_GGUF;

    if ((part != MATRIX_Q && part != MATRIX_K) || gguf == (format == WEIGHT_GGUF) ||
        r->family->gguf_rope != ROPE_PAIRS || r->family->shape.mixer.rope != ROPE_HALVES)
        return TURN_NONE;
    return gguf ? TURN_TO_PAIRS : TURN_TO_HALVES;
}

static int misfit(const struct reading *r, const struct pair *p, int experts, int64_t rows,
                  int64_t cols, struct error *e)
{
    char a[80], b[80], of[40] = "";

    if (experts)
        snprintf(of, sizeof of, "%d experts of ", experts);
    return error_set(e, ERR_MODEL,
                     "%s: %s has the shape %s and its partner %s; for rank %d and the model's "
                     "matrix of %s%lld x %lld they do not fit",
                     r->info->path, p->a->name, shape_text(p->a, a, sizeof a),
                     shape_text(p->b, b, sizeof b), p->rank, of, (long long)rows, (long long)cols);
}

/* experts 0: one matrix. */
static bool fits(const struct pair *p, int experts, int64_t rows, int64_t cols)
{
    const struct tensor_view *a = p->a, *b = p->b;
    int d = experts > 0;

    return a->n_dims == 2 + d && b->n_dims == 2 + d && a->dims[d] == p->rank &&
           a->dims[d + 1] == cols && b->dims[d] == rows && b->dims[d + 1] == p->rank &&
           (!d || (a->dims[0] == experts && b->dims[0] == experts));
}

/* What a GGUF file calls the matrices of a gated delta net fits no folder: its heads are in another
 * order, or in several matrices. */
static int check_mixer(const struct reading *r, enum weight_format format, const struct role *role,
                       int layer, const struct pair *p, struct error *e)
{
    static const enum tensor_role heads[] = {TENSOR_MIX_IN, TENSOR_MIX_Z, TENSOR_MIX_B,
                                             TENSOR_MIX_A, TENSOR_O};
    const struct mixer_shape *s = &hparams_layer(&r->model->hp, layer)->mixer;

    if (format != WEIGHT_GGUF || weight_file_format(r->model->file) == WEIGHT_GGUF ||
        s->kind != MIXER_DELTA_NET)
        return 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (role->role == heads[i])
            return error_set(e, ERR_MODEL,
                             "%s: %s is for a mixer whose rows a Hugging Face folder orders "
                             "otherwise; use the adapter in the folder's format",
                             r->info->path, p->a->name);
    return 0;
}

/* A folder's adapter on a GGUF file's gated delta net. */
static bool is_dealt(const struct reading *r, enum weight_format format, struct block_id id)
{
    return id.kind == BLOCK_ATTENTION && format != WEIGHT_GGUF &&
           weight_file_format(r->model->file) == WEIGHT_GGUF &&
           hparams_layer(&r->model->hp, id.layer)->mixer.kind == MIXER_DELTA_NET;
}

/* The folder's one matrix of queries, keys, values and gates is two in the file. */
static const enum matrix_part joint_parts[PARTS] = {MATRIX_IN, MATRIX_Z, MATRIX_PARTS};

static bool is_joint(const struct reading *r, enum weight_format format, struct block_id id,
                     const enum matrix_part *parts)
{
    return is_dealt(r, format, id) && parts[0] == MATRIX_IN && !r->family->gguf_tiled &&
           reading_matrix(r, id, MATRIX_Z);
}

/* Adds the parts of a role in one block: their rows are stacked in b. */
static int add_parts(struct reading *r, enum weight_format format, struct block_id id,
                     const enum matrix_part *parts, const struct pair *p, int experts, int expert,
                     struct error *e)
{
    int64_t first = 0, rows = 0, cols = 0;
    struct matrix *w[PARTS] = {NULL};
    bool joint = is_joint(r, format, id, parts);
    int n = 0, rc = 0;

    if (joint)
        parts = joint_parts;
    for (; n < PARTS && parts[n] != MATRIX_PARTS; n++) {
        if (!(w[n] = reading_matrix(r, id, parts[n])))
            return 0;
        rows += w[n]->rows;
        cols = w[n]->cols;
    }
    if (!fits(p, experts, rows, cols))
        return misfit(r, p, experts, rows, cols, e);
    for (int i = 0; i < n && !rc; first += w[i++]->rows) {
        const struct mixer_shape *m = &hparams_layer(&r->model->hp, id.layer)->mixer;
        struct share s = {
            .w = w[i],
            .expert = id.kind == BLOCK_EXPERT,
            .rank = p->rank,
            .scale = p->scale,
            .a = {p->a, (int64_t)expert * p->rank * cols, cols, 1, 0},
            .b = {p->b, ((int64_t)expert * rows + (joint ? 0 : first)) * p->rank, p->rank, 1, 0},
            .turn = id.kind == BLOCK_ATTENTION ? turn_of(r, format, parts[i]) : TURN_NONE};

        s.head = parts[i] == MATRIX_Q ? shape_query_dim(m) : m->key_dim;
        if (is_dealt(r, format, id))
            reading_heads(r, m, parts[i], joint, &s);
        rc = add(r, s, e);
    }
    return rc ? rc : 1;
}

/* Keys and values of a latent row, which the model has apart (binding/attention.c): of a head's
 * rows of b the first are its keys, a row of k_b's columns being as long as those are; W = k_b
 * turned, so that the change of a head is A turned times that of the head's B turned. Then its
 * values. */
static int add_latent(struct reading *r, struct block_id id, const struct pair *p, struct error *e)
{
    struct matrix *k = reading_matrix(r, id, MATRIX_K_B), *v = reading_matrix(r, id, MATRIX_V_B);
    int heads = hparams_layer(&r->model->hp, id.layer)->mixer.heads, rc;
    int64_t rank = p->rank, rows, each;
    struct share s = {.rank = p->rank, .scale = p->scale, .heads = heads};

    if (!k || !v)
        return 0;
    rows = (int64_t)heads * k->cols + v->rows;
    each = rows / heads * rank;
    if (!fits(p, 0, rows, v->cols))
        return misfit(r, p, 0, rows, v->cols, e);
    s.w = k;
    s.heads_of_a = true;
    s.a = (struct strided){p->b, 0, 1, rank, each};
    s.b = (struct strided){p->a, 0, 1, v->cols, 0};
    if ((rc = add(r, s, e)))
        return rc;
    s.w = v;
    s.heads_of_a = false;
    s.a = (struct strided){p->a, 0, v->cols, 1, 0};
    s.b = (struct strided){p->b, k->cols * rank, rank, 1, each};
    return (rc = add(r, s, e)) ? rc : 1;
}

static int no_such(const struct reading *r, const struct pair *p, const char *what, int has,
                   int last, struct error *e)
{
    return error_set(e, ERR_MODEL, "%s: %s is of %s %d; the model has %d of them (0 to %d)",
                     r->info->path, p->a->name, what, has, last, last - 1);
}

int reading_pair(struct reading *r, enum weight_format format, const struct place *at,
                 const struct pair *p, struct error *e)
{
    const struct hparams *hp = &r->model->hp;
    struct block_id id = {BLOCK_ATTENTION, 0, 0};
    size_t i = 0;
    int experts, first = 0, rc = 0;

    while (i < ROLES && roles[i].role != at->role)
        i++;
    if (i == ROLES)
        return 0;
    if (roles[i].where == WHERE_HEAD)
        return add_parts(r, format, (struct block_id){BLOCK_HEAD, 0, 0}, roles[i].parts, p, 0, 0,
                         e);
    id.layer = layer_of(&roles[i], at);
    if (id.layer < 0 || id.layer >= hp->n_layers)
        return no_such(r, p, "layer", id.layer, hp->n_layers, e);
    experts = hparams_layer(hp, id.layer)->ffn.experts;
    if (roles[i].where == WHERE_FIRST)
        return add_parts(r, format, id, roles[i].parts, p, 0, 0, e);
    if (roles[i].where == WHERE_MIXER)
        return (rc = check_mixer(r, format, &roles[i], id.layer, p, e)) < 0 ? rc
               : at->role == TENSOR_KV_B ? add_latent(r, id, p, e)
                                         : add_parts(r, format, id, roles[i].parts, p, 0, 0, e);
    id.kind = BLOCK_EXPERT;
    if (roles[i].where == WHERE_SHARED) {
        id.expert = experts;
        return add_parts(r, format, id, roles[i].parts, p, 0, 0, e);
    }
    if (roles[i].where == WHERE_EXPERT) {
        int identities = hparams_layer(hp, id.layer)->ffn.router.identities;

        if (experts && at->expert >= experts && at->expert < experts + identities)
            return 0; /* has matrices in folders, and never uses them */
        if (experts && at->expert >= experts)
            return no_such(r, p, "expert", at->expert, experts, e);
        id.expert = at->expert;
        return experts ? add_parts(r, format, id, roles[i].parts, p, 0, 0, e) : 0;
    }
    if (roles[i].where == WHERE_ADJUGATE) {
        first = experts;
        experts = adjugates(&hparams_layer(hp, id.layer)->ffn);
        if (experts && at->expert >= experts)
            return no_such(r, p, "adjugate expert", at->expert, experts, e);
        id.expert = first + at->expert;
        if (experts && at->expert >= 0)
            return add_parts(r, format, id, roles[i].parts, p, 0, 0, e);
    }
    for (int x = 0; x < experts; x++) {
        id.expert = first + x;
        if ((rc = add_parts(r, format, id, roles[i].parts, p, experts, x, e)) <= 0)
            return rc;
    }
    return rc;
}

/* ---- the reverse: names.h ---- */

/* A module's name is that of its tensor without the ".weight". */
static void write_name(const char *pattern, int layer, int expert, char *out, size_t size)
{
    size_t n = 0, room = strlen(pattern), cut = strlen(".weight");

    room -= room > cut && strcmp(pattern + room - cut, ".weight") == 0 ? cut : 0;
    for (size_t i = 0; i < room && n + 1 < size; i++)
        if (pattern[i] == '%' && (pattern[i + 1] == 'l' || pattern[i + 1] == 'e'))
            n += (size_t)snprintf(out + n, size - n, "%d", pattern[++i] == 'l' ? layer : expert);
        else
            out[n++] = pattern[i];
    out[n < size ? n : size - 1] = 0;
}

/* The spelling in a model with its head: "transformer." before the bare names of GPT-2. */
static const char *spelling(const struct family_tensor *t, enum weight_format format)
{
    const char *const *names = format == WEIGHT_GGUF ? t->gguf : t->json;

    for (int i = 0; format != WEIGHT_GGUF && i < FAMILY_NAMES && names[i]; i++)
        if (strncmp(names[i], "transformer.", strlen("transformer.")) == 0)
            return names[i];
    return names[0];
}

/* Whether tensors of this role contain matrix `part` of block id. routed: for an expert block,
 * whether it is a routed expert (else the shared one; no adapter of adjugate ones is written). */
static bool role_holds(const struct role *r, struct block_id id, bool routed, enum matrix_part part)
{
    bool fits = r->where <= WHERE_FIRST      ? id.kind == BLOCK_ATTENTION
                : r->where == WHERE_SHARED   ? id.kind == BLOCK_EXPERT && !routed
                : r->where == WHERE_HEAD     ? id.kind == BLOCK_HEAD
                : r->where == WHERE_ADJUGATE ? false
                                             : id.kind == BLOCK_EXPERT && routed;

    for (int i = 0; fits && i < PARTS && r->parts[i] != MATRIX_PARTS; i++)
        if (r->parts[i] == part)
            return true;
    return false;
}

/* Prefers roles that the model's own file has; stacked: all experts in one. */
static const struct family_tensor *find_role(const struct model *m, const struct family *family,
                                             enum weight_format format, struct block_id id,
                                             enum matrix_part part, bool there,
                                             const struct role **role)
{
    int experts = id.kind == BLOCK_EXPERT ? hparams_layer(&m->hp, id.layer)->ffn.experts : 0;
    bool routed = id.kind == BLOCK_EXPERT && id.expert < experts;

    for (const struct family_tensor *t = family->tensors; t->role != TENSOR_ROLES; t++)
        for (size_t i = 0; i < ROLES; i++) {
            *role = &roles[i];
            if (roles[i].role != t->role || !spelling(t, format) ||
                !role_holds(&roles[i], id, routed, part) ||
                (routed && (roles[i].where == WHERE_ALL) != (format == WEIGHT_GGUF)))
                continue;
            if (!there || family_tensor(family, m->file, t->role, id.layer, id.expert, false))
                return t;
        }
    return NULL;
}

bool adapter_name_of(const struct model *m, enum weight_format format, struct block_id id,
                     enum matrix_part part, struct adapter_name *out)
{
    const struct family_tensor *t;
    const struct family *family;
    const struct role *role;

    if (family_of(&family, m->file, NULL) < 0 ||
        (!(t = find_role(m, family, format, id, part, true, &role)) &&
         !(t = find_role(m, family, format, id, part, false, &role))))
        return false;
    *out = (struct adapter_name){.stacked = role->where == WHERE_ALL};
    write_name(spelling(t, format), id.layer, id.expert, out->text, sizeof out->text);
    while (out->n_parts < PARTS && role->parts[out->n_parts] != MATRIX_PARTS) {
        out->parts[out->n_parts] = role->parts[out->n_parts];
        out->n_parts++;
    }
    return true;
}

int adapter_row_of(const struct model *m, enum weight_format format, struct block_id id,
                   enum matrix_part part, int row)
{
    const struct mixer_shape *s = &hparams_layer(&m->hp, id.layer)->mixer;
    int dim = part == MATRIX_Q ? shape_query_dim(s) : s->key_dim, head = row / dim * dim,
        i = row - head, half = dim / 2;
    struct reading r = {.model = (struct model *)(uintptr_t)m};

    if (id.kind != BLOCK_ATTENTION || family_of(&r.family, m->file, NULL) < 0)
        return row;
    switch (turn_of(&r, format, part)) {
    case TURN_TO_HALVES: return head + i % half * 2 + i / half;
    case TURN_TO_PAIRS: return head + i % 2 * half + i / 2;
    default: return row;
    }
}
