/* The blocks of models' files that predict further tokens: their logits against a plain reference
 * (tests/tools/mtp_reference.py, mtp_streams.py), what they draft, and that the text stays. */
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/device/device.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const families_with[] = {"deepseek_v3",  "glm4_moe",    "qwen3_5_moe",
                                            "cohere2_moe",  "step3p5",     "mimo_v2_flash",
                                            "deepseek_v32", "deepseek_v4", "longcat_flash"};
#define FAMILIES ((int)(sizeof families_with / sizeof *families_with))
#define DRAFTS 4

struct reference {
    char *bytes;
    int n, n_vocab;
    const int *ids, *drafts;
    const float *logits; /* (n - 1, n_vocab) */
};

static size_t whole_file(const char *path, char **bytes)
{
    FILE *f = fopen(path, "rb");
    size_t size;

    ck_assert_msg(f != NULL, "%s", path);
    fseek(f, 0, SEEK_END);
    size = (size_t)ftell(f);
    rewind(f);
    *bytes = mem_alloc(size + 1, 1);
    ck_assert_uint_eq(fread(*bytes, 1, size, f), size);
    fclose(f);
    return size;
}

/* Where a tensor's bytes begin, and its size along dimension d. */
static const void *tensor(const char *bytes, const char *name, int d, int *size)
{
    uint64_t head;
    unsigned long begin;
    char quoted[64];
    const char *at;

    memcpy(&head, bytes, 8);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    at = strstr(bytes + 8, quoted);
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(strstr(at, "\"data_offsets\": [") + 17, "%lu", &begin), 1);
    at = strstr(at, "\"shape\": [") + 10;
    for (int i = 0; i < d; i++)
        at = strchr(at, ',') + 1;
    *size = atoi(at);
    return bytes + 8 + head + begin;
}

static struct reference reference_of(const char *family)
{
    struct reference r;
    char path[300];
    int n;

    snprintf(path, sizeof path, "golden/families/%s/golden-further.safetensors", family);
    whole_file(support_path(path), &r.bytes);
    r.ids = tensor(r.bytes, "input_ids", 0, &r.n);
    r.logits = tensor(r.bytes, "logits", 1, &r.n_vocab);
    r.drafts = tensor(r.bytes, "drafts", 0, &n);
    ck_assert_int_eq(n, DRAFTS);
    return r;
}

static struct engine *open_path(const char *path, const char *kernels, const char *spec)
{
    struct engine_config c = {.kernels = kernels,
                              .context = 256,
                              .n_threads = 2,
                              .ubatch = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .convert = -1,
                              .exact = true,
                              .tune = DEVICE_TUNE_OFF,
                              .drafting = {.always = true},
                              .no_tokenizer = true};
    struct engine *g = NULL;
    struct error e = {0};

    c.model_path = path;
    snprintf(c.drafting.type, sizeof c.drafting.type, "%s", spec);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

static struct engine *open_family(const char *family, const char *kernels, const char *spec)
{
    char folder[200];

    snprintf(folder, sizeof folder, "golden/families/%s", family);
    return open_path(support_path(folder), kernels, spec);
}

static double worst(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        most = d <= most ? most : isnan(d) ? INFINITY : d;
    }
    return most;
}

/* The block's logits of every token but the first, beside the states of the model's newest pass. */
static void block_logits(struct engine *g, const struct reference *r, int chunk, float *out)
{
    struct session *s = g->mtp->session;
    const struct model *m = g->mtp->model;
    const struct forward *f = &g->forward;
    size_t values = (size_t)hparams_state_values(&m->hp), beside = (size_t)hparams_beside(&m->hp);
    float *states = mem_alloc((size_t)r->n * values, sizeof *states);
    struct error e = {0};

    for (int i = 0; i < r->n; i++)
        if (hparams_hyper(&m->hp))
            memcpy(states + (size_t)i * values,
                   f->inputs + (size_t)i * beside + hparams_streams_at(&m->hp),
                   values * sizeof *states);
        else
            model_norm(m, &m->mtp.state_norm, f->x + (size_t)i * values,
                       states + (size_t)i * values);
    engine_session_forget(s);
    s->states = states;
    s->states_at = 0;
    ck_assert_msg(session_extend(s, r->ids + 1, r->n - 1, chunk, out, true, &e) == 0, "%s", e.text);
    s->states = NULL;
    mem_free(states);
}

static void eval_prompt(struct engine *g, const struct reference *r)
{
    struct error e = {0};
    float *logits = mem_alloc((size_t)r->n_vocab, sizeof *logits);

    ck_assert_int_eq(engine_info(g)->model->hp.n_vocab, r->n_vocab);
    ck_assert_msg(engine_eval(g, r->ids, r->n, logits, false, &e) == 0, "%s", e.text);
    mem_free(logits);
}

START_TEST(logits_are_the_references)
{
    static const char *const sets[] = {"scalar", "avx2", "avx512", "neon", "i8mm"};
    static const int chunks[] = {1, 7, 64};
    const char *family = families_with[_i];
    struct reference r = reference_of(family);
    size_t n = (size_t)(r.n - 1) * (size_t)r.n_vocab;
    float *out = mem_alloc(n, sizeof *out);
    struct error e;

    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        struct engine *g;

        if (cpu_kernels_select(sets[k], &e) < 0)
            continue;
        g = open_family(family, sets[k], "mtp");
        eval_prompt(g, &r);
        for (int c = 0; c < 3; c++) {
            block_logits(g, &r, chunks[c], out);
            ck_assert_msg(worst(out, r.logits, n) <= GOLDEN_TOLERANCE, "%s, %s, chunks of %d: %g",
                          family, sets[k], chunks[c], worst(out, r.logits, n));
        }
        support_ran("%s, %s: %.3g", family, sets[k], worst(out, r.logits, n));
        engine_close(g);
    }
    cpu_kernels_select(NULL, &e);
    mem_free(out);
    mem_free(r.bytes);
}
END_TEST

/* What is drafted of the states that the model's passes left, as often as one asks; and again after
 * the session went back and came again another way. */
START_TEST(drafts_are_the_references)
{
    const char *family = families_with[_i];
    const struct drafter_ops *ops = drafter_ops(DRAFTER_mtp);
    struct reference r = reference_of(family);
    struct engine *g = open_family(family, NULL, "auto");
    struct drafter *d = g->session->spec.drafters[DRAFTER_mtp];
    int out[DRAFT_MOST], n = 0, best;
    float p[DRAFT_MOST], *logits = mem_alloc((size_t)r.n_vocab, sizeof *logits);
    int *ids = mem_alloc((size_t)r.n + 1, sizeof *ids);
    struct error e = {0};

    ck_assert_ptr_nonnull(d);
    ck_assert_int_eq(ops->propose(d, r.ids, r.n, DRAFTS, 0.15f, out, p),
                     0); /* nothing was computed */
    for (int again = 0; again < 2; again++) {
        engine_session_rewind(g, again ? 5 : 0);
        ck_assert_int_eq(engine_eval_chunked(g, r.ids + (again ? 5 : 0), r.n - (again ? 5 : 0),
                                             again ? 3 : 64, logits, false, &e),
                         0);
        best = golden_argmax(logits, r.n_vocab);
        memcpy(ids, r.ids, (size_t)r.n * sizeof *ids);
        ids[r.n] = best;
        for (int i = 0; i < 20; i++) { /* until it is sure enough of itself to go on */
            n = ops->propose(d, ids, r.n + 1, DRAFTS, 0.15f, out, p);
            ck_assert_int_ge(n, 1);
            ck_assert_mem_eq(out, r.drafts, (size_t)n * sizeof *out);
            ops->learn(d, n, n);
        }
        ck_assert_int_eq(n, DRAFTS);
    }
    mem_free(ids);
    mem_free(logits);
    engine_close(g);
    mem_free(r.bytes);
}
END_TEST

/* The file that is written of a folder: the block's logits and drafts are the folder's. */
START_TEST(written_files_draft_alike)
{
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    const struct drafter_ops *ops = drafter_ops(DRAFTER_mtp);
    const char *family = families_with[_i];
    struct reference r = reference_of(family);
    size_t n = (size_t)(r.n - 1) * (size_t)r.n_vocab;
    float *out = mem_alloc(n, sizeof *out), p[DRAFT_MOST];
    char folder[200], path[300];
    int *ids = mem_alloc((size_t)r.n + 1, sizeof *ids), drafts[DRAFT_MOST], made = 0;
    struct export_report report;
    struct engine *g;
    struct error e = {0};

    snprintf(folder, sizeof folder, "golden/families/%s", family);
    snprintf(path, sizeof path, "%s/further.gguf", support_tmpdir());
    ck_assert_msg(model_export(support_path(folder), path, &o, &report, &e) == 0, "%s", e.text);
    ck_assert(report.mtp && !strstr(report.left_out, "further"));

    g = open_path(path, NULL, "mtp");
    eval_prompt(g, &r);
    block_logits(g, &r, 7, out);
    ck_assert_msg(worst(out, r.logits, n) <= GOLDEN_TOLERANCE, "%g", worst(out, r.logits, n));
    support_ran("%s, written: %.3g", family, worst(out, r.logits, n));
    engine_close(g);

    g = open_path(path, NULL, "mtp");
    memcpy(ids, r.ids, (size_t)r.n * sizeof *ids);
    ck_assert_int_eq(engine_eval(g, r.ids, r.n, out, false, &e), 0);
    ids[r.n] = golden_argmax(out, r.n_vocab);
    for (int i = 0; i < 20; i++) {
        struct drafter *d = g->session->spec.drafters[DRAFTER_mtp];

        made = ops->propose(d, ids, r.n + 1, DRAFTS, 0.15f, drafts, p);
        ck_assert_int_ge(made, 1);
        ck_assert_mem_eq(drafts, r.drafts, (size_t)made * sizeof *drafts);
        ops->learn(d, made, made);
    }
    ck_assert_int_eq(made, DRAFTS);
    engine_close(g);
    mem_free(ids);
    mem_free(out);
    mem_free(r.bytes);
}
END_TEST

/* ---- Halves of a join that are packed ---- */

#define HALVES 2

/* A value of FP8 E4M3 times a power of two, which BF16 holds exactly. */
static uint16_t half_of(uint8_t code, int exponent)
{
    int digits = code & 7, e = code >> 3 & 15;
    float x = e ? ldexpf(1.0f + (float)digits / 8, e - 7) : ldexpf((float)digits / 8, -6);
    uint32_t bits;

    x = ldexpf(code & 128 ? -x : x, exponent);
    memcpy(&bits, &x, sizeof bits);
    ck_assert_uint_eq(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
}

/* Appends a tensor to the header and the data. */
static void put_tensor(json_t *head, const char *name, const char *dtype, json_t *shape, FILE *data,
                       const void *bytes, size_t n)
{
    long at = ftell(data);

    ck_assert_int_eq(json_object_set_new(head, name,
                                         json_pack("{s:s, s:O, s:[I, I]}", "dtype", dtype, "shape",
                                                   shape, "data_offsets", (json_int_t)at,
                                                   (json_int_t)at + (json_int_t)n)),
                     0);
    ck_assert_uint_eq(fwrite(bytes, 1, n, data), n);
}

/* One half as FP8 with its scale beside, or as the same values. */
static void put_half(json_t *head, const char *name, json_t *shape, FILE *data, size_t n,
                     bool packed)
{
    uint8_t *codes = mem_alloc(n, 1), scale = 127 - 8;
    uint16_t *values = mem_alloc(n, sizeof *values);
    char beside[64];
    json_t *one = json_pack("[i, i]", 1, 1);

    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)(i * 37 + strlen(name) + name[6]);
        codes[i] ^= (codes[i] & 127) == 127; /* no number */
        values[i] = half_of(codes[i], scale - 127);
    }
    if (packed) {
        snprintf(beside, sizeof beside, "%.*s.scale", (int)(strlen(name) - 7), name);
        put_tensor(head, name, "F8_E4M3", shape, data, codes, n);
        put_tensor(head, beside, "F8_E8M0", one, data, &scale, 1);
    } else {
        put_tensor(head, name, "BF16", shape, data, values, n * sizeof *values);
    }
    json_decref(one);
    mem_free(codes);
    mem_free(values);
}

/* The weights of DeepSeek V4's checkpoint with other halves. */
static void write_weights(const char *path, bool packed)
{
    static const char *const halves[HALVES] = {"mtp.0.e_proj.weight", "mtp.0.h_proj.weight"};
    char *in, *data = NULL, *text;
    size_t n_in, n = 0;
    uint64_t head;
    FILE *blob = open_memstream(&data, &n), *f = fopen(path, "wb");
    json_t *from, *to = json_object(), *entry;
    const char *name;

    n_in = whole_file(support_path("golden/families/deepseek_v4/model.safetensors"), &in);
    memcpy(&head, in, sizeof head);
    ck_assert(f && blob && (from = json_loadb(in + 8, (size_t)head, 0, NULL)));
    json_object_foreach(from, name, entry)
    {
        json_t *at = json_object_get(entry, "data_offsets"),
               *shape = json_object_get(entry, "shape");
        size_t begin = (size_t)json_integer_value(json_array_get(at, 0)),
               end = (size_t)json_integer_value(json_array_get(at, 1));
        bool half = false;

        if (!at)
            continue;
        ck_assert(8 + head + end <= n_in);
        for (int i = 0; i < HALVES; i++)
            half = half || strcmp(name, halves[i]) == 0;
        if (half)
            put_half(to, name, shape, blob, (end - begin) / 2, packed);
        else
            put_tensor(to, name, json_string_value(json_object_get(entry, "dtype")), shape, blob,
                       in + 8 + head + begin, end - begin);
    }
    fclose(blob);
    text = json_dumps(to, JSON_COMPACT);
    head = strlen(text);
    ck_assert(fwrite(&head, sizeof head, 1, f) == 1 && fwrite(text, head, 1, f) == 1 &&
              fwrite(data, n, 1, f) == 1);
    fclose(f);
    json_decref(from);
    json_decref(to);
    free(text);
    free(data);
    mem_free(in);
}

static const char *folder_of_halves(bool packed)
{
    static char dir[400];
    char path[500];
    json_t *config = json_load_file(support_path("golden/families/deepseek_v4/config.json"), 0,
                                    NULL);

    snprintf(dir, sizeof dir, "%s/halves", support_tmpdir());
    mkdir(dir, 0700);
    if (packed)
        json_object_set_new(config, "quantization_config",
                            json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "fmt", "e4m3",
                                      "weight_block_size", 128, 128));
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_weights(path, packed);
    return dir;
}

/* Packed as DeepSeek V4's own checkpoints are, its two halves give what the same values give; so
 * does the file that is written of them. */
START_TEST(packed_halves_join)
{
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct reference r = reference_of("deepseek_v4");
    size_t n = (size_t)(r.n - 1) * (size_t)r.n_vocab;
    float *out[3];
    char path[500];

    for (int i = 0; i < 3; i++) {
        const char *folder = folder_of_halves(i > 0);
        struct export_report report;
        struct engine *g;
        struct error e = {0};

        snprintf(path, sizeof path, "%s", folder);
        if (i == 2) {
            snprintf(path, sizeof path, "%s/halves.gguf", support_tmpdir());
            ck_assert_msg(model_export(folder, path, &o, &report, &e) == 0, "%s", e.text);
            ck_assert(report.mtp);
        }
        out[i] = mem_alloc(n, sizeof **out);
        g = open_path(path, NULL, "mtp");
        eval_prompt(g, &r);
        block_logits(g, &r, 64, out[i]);
        engine_close(g);
    }
    ck_assert(worst(out[0], r.logits, n) > 0.1); /* other values than the checkpoint's */
    ck_assert_msg(worst(out[0], out[1], n) <= 1e-5, "%g", worst(out[0], out[1], n));
    ck_assert_msg(worst(out[1], out[2], n) <= 1e-5, "%g", worst(out[1], out[2], n));
    for (int i = 0; i < 3; i++)
        mem_free(out[i]);
    mem_free(r.bytes);
}
END_TEST

/* A block that lacks experts stays behind, and the report names what it lacks; other parts that
 * nothing is computed with are named too. */
START_TEST(what_is_left_out_is_said)
{
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct export_report report;
    struct error e = {0};
    char path[300];

    snprintf(path, sizeof path, "%s/left.gguf", support_tmpdir());
    ck_assert_msg(model_export(support_path("golden/families/qwen3_next"), path, &o, &report, &e) ==
                      0,
                  "%s", e.text);
    ck_assert(!report.mtp);
    ck_assert_msg(strstr(report.left_out, "further tokens") &&
                      strstr(report.left_out, "mtp.layers.0.mlp.experts.2."),
                  "%s", report.left_out);
    ck_assert_int_eq(
        model_export(support_path("golden/families/qwen3_5_moe"), path, &o, &report, &e), 0);
    ck_assert_msg(strstr(report.left_out, "a vision tower"), "%s", report.left_out);
    ck_assert_int_eq(model_export(support_path("golden/families/qwen3"), path, &o, &report, &e), 0);
    ck_assert_str_eq(report.left_out, "");
}
END_TEST

START_TEST(a_file_without_one_is_refused)
{
    struct engine_config c = {
        .model_path = support_demo(), .context = 64, .convert = -1, .drafting = {.type = "mtp"}};
    struct engine *g;
    struct error e = {0};

    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "no block that predicts further tokens"));
}
END_TEST

/* Two of the checkpoints of this shape: one whose block lacks experts, which nobody has to use. */
START_TEST(an_incomplete_one_does_not_draft)
{
    struct engine *g = open_family("qwen3_next", NULL, "auto");
    struct engine_config c = {.model_path = support_path("golden/families/qwen3_next"),
                              .context = 64,
                              .convert = -1,
                              .no_tokenizer = true,
                              .drafting = {.type = "mtp"}};
    struct error e = {0};

    ck_assert_ptr_null(g->mtp);
    ck_assert_ptr_null(g->session->spec.drafters[DRAFTER_mtp]);
    engine_close(g);
    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "mtp.layers.0.") && strstr(e.text, "experts.2."), "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mtp");
    TCase *t = tcase_create("blocks");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, logits_are_the_references, 0, FAMILIES);
    tcase_add_loop_test(t, drafts_are_the_references, 0, FAMILIES);
    tcase_add_loop_test(t, written_files_draft_alike, 0, FAMILIES);
    tcase_add_test(t, packed_halves_join);
    tcase_add_test(t, what_is_left_out_is_said);
    tcase_add_test(t, a_file_without_one_is_refused);
    tcase_add_test(t, an_incomplete_one_does_not_draft);
    suite_add_tcase(s, t);
    return support_run(s);
}
