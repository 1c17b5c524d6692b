/* Loading models: hyperparameters, every naming of the tensors, strict binding, conversion,
 * cancelling. */
#include "engine/base/mem.h"
#include "engine/layout/pack.h"
#include "engine/model/model.h"
#include "tests/build_file.h"
#include "tests/support.h"

#include <math.h>
#include <unistd.h>

static const struct model_options plain = {.convert = -1, .width = 8, .n_threads = 2};

static char path[512];

static const char *in_tmp(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static struct model *load(const char *at, const struct model_options *o)
{
    struct model *m;
    struct error e = {0};

    ck_assert_msg(model_load(&m, at, o, &e) == 0, "%s", e.text);
    return m;
}

/* Writes the made model; returns its path: a folder for Hugging Face, else a file. */
static const char *write_made(const struct made_file *m, enum naming naming)
{
    struct bytes b = naming >= GGUF_STACKED ? made_gguf(m) : made_safetensors(m, 0, m->n), c = {0};

    ck_assert_int_eq(save(&b, in_tmp(naming >= GGUF_STACKED ? "made.gguf" : "model.safetensors")),
                     0);
    free(b.data);
    if (naming >= GGUF_STACKED)
        return path;
    put(&c, made_config, strlen(made_config));
    ck_assert_int_eq(save(&c, in_tmp("config.json")), 0);
    free(c.data);
    return support_tmpdir();
}

static void refuse(const struct made_file *m, enum naming naming, const char *says)
{
    struct model *out;
    struct error e = {0};
    int rc = model_load(&out, write_made(m, naming), &plain, &e);

    ck_assert_msg(rc == ERR_MODEL && strstr(e.text, says), "%d '%s', wanted '%s'", rc, e.text,
                  says);
    ck_assert_ptr_null(out);
}

START_TEST(golden_checkpoints)
{
    static const struct {
        const char *name;
        int layers, hidden, heads, kv, head, vocab, experts, ffn, window, original;
        double jitter;
        bool ab, hb;
        enum dtype type;
    } cases[] = {
        {"phimoe-16x-bf16", 3, 32, 8, 2, 8, 320, 16, 32, 0, 0, 0.2, false, false, DTYPE_BF16},
        {"phimoe-longrope-f32", 2, 32, 4, 2, 16, 96, 4, 32, 0, 48, 0.01, true, false, DTYPE_F32},
        {"phimoe-quirk-f32", 3, 32, 4, 2, 16, 128, 8, 32, 0, 0, 0.01, true, true, DTYPE_F32},
        {"phimoe-window-f32", 2, 32, 2, 1, 32, 96, 4, 32, 12, 0, 0.01, true, true, DTYPE_F32},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char at[128];
        struct model *m;
        const struct hparams *hp;

        snprintf(at, sizeof at, "golden/phimoe/%s", cases[i].name);
        m = load(support_path(at), &plain);
        hp = &m->hp;
        ck_assert_str_eq(m->family, "phimoe");
        ck_assert_str_eq(m->name, cases[i].name);
        ck_assert_int_eq(m->type, cases[i].type);
        ck_assert_int_eq(hp->n_layers, cases[i].layers);
        ck_assert_int_eq(hp->hidden, cases[i].hidden);
        ck_assert_int_eq(hp->common.mixer.heads, cases[i].heads);
        ck_assert_int_eq(hp->common.mixer.kv_heads, cases[i].kv);
        ck_assert_int_eq(hp->common.mixer.key_dim, cases[i].head);
        ck_assert_int_eq(hp->common.mixer.rope_dims, cases[i].head);
        ck_assert_int_eq(hp->n_vocab, cases[i].vocab);
        ck_assert_int_eq(hp->n_experts, cases[i].experts);
        ck_assert_int_eq(hp->n_experts_used, 2);
        ck_assert_int_eq(hp->common.ffn.width, cases[i].ffn);
        ck_assert_int_eq(hp->common.mixer.window, cases[i].window);
        ck_assert_int_eq(hp->original_context, cases[i].original);
        ck_assert(hp->common.ffn.router.jitter == (float)cases[i].jitter);
        ck_assert(hp->common.mixer.bias == cases[i].ab && hp->head_bias == cases[i].hb &&
                  !hp->tied_embeddings);
        ck_assert(hp->common.norms.eps == 1e-5f && hp->rope_theta == 10000.0f);
        ck_assert(hp->n_stops == 1 && hp->stops[0] == 2 && hp->bos == 1);
        ck_assert((m->head.bias != NULL) == cases[i].hb &&
                  (m->layers[0].o.bias != NULL) == cases[i].ab);
        ck_assert(m->output_norm.bias != NULL && m->layers[0].attention_norm.bias != NULL);
        ck_assert(m->layers[1].experts[3].down.rows == cases[i].hidden &&
                  m->layers[1].experts[3].down.cols == cases[i].ffn);
        if (cases[i].original) {
            ck_assert(hp->short_mscale == 1.1f && hp->long_mscale == 1.2f);
            ck_assert(hp->short_factor[7] == 1.8f && hp->long_factor[0] == 1.0f &&
                      hp->long_factor[7] == 11.0f);
        } else {
            ck_assert(!hp->short_factor && !hp->long_factor);
        }
        model_free(m);
    }
}
END_TEST

/* Every weight of the made model, wherever its naming put it. */
static void check_made(const struct model *m)
{
    const struct hparams *hp = &m->hp;
    float row[TINY_HIDDEN];

    ck_assert_int_eq(hp->n_layers, TINY_LAYERS);
    ck_assert_int_eq(hp->common.mixer.key_dim, TINY_HEAD);
    ck_assert_int_eq(hp->common.mixer.rope_dims, TINY_HEAD);
    ck_assert_int_eq(hp->common.mixer.kv_heads, TINY_KV);
    ck_assert_int_eq(hp->n_vocab, TINY_VOCAB);
    ck_assert_int_eq(hp->n_experts, TINY_EXPERTS);
    ck_assert_int_eq(hp->common.ffn.width, TINY_FFN);
    ck_assert(hp->common.ffn.router.jitter == 0.01f);
    ck_assert_int_eq(hp->stops[0], 7);
    for (int l = 0; l < TINY_LAYERS; l++) {
        const struct layer_weights *w = &m->layers[l];
        const struct {
            const struct matrix *m;
            int what, expert;
        } list[] = {{&w->q, W_Q, 0},
                    {&w->k, W_K, 0},
                    {&w->v, W_V, 0},
                    {&w->o, W_O, 0},
                    {&w->experts[0].gate, W_GATE, 0},
                    {&w->experts[3].gate, W_GATE, 3},
                    {&w->experts[1].up, W_UP, 1},
                    {&w->experts[2].down, W_DOWN, 2},
                    {&w->experts[3].down, W_DOWN, 3}};

        for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
            const struct matrix *x = list[i].m;

            ck_assert_int_eq(x->type, DTYPE_F32);
            for (int64_t j = 0; j < (int64_t)x->rows * x->cols; j++) {
                float v;

                memcpy(&v, (const uint8_t *)x->data + 4 * j, 4);
                ck_assert(v == made_value(list[i].what, l, list[i].expert, j));
            }
            for (int j = 0; i < 4 && j < x->rows; j++)
                ck_assert(x->bias[j] == made_value(list[i].what + 1, l, 0, j));
        }
        for (int j = 0; j < TINY_EXPERTS * TINY_HIDDEN; j++)
            ck_assert(w->router[j] == made_value(W_ROUTER, l, 0, j));
        for (int j = 0; j < TINY_HIDDEN; j++) {
            ck_assert(w->attention_norm.weight[j] == made_value(W_AN, l, 0, j) &&
                      w->attention_norm.bias[j] == made_value(W_AN_B, l, 0, j));
            ck_assert(w->expert_norm.weight[j] == made_value(W_EN, l, 0, j) &&
                      w->expert_norm.bias[j] == made_value(W_EN_B, l, 0, j));
        }
    }
    for (int id = 0; id < TINY_VOCAB; id++) {
        ck_assert_int_eq(model_embed(m, id, 0, row, NULL), 0);
        for (int j = 0; j < TINY_HIDDEN; j++)
            ck_assert(row[j] == made_value(W_EMBED, 0, 0, id * TINY_HIDDEN + j));
        ck_assert(m->head.bias[id] == made_value(W_HEAD_B, 0, 0, id));
    }
}

START_TEST(every_naming)
{
    for (int naming = 0; naming < NAMINGS; naming++) {
        struct made_file *made = made_model((enum naming)naming);
        struct model *m = load(write_made(made, (enum naming)naming), &plain);

        check_made(m);
        if (naming >= GGUF_STACKED)
            ck_assert_msg(!strchr(m->name, 0x1b) && strstr(m->name, "tiny"),
                          "a name with an escape sequence: %s", m->name);
        model_free(m);
        made_release(made);
        free(made);
    }
}
END_TEST

/* Float weights behind a header of odd length: too crooked to be read in place. */
START_TEST(misaligned_floats_are_copied)
{
    struct made_file *made = made_model(HF_EXPERTS);
    struct bytes b;
    struct model *m;
    uint64_t n;

    write_made(made, HF_EXPERTS);
    b = made_safetensors(made, 0, made->n);
    memcpy(&n, b.data, 8);
    put_zeros(&b, 1);
    memmove(b.data + 8 + n + 1, b.data + 8 + n, b.size - 9 - n);
    b.data[8 + n] = ' ';
    n++;
    memcpy(b.data, &n, 8);
    ck_assert_int_eq(save(&b, in_tmp("model.safetensors")), 0);
    m = load(support_tmpdir(), &plain);
    ck_assert_uint_eq((uintptr_t)m->layers[0].q.data % 4, 0);
    check_made(m);
    model_free(m);
    free(b.data);
    made_release(made);
    free(made);
}
END_TEST

static int at_of(const struct made_file *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return i;
    ck_abort_msg("no %s", name);
    return 0;
}

START_TEST(strict_binding)
{
    struct made_file *m = made_model(GGUF_STACKED);
    int i = at_of(m, "blk.1.ffn_up_exps.weight"), q = at_of(m, "blk.0.attn_q.weight");
    struct made_tensor saved = m->t[i];

    snprintf(m->t[i].name, sizeof m->t[i].name, "blk.1.something.weight");
    refuse(m, GGUF_STACKED, "tensor blk.1.ffn_up_exps.weight is missing");
    m->t[i] = saved;
    m->t[i].dims[1] = TINY_FFN * 2; /* same bytes, another shape */
    m->t[i].dims[2] = TINY_HIDDEN / 2;
    refuse(m, GGUF_STACKED, "has the shape (4, 128, 16); the model needs (4, 64, 32)");
    m->t[i] = saved;
    made_add(m, "blk.0.attn_q_norm.weight", DTYPE_F32, TINY_HEAD, 0, 0, NULL);
    refuse(m, GGUF_STACKED, "blk.0.attn_q_norm.weight is no part of a phimoe model");
    free(m->t[--m->n].data);
    made_add(m, "rope_freqs.weight", DTYPE_F32, TINY_HEAD / 2, 0, 0, NULL);
    model_free(load(write_made(m, GGUF_STACKED), &plain));
    free(m->t[--m->n].data);
    m->t[q].dims[0] = 48; /* rows no head size divides, o says otherwise */
    m->t[q].bytes = 48 * 32 * 4;
    refuse(m, GGUF_STACKED, "blk.0.attn_q.weight has the shape (48, 32)");
    m->t[q].dims[0] = 64;
    m->t[q].bytes = 64 * 32 * 4;
    m->t[q].type = DTYPE_I32;
    refuse(m, GGUF_STACKED, "type i32");
    m->t[q].type = DTYPE_F32;
    snprintf(m->t[at_of(m, "blk.1.attn_norm.weight")].name, 64, "blk.7.attn_norm.weight");
    refuse(m, GGUF_STACKED, "blk.1.attn_norm.weight is missing");
    made_release(m);
    free(m);
}
END_TEST

START_TEST(metadata_lies)
{
    static const struct {
        const char *key;
        uint32_t v;
        const char *says;
    } cases[] = {
        {"phimoe.expert_count", 5, "the number of experts is 5 by the metadata, 4 by the shape"},
        {"phimoe.expert_count", 0, "make sense"},
        {"phimoe.expert_count", 100000, "make sense"},
        {"phimoe.feed_forward_length", 63, "the width of an expert is 63"},
        {"phimoe.vocab_size", 51, "the vocabulary is 51"},
        {"phimoe.attention.key_length", 8, "heads of 8"},
        {"phimoe.attention.sliding_window", UINT32_MAX, "make sense"},
        {"phimoe.expert_used_count", 5, "5 of 4 experts"},
        {"phimoe.context_length", 0, "make sense"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made_file *m = made_model(GGUF_STACKED);

        meta_u32(m, cases[i].key, cases[i].v);
        refuse(m, GGUF_STACKED, cases[i].says);
        made_release(m);
        free(m);
    }
    struct made_file *m = made_model(GGUF_STACKED);

    meta_string(m, "phimoe.rope.freq_base", "x");
    refuse(m, GGUF_STACKED, "not a number");
    made_release(m);
    memset(m, 0, sizeof *m);
    meta_string(m, "general.architecture", "llama\x1b]0;title\a");
    made_add(m, "t", DTYPE_F32, 4, 0, 0, NULL);
    refuse(m, GGUF_STACKED, "is not known; the nearest name that is: llama (man 7");
    made_release(m);
    memset(m, 0, sizeof *m);
    made_add(m, "t", DTYPE_F32, 4, 0, 0, NULL);
    refuse(m, GGUF_STACKED, "does not name an architecture");
    made_release(m);
    free(m);
}
END_TEST

/* longrope in GGUF: the factors are tensors; the scales ours, the usual one, or computed. */
START_TEST(longrope_in_gguf)
{
    struct made_file *made = made_model(GGUF_STACKED);
    float f[TINY_HEAD / 2];
    struct model *m;

    for (int i = 0; i < TINY_HEAD / 2; i++)
        f[i] = 1.0f + (float)i;
    meta_u32(made, "phimoe.rope.scaling.original_context_length", 64);
    meta_u32(made, "phimoe.context_length", 128);
    m = load(write_made(made, GGUF_STACKED), &plain);
    ck_assert_int_eq(m->hp.original_context, 0); /* no factors: plain */
    model_free(m);
    made_add(made, "rope_factors_long.weight", DTYPE_F32, TINY_HEAD / 2, 0, 0, f);
    refuse(made, GGUF_STACKED, "short and long");
    made_add(made, "rope_factors_short.weight", DTYPE_F32, TINY_HEAD / 2, 0, 0, f);
    m = load(write_made(made, GGUF_STACKED), &plain);
    ck_assert_int_eq(m->hp.original_context, 64);
    ck_assert(m->hp.long_factor[3] == 4.0f);
    ck_assert(fabs((double)m->hp.long_mscale - sqrt(1.0 + log(2.0) / log(64.0))) < 1e-6);
    model_free(m);
    meta_f32(made, "phimoe.rope.scaling.attn_factor", 1.25f);
    meta_f32(made, "phimoe.rope.scaling.short_mscale", 1.5f);
    m = load(write_made(made, GGUF_STACKED), &plain);
    ck_assert(m->hp.short_mscale == 1.5f && m->hp.long_mscale == 1.25f);
    model_free(m);
    f[2] = -1.0f;
    memcpy(made->t[made->n - 1].data, f, sizeof f);
    refuse(made, GGUF_STACKED, "positive");
    made_release(made);
    free(made);
}
END_TEST

START_TEST(tied_embeddings)
{
    struct made_file *made = made_model(GGUF_STACKED);
    struct model *m;

    free(made->t[--made->n].data); /* output.bias */
    free(made->t[--made->n].data); /* output.weight */
    m = load(write_made(made, GGUF_STACKED), &plain);
    ck_assert(m->hp.tied_embeddings && m->head.rows == TINY_VOCAB &&
              memcmp(m->head.data, m->embeddings.data, m->head.bytes) == 0);
    model_free(m);
    made_release(made);
    free(made);
}
END_TEST

/* Float weights lie in memory of their own where there is room for twice the file, else in the
 * file: the same numbers. */
START_TEST(float_weights_copied)
{
    struct made_file *made = made_model(GGUF_STACKED);
    const char *at = write_made(made, GGUF_STACKED);
    struct model_options o = plain;
    struct model_footprint here, there;
    struct model *mapped, *copied, *m;
    struct error e = {0};

    mapped = load(at, &o);
    ck_assert(model_inspect(&m, at, &o, &there, &e) == 0);
    model_free(m);
    o.memory = 2 * weight_file_bytes(mapped->file) - 1;
    ck_assert(model_inspect(&m, at, &o, &here, &e) == 0);
    model_free(m);
    ck_assert_uint_eq(here.mapped, there.mapped);
    o.memory++;
    ck_assert(model_inspect(&m, at, &o, &here, &e) == 0);
    model_free(m);
    ck_assert(here.mapped < there.mapped && here.packed > there.packed);
    copied = load(at, &o);
    for (int l = 0; l < mapped->hp.n_layers; l++) {
        const struct matrix *a = &mapped->layers[l].q, *b = &copied->layers[l].q;

        ck_assert(a->type == DTYPE_F32 && a->data != b->data && a->bytes == b->bytes &&
                  memcmp(a->data, b->data, a->bytes) == 0);
    }
    model_free(copied);
    model_free(mapped);
    made_release(made);
    free(made);
}
END_TEST

/* What is packed behind the scenes, or stays in the file: the model answers until a value that is
 * no number is found. */
static void found_behind(const char *from, const char *tensor, bool mapped)
{
    struct model_options o = plain;
    struct error e = {0};
    struct model *m;
    char at[600];

    snprintf(at, sizeof at, "%s/poisoned.gguf", support_tmpdir());
    support_poison(from, tensor, 0x7e00, at);
    ck_assert_int_eq(model_load(&m, at, &o, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, tensor), "%s", e.text);
    o.background = true;
    o.looked_at_once = (uint64_t)1 << 30;
    ck_assert_int_eq(model_load(&m, at, &o, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, tensor), "%s", e.text);
    o.looked_at_once = 0;
    m = load(at, &o);
    ck_assert((m->mapped_bytes > m->embeddings.bytes) == mapped);
    e = (struct error){0};
    model_settle(m);
    for (uint64_t done, total; !model_packed(m, &done, &total);)
        usleep(1000);
    ck_assert_int_eq(model_check(m, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, tensor), "%s", e.text);
    model_free(m);
}

START_TEST(no_numbers_are_found_behind_the_scenes)
{
    struct made_file *made = made_model(GGUF_STACKED);
    char from[600];

    found_behind(support_demo(), "blk.1.ffn_down_exps.weight", false);
    snprintf(from, sizeof from, "%s", write_made(made, GGUF_STACKED));
    found_behind(from, "blk.1.attn_k.weight", true);
    made_release(made);
    free(made);
}
END_TEST

static void demo_stops(const struct hparams *hp)
{
    int seen = 0;

    for (int i = 0; i < hp->n_stops; i++)
        seen |= hp->stops[i] == 4091 ? 1 : hp->stops[i] == 4092 ? 2 : hp->stops[i] == 4094 ? 4 : 8;
    ck_assert_int_eq(seen, 7);
    ck_assert(hp->unk == 0 && hp->bos == 1 && !hp->add_bos);
}

START_TEST(demo_model)
{
    struct model_options o = plain;
    struct model *m;

    o.width = 16;
    m = load(support_demo(), &o);
    ck_assert_str_eq(m->name, "tiny-storyteller");
    ck_assert_int_eq(m->type, DTYPE_Q8_0);
    ck_assert(m->layers[7].experts[15].down.width == 16 && (uintptr_t)m->head.data % 64 == 0);
    ck_assert_int_eq(m->n_params, 15778816);
    demo_stops(&m->hp);
    model_free(m);
}
END_TEST

START_TEST(demo_folder)
{
    const char *folder = support_shared("demo/tiny-storyteller");
    struct model_options o = plain;
    struct model *gguf, *m, *q;
    float a[256], b[256];

    if (!folder)
        return;
    m = load(folder, &plain);
    ck_assert_int_eq(m->type, DTYPE_BF16);
    demo_stops(&m->hp);
    gguf = load(support_demo(), &plain);
    ck_assert(model_embed(gguf, 4095, 0, a, NULL) == 0 && model_embed(m, 4095, 0, b, NULL) == 0);
    for (int i = 0; i < 256; i++)
        ck_assert(fabsf(a[i] - b[i]) < 0.01f);
    o.convert = DTYPE_Q8_0;
    q = load(folder, &o);
    ck_assert_int_eq(q->type, DTYPE_Q8_0);
    ck_assert(q->hash != m->hash);
    model_free(q);
    model_free(gguf);
    model_free(m);
}
END_TEST

/* --dtype q4_0 on a model with rows of 8 and 96 columns: what 32 does not divide keeps its type. */
START_TEST(conversion)
{
    static const int to[] = {DTYPE_F32, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};

    for (int naming = 0; naming < NAMINGS; naming++)
        for (size_t i = 0; i < 4; i++) {
            struct model_options o = {.convert = to[i], .width = 16, .n_threads = 2};
            struct made_file *made = made_model((enum naming)naming);
            struct model *m = load(write_made(made, (enum naming)naming), &o);
            const struct matrix *x = &m->layers[1].experts[2].up;
            uint8_t *want = malloc(x->bytes), *rows = malloc(TINY_FFN * TINY_HIDDEN * 4);
            struct bytes w = {0};

            ck_assert_int_eq(x->type, to[i]);
            ck_assert_int_eq(m->type, to[i]);
            made_fill(&w, W_UP, 1, 2, TINY_FFN * TINY_HIDDEN);
            pack_rows(want, x->type, x->width, w.data, DTYPE_F32, x->rows, x->cols, 0,
                      pack_groups(x->rows, x->width));
            ck_assert_int_eq(memcmp(want, x->data, x->bytes), 0);
            model_free(m);
            free(w.data);
            free(want);
            free(rows);
            made_release(made);
            free(made);
        }
}
END_TEST

static int cancel(void *ctx, uint64_t done, uint64_t total)
{
    ++*(int *)ctx;
    return 1;
}

START_TEST(inspect_counts_like_loading)
{
    const char *at = support_path("golden/phimoe/phimoe-quirk-f32");
    struct model_options o = {.convert = DTYPE_Q8_0, .width = 16, .n_threads = 1};
    struct model_footprint needs;
    struct model *m, *loaded;
    struct error e = {0};
    size_t before = mem_pages_total();
    int calls = 0, rc;

    ck_assert_msg(model_inspect(&m, at, &o, &needs, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(mem_pages_total(), before);
    loaded = load(at, &o);
    ck_assert_uint_eq(m->packed_bytes, loaded->packed_bytes);
    ck_assert_uint_eq(needs.packed + needs.mapped, needs.attention + needs.experts +
                                                       needs.router_norms + needs.embeddings +
                                                       needs.head);
    ck_assert(mem_pages_total() - before >= loaded->packed_bytes &&
              mem_pages_total() - before < loaded->packed_bytes + 4096);
    model_free(m);
    model_free(loaded);
    ck_assert_uint_eq(mem_pages_total(), before);
    /* Told at the end at least: too late to cancel. A machine that kept the load waiting is told
     * before, and then it ends. */
    o.progress = cancel;
    o.progress_ctx = &calls;
    rc = model_load(&loaded, at, &o, &e);
    ck_assert_int_eq(calls, 1);
    ck_assert_int_eq(rc, rc ? ERR_CANCELLED : 0);
    if (!rc)
        model_free(loaded);
    ck_assert_uint_eq(mem_pages_total(), before);
}
END_TEST

/* Every allocation on the way may fail: an error, no leak (ASan), no crash. */
START_TEST(out_of_memory)
{
    const char *at = support_path("golden/phimoe/phimoe-longrope-f32");

    for (long n = 0;; n++) {
        struct model *m;
        struct error e = {0};
        int rc;

        mem_fail_after(n);
        rc = model_load(&m, at, &plain, &e);
        mem_fail_after(-1);
        if (rc == 0) {
            model_free(m);
            ck_assert_int_gt(n, 50);
            break;
        }
        ck_assert_msg(rc == ERR_MEMORY && e.text[0], "allocation %ld: %d %s", n, rc, e.text);
        ck_assert_ptr_null(m);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("model");
    TCase *t = tcase_create("load");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, golden_checkpoints);
    tcase_add_test(t, every_naming);
    tcase_add_test(t, misaligned_floats_are_copied);
    tcase_add_test(t, strict_binding);
    tcase_add_test(t, metadata_lies);
    tcase_add_test(t, longrope_in_gguf);
    tcase_add_test(t, tied_embeddings);
    tcase_add_test(t, float_weights_copied);
    tcase_add_test(t, no_numbers_are_found_behind_the_scenes);
    tcase_add_test(t, demo_model);
    tcase_add_test(t, demo_folder);
    tcase_add_test(t, conversion);
    tcase_add_test(t, inspect_counts_like_loading);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
