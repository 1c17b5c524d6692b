/* Embeddings: those of the official code's hidden states, and the same bits however they are
 * computed. */
#include "app/setup/embedding.h"
#include "engine/base/mem.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "tests/fake_device.h"
#include "tests/golden.h"
#include "tests/golden_lora.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int keep(void *ctx, struct event *ev)
{
    float **out = ctx;

    if (ev->kind == EVENT_EMBEDDING) {
        *out = ev->embedding.values;
        ev->embedding.values = NULL;
    }
    ck_assert_int_ne(ev->kind, EVENT_TOKEN);
    return 0;
}

/* mem_* memory. */
static float *embed(struct engine *g, const int *ids, int n, enum embed_pooling kind)
{
    struct turn t = {.embed = kind};
    struct turn_done_event done;
    struct error e = {0};
    float *out = NULL;

    t.prompt.ids = (int *)(uintptr_t)ids;
    t.prompt.n = n;
    ck_assert_msg(engine_turn(g, &t, keep, &out, &done, &e) == 0, "%s", e.text);
    ck_assert(out && done.prompt_tokens == n && done.cached_tokens == 0 &&
              done.completion_tokens == 0);
    return out;
}

/* ---- the official code's ---- */

static const char *const folders[] = {
    "mixtral",     "olmoe",      "qwen2_moe",        "qwen3_moe",   "llama",       "qwen3",
    "granitemoe",  "glm4_moe",   "ernie4_5_moe",     "deepseek_v2", "deepseek_v3", "lfm2_moe",
    "qwen3_5_moe", "qwen3_next", "granitemoehybrid", "gpt_oss",     "gpt2",        "opt-350m",
    "gemma4",      "nemotron_h", "bailing_hybrid"};

/* Of the rows of the last layer's norm, normalised. */
static void pool(const struct golden *gold, enum embed_pooling kind, float *out)
{
    const float *rows = gold->hidden +
                        (size_t)(gold->n_hidden - 1) * (size_t)gold->rows * (size_t)gold->width;
    int from = kind == EMBED_LAST ? gold->rows - 1 : 0, to = kind == EMBED_CLS ? 1 : gold->rows;

    for (int i = 0; i < gold->width; i++) {
        double sum = 0.0;

        for (int r = from; r < to; r++)
            sum += (double)rows[(size_t)r * (size_t)gold->width + (size_t)i];
        out[i] = (float)(sum / (to - from));
    }
    embedding_normalize(out, gold->width, 2);
}

START_TEST(they_are_the_official_ones)
{
    const enum embed_pooling kinds[] = {EMBED_MEAN, EMBED_LAST, EMBED_CLS};
    struct golden gold;
    struct engine *g;
    struct error e = {0};
    char below[100], path[4200], why[4200];
    double most = 0.0;

    snprintf(below, sizeof below, "golden/families/%s", folders[_i]);
    snprintf(path, sizeof path, "%s/golden.safetensors", support_path(below));
    ck_assert_msg(golden_open(&gold, path, why, sizeof why) == 0, "%s", why);
    ck_assert(gold.hidden && gold.rows == gold.n);
    ck_assert_msg(golden_engine(&g, support_path(below), NULL, 2, -1, true, &e) == 0, "%s", e.text);
    for (int k = 0; k < 3; k++) {
        float *got = embed(g, gold.input_ids, gold.n, kinds[k]), want[512];

        ck_assert_int_le(gold.width, 512);
        pool(&gold, kinds[k], want);
        embedding_normalize(got, gold.width, 2);
        for (int i = 0; i < gold.width; i++)
            most = fmax(most, fabs((double)got[i] - (double)want[i]));
        mem_free(got);
    }
    printf("%s: %.2g\n", folders[_i], most);
    ck_assert_msg(most <= 1e-5, "%s: %g", folders[_i], most);
    engine_close(g);
    golden_close(&gold);
}
END_TEST

/* ---- the same bits ---- */

static struct engine *open_demo(const char *kernels, int ubatch, int threads)
{
    struct engine_config c = {.model_path = support_demo(),
                              .context = 256,
                              .ubatch = ubatch,
                              .kernels = kernels,
                              .n_threads = threads};
    struct engine *g;
    struct error e = {0};

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

/* Other passes, threads, kernels; and after a chat, whose rows are not reused. */
START_TEST(however_they_are_computed)
{
    static const struct {
        const char *kernels;
        int ubatch, threads;
    } ways[] = {{NULL, 1, 2}, {NULL, 7, 1}, {"scalar", 64, 2}, {"scalar", 5, 1}, {"avx2", 16, 2}};
    struct engine *first = open_demo(NULL, 512, 2), *g;
    int ids[40], n = 40, hidden = engine_info(first)->model->hp.hidden;
    float *want[4], *got;

    for (int i = 0; i < n; i++)
        ids[i] = 300 + i * 37 % 500;
    for (int k = EMBED_MEAN; k <= EMBED_CLS; k++)
        want[k] = embed(first, ids, n, (enum embed_pooling)k);
    for (int k = EMBED_MEAN; k <= EMBED_CLS; k++) { /* again, over its own rows */
        got = embed(first, ids, n, (enum embed_pooling)k);
        ck_assert(memcmp(got, want[k], (size_t)hidden * sizeof *got) == 0);
        mem_free(got);
    }
    ck_assert(memcmp(want[EMBED_LAST], want[EMBED_CLS], (size_t)hidden * sizeof **want) != 0);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct error e;
        bool here = kernels_select(ways[w].kernels, &e) == 0;

        kernels_select(NULL, &e);
        if (!here)
            continue;
        g = open_demo(ways[w].kernels, ways[w].ubatch, ways[w].threads);
        for (int k = EMBED_MEAN; k <= EMBED_CLS; k++) {
            got = embed(g, ids, n, (enum embed_pooling)k);
            ck_assert_msg(memcmp(got, want[k], (size_t)hidden * sizeof *got) == 0, "way %zu, %d", w,
                          k);
            mem_free(got);
        }
        engine_close(g);
    }
    got = embed(first, ids, 1, EMBED_MEAN); /* of one token all are the same */
    mem_free(want[0 + EMBED_MEAN]);
    want[EMBED_MEAN] = embed(first, ids, 1, EMBED_LAST);
    ck_assert(memcmp(got, want[EMBED_MEAN], (size_t)hidden * sizeof *got) == 0);
    mem_free(got);
    for (int k = EMBED_MEAN; k <= EMBED_CLS; k++)
        mem_free(want[k]);
    engine_close(first);
}
END_TEST

/* On a device, and where it fails in the middle of the prompt: rows are computed again then, and
 * counted once. */
START_TEST(wherever_they_are_computed)
{
    static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};
    static const char *const places[] = {"gpu", "experts-gpu", "attention-gpu", "gpu"};
    struct engine *g = open_demo(NULL, 16, 2);
    int ids[40], n = 40, hidden = engine_info(g)->model->hp.hidden;
    float *want, *got;

    for (int i = 0; i < n; i++)
        ids[i] = 300 + i * 37 % 500;
    want = embed(g, ids, n, EMBED_MEAN);
    engine_close(g);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct engine_config c = {.model_path = support_demo(),
                                  .context = 256,
                                  .ubatch = 16,
                                  .n_threads = 2,
                                  .backends = with_fake,
                                  .cache_dir = support_tmpdir()};
        struct error e = {0};

        fake_device_control(NULL);
        ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
        ck_assert_msg(engine_place(g, places[i], &e) == 0 && engine_settle(g, &e) == 0, "%s",
                      e.text);
        if (i == 3)
            fake_device_control(&(struct fake_control){.fail_at = 20, .lost = true});
        got = embed(g, ids, n, EMBED_MEAN);
        ck_assert_msg(memcmp(got, want, (size_t)hidden * sizeof *got) == 0, "%s", places[i]);
        ck_assert_int_gt(fake_device_calls(), 0);
        mem_free(got);
        engine_close(g);
    }
    fake_device_control(NULL);
    mem_free(want);
}
END_TEST

static int count_embeddings(void *ctx, struct event *ev)
{
    *(int *)ctx += ev->kind == EVENT_EMBEDDING;
    return 0;
}

/* An adapter at a strength at which sums overflow: only the result shows it. */
START_TEST(what_is_no_number_is_an_error)
{
    char lora[4200];
    struct adapter_request a = {.path = lora, .strength = 1.0f};
    struct engine_config c = {.model_path = support_demo(),
                              .context = 64,
                              .n_threads = 2,
                              .adapters = &a,
                              .n_adapters = 1};
    struct engine *g;
    struct error e = {0};
    struct turn t = {.embed = EMBED_MEAN,
                     .adapters = true,
                     .strengths = {3e38f},
                     .prompt = {.ids = (int[]){300, 301, 302}, .n = 3}};
    struct turn_done_event done;
    int found = 0;

    snprintf(lora, sizeof lora, "%s/any.gguf", support_tmpdir());
    ck_assert_int_eq(golden_lora_write(support_demo(), lora, 1), 0);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_turn(g, &t, count_embeddings, &found, &done, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, "overflow"), "%s", e.text);
    ck_assert_int_eq(found, 0);
    t.strengths[0] = 1.0f;
    ck_assert_msg(engine_turn(g, &t, count_embeddings, &found, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(found, 1);
    engine_close(g);
}
END_TEST

/* A folder of sentence-transformers says how it is pooled, and which tokens are around a text. */
START_TEST(as_a_folder_says)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    static const char tokenizer[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"<s>\": 1, \"</s>\": 2, \"a\": 5, \"b\": 6}, "
        "\"merges\": []}, \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}, "
        "{\"id\": 2, \"content\": \"</s>\", \"special\": true}], \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, \"decoder\": "
        "{\"type\": "
        "\"ByteLevel\"}, \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
        "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
        "{\"SpecialToken\": "
        "{\"id\": \"</s>\"}}]}}";
    char folder[4100], below[100], path[4200];
    struct engine_config c = {
        .model_path = folder, .n_threads = 2, .chat_optional = true, .context = 64, .convert = -1};
    struct embedding_settings s = {EMBED_NONE, 2, -1};
    struct engine *g;
    struct error e = {0};
    int *ids, n;

    snprintf(folder, sizeof folder, "%s/sentences", support_tmpdir());
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    ck_assert(mkdir(folder, 0700) == 0 && mkdir(path, 0700) == 0);
    support_put(path, "config.json",
                "{\"pooling_mode_cls_token\": false, \"pooling_mode_lasttoken\": true}");
    support_put(folder, "tokenizer.json", tokenizer);
    for (size_t i = 0; i < 2; i++) {
        snprintf(below, sizeof below, "golden/families/llama/%s", files[i]);
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        ck_assert_int_eq(symlink(support_path(below), path), 0);
    }
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    s = embedding_settings(s, engine_info(g));
    ck_assert_int_eq(s.pooling, EMBED_LAST);
    ck_assert_int_eq(embedding_ids(&s, engine_info(g), "ab<s>", 2, NULL, &ids, &n, &e), 0);
    ck_assert_int_eq(n, 4);
    ck_assert_mem_eq(ids, ((int[]){1, 5, 6, 2}), sizeof(int[4]));
    mem_free(ids);
    engine_close(g);
}
END_TEST

START_TEST(they_are_normalised)
{
    static const struct {
        int kind;
        float v[3], want[3];
    } norms[] = {{-1, {3, -4, 0}, {3, -4, 0}},
                 {0, {3, -4, 0}, {24570, -32760, 0}},
                 {1, {3, -5, 0}, {0.375f, -0.625f, 0}},
                 {2, {3, -4, 0}, {0.6f, -0.8f, 0}},
                 {3, {1, -1, 0}, {0.793700526f, -0.793700526f, 0}},
                 {2, {0, 0, 0}, {0, 0, 0}}};

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        float v[3];

        memcpy(v, norms[i].v, sizeof v);
        embedding_normalize(v, 3, norms[i].kind);
        for (int k = 0; k < 3; k++)
            ck_assert_msg(fabsf(v[k] - norms[i].want[k]) <= 1e-6f * fabsf(v[k]), "%zu: %g", i,
                          (double)v[k]);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("embedding");
    TCase *t = tcase_create("embedding");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, they_are_the_official_ones, 0, (int)(sizeof folders / sizeof *folders));
    tcase_add_test(t, however_they_are_computed);
    tcase_add_test(t, wherever_they_are_computed);
    tcase_add_test(t, what_is_no_number_is_an_error);
    tcase_add_test(t, as_a_folder_says);
    tcase_add_test(t, they_are_normalised);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
