/* See count.h. */
#include "app/analyze/count.h"

#include "engine/device/state.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct analysis_dtype analysis_dtypes[ANALYSIS_DTYPES] = {
    {"F32", 4.0},
    {"F16/BF16", 2.0},
    {"Q8_0", 34.0 / 32.0},
    {"Q4_0", 18.0 / 32.0},
};

const char *analysis_part_name(enum analysis_part part)
{
    static const char *const names[] = {
#define X(name, words) words,
        ANALYSIS_PARTS(X)
#undef X
    };

    return names[part];
}

/* Parts of tensor names, first match wins: a norm of the queries is a norm, a gate of the shared
 * expert belongs to it. GGUF's spellings are listed beside those of Hugging Face. */
static const struct {
    const char *piece;
    enum analysis_part part;
} pieces[] = {
    /* what tokens, or hashes of the last ones, bring for single layers, what makes values of it
     * (Gemma 3n, Qwen3.8-Flash-Next), and what mixes several residual streams (DeepSeek-V4) */
    {".ngram_embedding.", ANALYSIS_LAYER_TABLE},
    {"embed_tokens_per_layer", ANALYSIS_LAYER_TABLE},
    {"per_layer_token_embd", ANALYSIS_LAYER_TABLE},
    {".ple.", ANALYSIS_LAYER_INPUTS},
    {".ple_", ANALYSIS_LAYER_INPUTS},
    {"hyper_connection", ANALYSIS_STREAMS},
    {".hc_", ANALYSIS_STREAMS},
    {"_hc_", ANALYSIS_STREAMS}, /* output_hc_ */
    {"_hc.", ANALYSIS_STREAMS}, /* attn_hc, ffn_hc */
    {".hc_head.", ANALYSIS_STREAMS},
    {"indexer", ANALYSIS_ATTENTION},
    {"self_attention.experts.router", ANALYSIS_ROUTER}, /* JetMoE: heads are experts */
    {"self_attention.experts.", ANALYSIS_ATTENTION},
    {"attn_gate_inp", ANALYSIS_ROUTER},
    {"conv_qk", ANALYSIS_ATTENTION}, /* ZAYA */
    {"residual_scale", ANALYSIS_NORMS},
    {"shared_expert", ANALYSIS_SHARED_EXPERTS}, /* shared_experts, shared_expert_gate */
    {"shared_mlp", ANALYSIS_SHARED_EXPERTS},
    {"_shexp", ANALYSIS_SHARED_EXPERTS},
    {"mlp.input_linear", ANALYSIS_EXPERTS},
    {"mlp.output_linear", ANALYSIS_EXPERTS},
    {"block_sparse_moe.input_linear", ANALYSIS_EXPERTS}, /* Granite: all of them in one tensor */
    {"block_sparse_moe.output_linear", ANALYSIS_EXPERTS},
    {"expert_bias", ANALYSIS_ROUTER}, /* LFM2: for the choice of experts */
    {"moe_statics", ANALYSIS_ROUTER},
    {"e_score_correction_bias", ANALYSIS_ROUTER},
    {"exp_probs_b", ANALYSIS_ROUTER},
    {"per_expert_scale", ANALYSIS_ROUTER},
    {"expert", ANALYSIS_EXPERTS},
    {"_exps", ANALYSIS_EXPERTS},
    {"router", ANALYSIS_ROUTER},
    {"ffn_gate_inp", ANALYSIS_ROUTER},
    {"mlp.gate.", ANALYSIS_ROUTER},
    {".ffn.gate.", ANALYSIS_ROUTER},
    {"block_sparse_moe.gate.", ANALYSIS_ROUTER},
    {"feed_forward.gate.", ANALYSIS_ROUTER},
    {"mixer.gate.", ANALYSIS_ROUTER},
    {"embed", ANALYSIS_EMBEDDING}, /* embed_tokens, embeddings */
    {"_embd", ANALYSIS_EMBEDDING},
    {"wte", ANALYSIS_EMBEDDING},
    {"wpe", ANALYSIS_EMBEDDING},
    {"lm_head", ANALYSIS_HEAD},
    {"norm", ANALYSIS_NORMS},
    {".ln_", ANALYSIS_NORMS},
    {"linear_attn", ANALYSIS_RECURRENT},
    {"mamba", ANALYSIS_RECURRENT},
    {".conv", ANALYSIS_RECURRENT},
    {"shortconv", ANALYSIS_RECURRENT},
    {"ssm_", ANALYSIS_RECURRENT},
    {"attn", ANALYSIS_ATTENTION},
    {"attention", ANALYSIS_ATTENTION},
};

/* What else a feed-forward's tensor has in its name. */
static const char *const forward[] = {"mlp", "ffn", "feed_forward", ".fc", "moe"};

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

enum analysis_part analysis_part_of(const char *tensor)
{
    if (begins(tensor, "output.") || begins(tensor, "head."))
        return ANALYSIS_HEAD;
    if (begins(tensor, "ln_"))
        return ANALYSIS_NORMS;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (strstr(tensor, pieces[i].piece))
            return pieces[i].part;
    return ANALYSIS_MLP;
}

static bool is_known(const char *tensor)
{
    for (size_t i = 0; i < sizeof forward / sizeof *forward; i++)
        if (strstr(tensor, forward[i]))
            return true;
    return analysis_part_of(tensor) != ANALYSIS_MLP;
}

/* Counts one tensor: `last` is its row length. */
static void add(struct analysis_count *c, enum analysis_part part, uint64_t values, uint64_t last,
                bool matrix)
{
    bool table = part == ANALYSIS_EMBEDDING || part == ANALYSIS_LAYER_TABLE;
    uint64_t active = table ? last : values;

    c->parts[part] += values;
    c->active_parts[part] += active;
    if (matrix && !table && part != ANALYSIS_EXPERTS)
        c->matrices += values;
    if (matrix && part == ANALYSIS_EXPERTS)
        c->one_expert += values; /* of all layers, until everything is counted */
}

static bool is_causal_mask(const struct tensor_view *t)
{
    const char *end = strstr(t->name, ".attn.bias");

    return t->n_dims == 4 && end && !end[10];
}

static uint64_t values_of(const struct tensor_view *t)
{
    uint64_t values = 1;

    for (int d = 0; d < t->n_dims; d++)
        values *= (uint64_t)t->dims[d];
    return values;
}

/* by: NULL, or where tensors of no known kind are noted. */
static void count_tensors(struct analysis_count *c, const struct weight_file *f,
                          struct analysis_by_tensors *by)
{
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        uint64_t values = values_of(t);

        if (is_causal_mask(t))
            continue; /* GPT-2 files have buffers that are not weights */
        c->file_bytes += t->bytes;
        c->type_bytes[t->type] += t->bytes;
        if (by && !is_known(t->name)) {
            if (!by->strange++)
                snprintf(by->strange_name, sizeof by->strange_name, "%s", t->name);
            by->strange_values += values;
            continue;
        }
        add(c, analysis_part_of(t->name), values, t->n_dims ? (uint64_t)t->dims[t->n_dims - 1] : 1,
            t->n_dims > 1);
    }
}

static void add_matrix(struct analysis_count *c, enum analysis_part part, int rows, int cols,
                       bool bias)
{
    add(c, part, (uint64_t)rows * (uint64_t)cols, (uint64_t)cols, true);
    if (bias)
        add(c, part, (uint64_t)rows, (uint64_t)rows, false);
}

static void count_layer(struct analysis_count *c, const struct hparams *hp,
                        const struct layer_shape *s)
{
    const struct mixer_shape *m = &s->mixer;
    int values = shape_value_dim(m), norm = s->norms.kind == NORM_LAYER ? 2 : 1;

    add_matrix(c, ANALYSIS_ATTENTION, m->heads * m->key_dim, hp->hidden, m->bias);
    add_matrix(c, ANALYSIS_ATTENTION, m->kv_heads * m->key_dim, hp->hidden, m->bias);
    add_matrix(c, ANALYSIS_ATTENTION, m->kv_heads * values, hp->hidden, m->bias);
    add_matrix(c, ANALYSIS_ATTENTION, hp->hidden, m->heads * values, m->bias);
    add(c, ANALYSIS_NORMS, (uint64_t)(2 * norm * hp->hidden), 0, false);
    add_matrix(c, ANALYSIS_ROUTER, s->ffn.experts, hp->hidden, false);
    for (int x = 0; x < 3 * s->ffn.experts; x++)
        add_matrix(c, ANALYSIS_EXPERTS, s->ffn.width, hp->hidden, false);
}

/* The tensors that phimoe's modelling code makes of its configuration; other families are less
 * regular. */
static int count_config(struct analysis_count *c, const struct model *m, struct error *e)
{
    const struct hparams *hp = &m->hp;
    bool head_bias = weight_file_meta(m->file, "lm_head_bias").i;

    if (strcmp(m->family, "phimoe"))
        return error_set(e, ERR_MODEL,
                         "%s: its weights are not there, and what they are is told by "
                         "config.json alone for phimoe only",
                         weight_file_path(m->file));
    c->from_config = true;
    add_matrix(c, ANALYSIS_EMBEDDING, hp->n_vocab, hp->hidden, false);
    for (int l = 0; l < hp->n_layers; l++)
        count_layer(c, hp, hparams_layer(hp, l));
    add(c, ANALYSIS_NORMS, 2 * (uint64_t)hp->hidden, 0, false);
    add_matrix(c, ANALYSIS_HEAD, hp->n_vocab, hp->hidden, head_bias);
    for (int p = 0; p < ANALYSIS_PART_COUNT; p++)
        c->type_bytes[DTYPE_BF16] += 2 * c->parts[p];
    c->file_bytes = c->type_bytes[DTYPE_BF16];
    return 0;
}

/* Experts and layers with them are known: what of them a token uses. */
static void share_experts(struct analysis_count *c)
{
    uint64_t all = c->one_expert; /* matrices only */

    c->one_expert = 0;
    if (!c->experts)
        return;
    c->matrices += all / (uint64_t)c->experts * (uint64_t)c->used;
    c->active_parts[ANALYSIS_EXPERTS] = c->parts[ANALYSIS_EXPERTS] / (uint64_t)c->experts *
                                        (uint64_t)c->used;
    c->one_expert = c->parts[ANALYSIS_EXPERTS] / (uint64_t)c->experts /
                    (uint64_t)(c->routed_layers ? c->routed_layers : 1);
}

static void count_experts(struct analysis_count *c, const struct hparams *hp)
{
    for (int l = 0; l < hp->n_layers; l++) {
        const struct ffn_shape *f = &hparams_layer(hp, l)->ffn;

        if (!f->experts)
            continue;
        c->routed_layers++;
        c->experts = f->experts;
        c->used = f->used;
    }
    share_experts(c);
}

/* A folder without weights, or with an index of missing shards: this is not damage. */
static bool weights_absent(const char *path, int rc)
{
    char name[PATH_MAX];

    if (rc != ERR_MODEL)
        return rc == ERR_IO;
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    if (access(name, F_OK) == 0)
        return false;
    snprintf(name, sizeof name, "%s/model.safetensors.index.json", path);
    return access(name, F_OK) != 0;
}

/* Counts the tensors of m's file. If model_describe read only config.json: those of the weights at
 * path, or, where these are missing, the shapes in config.json. */
static int count_file(struct analysis_count *c, const struct model *m, const char *path,
                      struct error *e)
{
    struct weight_file *f = NULL;
    int rc;

    if (weight_file_count(m->file)) {
        count_tensors(c, m->file, NULL);
        return 0;
    }
    rc = weight_file_open(&f, path, false, e);
    if (rc == 0)
        count_tensors(c, f, NULL);
    else if (weights_absent(path, rc))
        rc = count_config(c, m, e);
    weight_file_close(f);
    return rc;
}

static void sum_up(struct analysis_count *c)
{
    c->matrices += c->tied_head;
    c->active = c->tied_head;
    for (int p = 0; p < ANALYSIS_PART_COUNT; p++) {
        c->total += c->parts[p];
        c->active += c->active_parts[p];
    }
}

int analysis_count(struct analysis_count *c, const struct model *m, const char *path,
                   struct error *e)
{
    int rc;

    *c = (struct analysis_count){0};
    if ((rc = count_file(c, m, path, e)) < 0)
        return rc;
    count_experts(c, &m->hp);
    if (!c->parts[ANALYSIS_HEAD])
        c->tied_head = (uint64_t)m->hp.n_vocab *
                       (uint64_t)(m->hp.embedding_width ? m->hp.embedding_width : m->hp.hidden);
    sum_up(c);
    return 0;
}

/* The number under the first of these names that is there: after "ARCH." in GGUF files, else in
 * config.json or its text_config. 0: none. */
static int number_of(const struct weight_file *f, const char *architecture, const char *gguf,
                     const char *const *json)
{
    char key[200];
    struct meta_value v = {0};

    if (weight_file_format(f) == WEIGHT_GGUF) {
        snprintf(key, sizeof key, "%s.%s", architecture, gguf);
        v = weight_file_meta(f, key);
    }
    for (int nested = 0; nested < 2 && weight_file_format(f) != WEIGHT_GGUF; nested++)
        for (const char *const *p = json; *p && v.type != META_INT; p++) {
            snprintf(key, sizeof key, "%s%s", nested ? "text_config." : "", *p);
            v = weight_file_meta(f, key);
        }
    return v.type == META_INT && v.i > 0 && v.i < 1 << 20 ? (int)v.i : 0;
}

static void name_it(struct analysis_by_tensors *by, const struct weight_file *f, const char *path)
{
    size_t n = strlen(path), from;
    struct meta_value v = weight_file_meta(
        f, weight_file_format(f) == WEIGHT_GGUF ? "general.architecture" : "model_type");

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/';)
        from--;
    snprintf(by->name, sizeof by->name, "%.*s", (int)(n - from < 120 ? n - from : 120),
             path + from);
    if (v.type == META_STRING)
        snprintf(by->architecture, sizeof by->architecture, "%.*s", (int)(v.len < 60 ? v.len : 60),
                 v.s);
}

/* Where the tables' rows are found by hashes of the last tokens, a token takes one for each hash of
 * each layer that has some, in whatever parts a table is stored. */
static void count_n_grams(struct analysis_count *c, const struct weight_file *f,
                          const char *architecture)
{
    static const char *const sizes[] = {"ngram_size", NULL}, *const hashes[] = {"heads_per_ngram",
                                                                                NULL};
    int size = number_of(f, architecture, "ple.ngram_size", sizes),
        each = number_of(f, architecture, "ple.heads_per_ngram", hashes);
    uint64_t layers = 0, row = 0;

    if (size < 2 || !each)
        return;
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        layers += strstr(t->name, ".ple.key_proj.") || strstr(t->name, ".ple_key.");
        if (t->n_dims == 2 && analysis_part_of(t->name) == ANALYSIS_LAYER_TABLE)
            row = (uint64_t)t->dims[1];
    }
    c->active_parts[ANALYSIS_LAYER_TABLE] = row * layers * (uint64_t)(size - 1) * (uint64_t)each;
}

/* Layers with routed experts, by their routers' matrices. */
static int count_routers(const struct weight_file *f)
{
    int n = 0;

    for (size_t i = 0; i < weight_file_count(f); i++)
        n += weight_file_at(f, i)->n_dims == 2 &&
             analysis_part_of(weight_file_at(f, i)->name) == ANALYSIS_ROUTER;
    return n;
}

int analysis_count_tensors(struct analysis_by_tensors *by, const char *path,
                           const struct overrides *overrides, struct error *e)
{
    static const char *const layers[] = {"num_hidden_layers", "n_layer", NULL};
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                          "moe_num_experts", NULL};
    static const char *const used[] = {
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", NULL};
    struct analysis_count *c = &by->count;
    struct weight_file *f = NULL;
    int rc;

    *by = (struct analysis_by_tensors){0};
    if (!(rc = weight_file_open(&f, path, false, e)))
        rc = weight_file_override(f, overrides, e);
    if (!rc) {
        name_it(by, f, path);
        by->layers = number_of(f, by->architecture, "block_count", layers);
        count_tensors(c, f, by);
        c->routed_layers = count_routers(f);
        c->experts = number_of(f, by->architecture, "expert_count", experts);
        c->used = number_of(f, by->architecture, "expert_used_count", used);
        if (!c->parts[ANALYSIS_EXPERTS] || c->used > c->experts || !c->used)
            c->experts = c->used = 0;
        share_experts(c);
        count_n_grams(c, f, by->architecture);
        if (!c->parts[ANALYSIS_HEAD])
            c->tied_head = c->parts[ANALYSIS_EMBEDDING];
        sum_up(c);
        if (!c->parts[ANALYSIS_EMBEDDING] ||
            !(c->parts[ANALYSIS_ATTENTION] || c->parts[ANALYSIS_RECURRENT]))
            rc = error_set(e, ERR_MODEL, "%s: its tensors are not those of a language model", path);
    }
    weight_file_close(f);
    return rc;
}

double analysis_matrix_flops(const struct analysis_count *c)
{
    return 2.0 * (double)c->matrices;
}

/* Per pair of query and key: a multiplication and an addition for each element of the head. */
static double pair_flops(const struct mixer_shape *m)
{
    if (m->kind == MIXER_MLA) /* absorbed: scores over the latent row and the rotary part */
        return 2.0 * m->heads * (2.0 * m->kv_rank + m->rope_dims);
    if (m->kind == MIXER_COMPRESSED)
        return 4.0 * m->heads * m->key_dim;
    return m->kind == MIXER_ATTENTION || m->kind == MIXER_CONVOLVED
               ? 2.0 * m->heads * (m->key_dim + shape_value_dim(m))
               : 0.0;
}

double analysis_attention_flops(const struct hparams *hp, int seen)
{
    double sum = 0;

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;

        if (m->kind == MIXER_COMPRESSED) {
            int near = m->window < seen ? m->window : seen;

            sum += pair_flops(m) * (near + shape_seen_blocks(m, seen - 1)) +
                   2.0 * m->index_heads * m->index_dim * shape_blocks(m, seen - 1);
            continue;
        }
        sum += pair_flops(m) * (m->window && m->window < seen ? m->window
                                : m->index_top                ? shape_seen_keys(m, seen - 1)
                                                              : seen);
        sum += 2.0 * m->index_heads * m->index_dim * seen;
    }
    return sum;
}

uint64_t analysis_kv_token(const struct hparams *hp)
{
    uint64_t sum = 0;

    for (int l = 0; l < hp->n_layers; l++)
        sum += state_size(&hparams_layer(hp, l)->mixer, KV_F16, KV_F16).token_bytes;
    return sum;
}

uint64_t analysis_kv_bytes(const struct hparams *hp, int tokens)
{
    uint64_t sum = 0;

    for (int l = 0; l < hp->n_layers; l++) {
        struct state_size s = state_size(&hparams_layer(hp, l)->mixer, KV_F16, KV_F16);

        sum += s.token_bytes * (uint64_t)(s.ring && s.ring < tokens ? s.ring : tokens) +
               s.fixed_bytes;
    }
    return sum;
}

uint64_t analysis_token_bytes(const struct analysis_count *c, int dtype)
{
    return (uint64_t)((double)c->active * analysis_dtypes[dtype].bytes);
}

uint64_t analysis_memory(const struct analysis_count *c, int dtype)
{
    double bytes = analysis_dtypes[dtype].bytes;
    uint64_t plain = c->parts[ANALYSIS_ROUTER] + c->parts[ANALYSIS_NORMS];

    return (uint64_t)((double)(c->total - plain) * bytes +
                      (double)plain * (bytes < 2.0 ? 4.0 : bytes));
}
