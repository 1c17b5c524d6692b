/* Importance matrices made here: what is told of the matrices of a model while a text runs through
 * it, against sums that this file makes of what it knows, and the file that comes of it. */
#include "tests/golden.h"

#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/convert/importance.h"
#include "engine/convert/importance_gather.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"
#include "engine/run/engine.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 48

static struct error e;
static char path[600];
static int ids[TOKENS];

/* One importance matrix of a golden checkpoint, into the file `path`. */
static struct engine *gather_model(const char *model, int n_threads, int convert, const char *name)
{
    struct importance_about about = {"a text", 1, TOKENS};
    struct device_observer observer = {importance_squares, NULL};
    struct importance_gather *g;
    struct engine *engine = NULL;
    int experts, unmet;

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    ck_assert_msg(golden_engine(&engine, model, NULL, n_threads, convert, true, &e) == 0, "%s",
                  e.text);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (5 + 11 * i) % engine_info(engine)->model->hp.n_vocab;
    ck_assert_msg(importance_gather_new(&g, engine_info(engine)->model, &e) == 0, "%s", e.text);
    observer.ctx = g;
    engine_observe_matrices(engine, &observer);
    ck_assert_msg(engine_eval(engine, ids, TOKENS, NULL, false, &e) == 0, "%s", e.text);
    engine_observe_matrices(engine, NULL);
    engine_session_clear(engine); /* nobody asks any more */
    ck_assert_msg(engine_eval(engine, ids, TOKENS, NULL, false, &e) == 0, "%s", e.text);
    ck_assert_msg(importance_gather_write(g, path, &about, &experts, &unmet, &e) == 0, "%s",
                  e.text);
    ck_assert_int_ge(experts, unmet);
    importance_gather_free(g);
    return engine;
}

static struct engine *gather(const char *folder, int n_threads, int convert, const char *name)
{
    char below[200];

    snprintf(below, sizeof below, "golden/families/%s", folder);
    return gather_model(support_path(below), n_threads, convert, name);
}

static float at(const struct weight_file *f, const char *tensor, const char *what, size_t i)
{
    char name[160];
    const struct tensor_view *t;
    float v;

    snprintf(name, sizeof name, "%s.%s", tensor, what);
    t = weight_file_find(f, name);
    ck_assert_msg(t && t->type == DTYPE_F32 && i < t->bytes / 4, "%s", name);
    memcpy(&v, (const char *)t->data + 4 * i, sizeof v);
    return v;
}

/* What layer 0 meets is made of the embeddings alone; what experts meet is counted. */
START_TEST(squares_are_what_matrices_meet)
{
    struct engine *g = gather("mixtral", 2, -1, "a.gguf");
    const struct model *m = engine_info(g)->model;
    int hidden = m->hp.hidden, layers = m->hp.n_layers;
    const struct ffn_shape *ffn = &hparams_layer(&m->hp, 0)->ffn;
    double *want = calloc((size_t)hidden, sizeof *want);
    float *row = malloc((size_t)hidden * sizeof *row);
    struct weight_file *f;
    char name[80];

    for (int t = 0; t < TOKENS; t++) {
        double mean = 0.0;

        row_to_f32(m->embeddings.type,
                   (const char *)m->embeddings.data +
                       (size_t)ids[t] * dtype_row_bytes(m->embeddings.type, hidden),
                   hidden, row);
        for (int c = 0; c < hidden; c++)
            mean += (double)row[c] * row[c] / hidden;
        for (int c = 0; c < hidden; c++)
            want[c] += pow(row[c] * m->layers[0].attention_norm.weight[c], 2.0) /
                       (mean + (double)m->hp.common.norms.eps);
    }
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    for (int c = 0; c < hidden; c++) {
        ck_assert_double_eq_tol(at(f, "blk.0.attn_q.weight", "in_sum2", (size_t)c), want[c],
                                1e-4 * want[c]);
        ck_assert(at(f, "blk.0.attn_v.weight", "in_sum2", (size_t)c) ==
                  at(f, "blk.0.attn_q.weight", "in_sum2", (size_t)c));
    }
    for (int l = 0; l < layers; l++) {
        double met = 0.0;

        snprintf(name, sizeof name, "blk.%d.attn_output.weight", l);
        ck_assert(at(f, name, "counts", 0) == TOKENS);
        for (int x = 0; x < ffn->experts; x++) {
            snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", l);
            met += (double)at(f, name, "counts", (size_t)x);
            snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", l);
            for (int c = 0; c < hidden; c++) {
                size_t i = (size_t)(x * hidden + c);
                float gate = at(f, name, "in_sum2", i);
                char up[80];

                snprintf(up, sizeof up, "blk.%d.ffn_up_exps.weight", l);
                ck_assert(gate == at(f, up, "in_sum2", i));
            }
        }
        ck_assert_double_eq_tol(met, (double)(TOKENS * ffn->used), 0.5);
    }
    weight_file_close(f);
    free(want);
    free(row);
    engine_close(g);
}
END_TEST

/* Whole files: the same however many threads add up. */
START_TEST(threads_change_nothing)
{
    static const char *const folders[] = {"qwen2_moe", "qwen3_5_moe", "nemotron_h"};
    static char one[1 << 21], two[1 << 21];
    const char *const names[] = {"one.gguf", "two.gguf"};
    size_t n[2];

    for (int k = 0; k < 2; k++) {
        engine_close(gather(folders[_i], k + 1, -1, names[k]));
        FILE *f = fopen(path, "rb");

        ck_assert_ptr_nonnull(f);
        n[k] = fread(k ? two : one, 1, sizeof one, f);
        fclose(f);
    }
    ck_assert(n[0] == n[1] && n[0] > 4096 && n[0] < sizeof one);
    ck_assert_mem_eq(one, two, n[0]);
}
END_TEST

/* The reader finds every expert that met something, by the names of llama.cpp's files; quantised
 * weights meet what was multiplied, near what floats meet. */
START_TEST(a_file_that_is_read)
{
    static const char *const tensors[] = {"blk.0.attn_qkv.weight", "blk.3.attn_output.weight",
                                          "blk.3.attn_q.weight", "blk.0.ffn_up_shexp.weight"};
    struct importance *i[2];
    float a[512], b[512];

    for (int k = 0; k < 2; k++) {
        struct engine *g = gather("qwen3_5_moe", 2, k ? DTYPE_Q8_0 : -1, k ? "q.gguf" : "f.gguf");

        ck_assert_msg(importance_open(&i[k], path, &e) == 0, "%s", e.text);
        engine_close(g);
    }
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
        int cols = t == 1 ? 128 : 32;
        double apart = 0.0;

        ck_assert_msg(importance_check(i[0], tensors[t], 1, cols, &e) == 0, "%s", e.text);
        ck_assert_msg(importance_row(i[0], tensors[t], 0, 1, cols, a), "%s", tensors[t]);
        ck_assert_msg(importance_row(i[1], tensors[t], 0, 1, cols, b), "%s", tensors[t]);
        for (int c = 0; c < cols; c++)
            apart += fabs((double)a[c] - (double)b[c]) / cols;
        ck_assert_msg(apart < 0.1, "%s: %g", tensors[t], apart);
    }
    importance_close(i[0]);
    importance_close(i[1]);
}
END_TEST

static const char *const folders[] = {"qwen3_5_moe", "qwen3_next",     "gemma4",      "nemotron_h",
                                      "lfm2_moe",    "bailing_hybrid", "deepseek_v3", "mixtral"};

/* Every tensor of b that is one of sums: the same of a. */
static void same_sums(const struct weight_file *a, const struct weight_file *b, const char *which)
{
    ck_assert_uint_eq(weight_file_count(a), weight_file_count(b));
    for (size_t i = 0; i < weight_file_count(b); i++) {
        const struct tensor_view *u = weight_file_at(b, i), *t = weight_file_find(a, u->name);
        double apart = 0.0, all = 0.0;
        float x, y;

        ck_assert_msg(t && t->bytes == u->bytes && t->dims[0] == u->dims[0], "%s: %s", which,
                      u->name);
        for (size_t k = 0; k < u->bytes / 4; k++) {
            memcpy(&x, (const char *)t->data + 4 * k, 4);
            memcpy(&y, (const char *)u->data + 4 * k, 4);
            apart += fabs((double)x - (double)y);
            all += fabs((double)y);
        }
        ck_assert_msg(apart <= 1e-4 * all, "%s: %s: %g of %g", which, u->name, apart, all);
    }
}

/* What a folder's matrices met is named, and its columns ordered, as in the file that is written of
 * it: heads that GGUF puts elsewhere, matrices that are one here and two there, heads' own. */
START_TEST(a_folder_is_as_its_file)
{
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct export_report r;
    struct weight_file *f[2];
    char below[200], out[600];

    for (int k = 0; k < 2; k++) {
        snprintf(below, sizeof below, "golden/families/%s", folders[_i]);
        snprintf(out, sizeof out, "%s/model.gguf", support_tmpdir());
        if (k)
            ck_assert_msg(model_export(support_path(below), out, &o, &r, &e) == 0, "%s", e.text);
        engine_close(gather_model(k ? out : support_path(below), 2, -1, k ? "g.gguf" : "f.gguf"));
        ck_assert_msg(weight_file_open(&f[k], path, false, &e) == 0, "%s", e.text);
    }
    same_sums(f[0], f[1], folders[_i]);
    weight_file_close(f[0]);
    weight_file_close(f[1]);
}
END_TEST

/* Each head of a latent row's keys and values meets every token. */
START_TEST(heads_are_told_apart)
{
    struct engine *g = gather("deepseek_v3", 2, -1, "mla.gguf");
    const struct mixer_shape s = hparams_layer(&engine_info(g)->model->hp, 1)->mixer;
    int nope = s.key_dim - s.rope_dims, heads = s.heads;
    struct importance *i;
    float row[512];

    engine_close(g);
    ck_assert_msg(importance_open(&i, path, &e) == 0, "%s", e.text);
    ck_assert_msg(importance_check(i, "blk.1.attn_k_b.weight", heads, nope, &e) == 0, "%s", e.text);
    for (int h = 0; h < heads; h++) {
        struct weight_file *f;

        ck_assert(importance_row(i, "blk.1.attn_k_b.weight", h, heads, nope, row));
        ck_assert(importance_row(i, "blk.1.attn_v_b.weight", h, heads, s.kv_rank, row));
        ck_assert(weight_file_open(&f, path, false, &e) == 0);
        ck_assert(at(f, "blk.1.attn_k_b.weight", "counts", (size_t)h) == TOKENS);
        ck_assert(at(f, "blk.1.attn_v_b.weight", "counts", (size_t)h) == TOKENS);
        weight_file_close(f);
    }
    importance_close(i);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("importance");
    TCase *c = tcase_create("gather");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, squares_are_what_matrices_meet);
    tcase_add_loop_test(c, threads_change_nothing, 0, 3);
    tcase_add_test(c, a_file_that_is_read);
    tcase_add_loop_test(c, a_folder_is_as_its_file, 0, (int)(sizeof folders / sizeof *folders));
    tcase_add_test(c, heads_are_told_apart);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
