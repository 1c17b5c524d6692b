/* Config files that say the same in other words, as transformers 4 and 5 write them, and settings
 * that published models leave alone: the folders of tests/golden/families with another config.json,
 * against their golden numbers or against each other. */
#include "tests/golden.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/run/engine.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error e;

/* The folder with members of `merged` (JSON; null: none) in place of its own. text: of text_config.
 */
static const char *respelled(const char *folder, bool text, const char *merged)
{
    static char dir[400];
    char path[4400], below[4200], from[4200], real[4200];
    json_t *root, *into, *other, *value;
    const char *name;

    snprintf(below, sizeof below, "golden/families/%s", folder);
    snprintf(from, sizeof from, "%s", support_path(below));
    snprintf(dir, sizeof dir, "%s/respelled", support_tmpdir());
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/config.json", from);
    root = json_load_file(path, 0, NULL);
    into = text ? json_object_get(root, "text_config") : root;
    other = json_loads(merged, 0, NULL);
    ck_assert_msg(into && other, "%s", merged);
    json_object_foreach(other, name, value)
    {
        if (json_is_null(value))
            json_object_del(into, name);
        else
            json_object_set(into, name, value);
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    json_decref(other);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    ck_assert(realpath(from, real) != NULL);
    snprintf(below, sizeof below, "%.4000s/model.safetensors", real);
    ck_assert_int_eq(symlink(below, path), 0);
    return dir;
}

static struct engine *open_folder(const char *folder)
{
    struct engine *g = NULL;

    ck_assert_msg(golden_engine(&g, folder, NULL, 2, -1, true, &e) == 0, "%s", e.text);
    return g;
}

static const struct {
    const char *folder;
    bool text;
    const char *merged;
} same[] = {
    {"nemotron_h", false,
     "{\"hybrid_override_pattern\": null, \"layers_block_type\": [\"linear_attention\", \"moe\", "
     "\"linear_attention\", \"full_attention\", \"moe\", \"mlp\", \"linear_attention\", \"moe\"]}"},
    {"gemma4", true,
     "{\"global_head_dim\": null, \"num_global_key_value_heads\": null, \"per_layer_config\": "
     "{\"1\": {\"head_dim\": 32, \"num_key_value_heads\": 1}, "
     "\"4\": {\"head_dim\": 32, \"num_key_value_heads\": 1}}}"},
    /* within its trained context dynamic scaling changes nothing */
    {"qwen3", false, "{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}}"},
    {"granitemoe", false,
     "{\"architectures\": [\"GraniteMoeSharedForCausalLM\"], \"model_type\": "
     "\"granitemoeshared\", \"shared_intermediate_size\": 0}"},
    {"llama", false,
     "{\"architectures\": [\"GraniteForCausalLM\"], \"model_type\": \"granite\", "
     "\"embedding_multiplier\": 1.0, \"residual_multiplier\": 1.0, \"logits_scaling\": 1.0}"},
    {"qwen2_moe", false, "{\"use_sliding_window\": true, \"sliding_window\": 64}"},
    /* as transformers 5 saves it; queries are in one projection, whatever q_lora_rank says */
    {"bailing_hybrid", false,
     "{\"num_experts_per_tok\": null, \"num_experts_per_token\": 4, \"n_group\": null, "
     "\"num_expert_group\": 3, \"norm_topk_prob\": null, \"moe_renormalize\": true, "
     "\"max_position_embeddings\": null, \"model_max_length\": 512, \"q_lora_rank\": 40}"},
    /* what each configuration_*.py puts where config.json says nothing */
    {"mixtral", false, "{\"rope_theta\": null}"},
    {"lfm2_moe", false, "{\"rope_theta\": null}"},
    {"ernie4_5_moe", false, "{\"rope_theta\": null, \"moe_norm_min\": 1e-12}"},
    {"bailing_hybrid", false, "{\"rope_theta\": null}"},
    {"gpt_oss", false, "{\"rope_theta\": null, \"swiglu_alpha\": 1.702}"},
    {"glm4_moe", false, "{\"partial_rotary_factor\": null}"},
    {"qwen3_next", false, "{\"partial_rotary_factor\": null}"},
    /* the inner one counts */
    {"mixtral", false,
     "{\"rope_theta\": 5.0, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": "
     "1e6}}"},
    {"qwen4_exp", false, "{\"eos_token_id\": [9, 2]}"},
    {"qwen4_exp", false, "{\"eos_token_id\": [2, 9], \"text_config\": {\"eos_token_id\": 9}}"},
    {"gemma4", true, "{\"use_bidirectional_attention\": \"vision\"}"},
    {"mistral4", false,
     "{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"model_type\": \"mistral3\", "
     "\"text_config\": {\"model_type\": \"mistral4\"}}"},
};

START_TEST(the_same_in_other_words)
{
    const char *folder = respelled(same[_i].folder, same[_i].text, same[_i].merged);
    struct engine *g = open_folder(folder);
    struct golden golden;
    struct golden_result r;
    char path[300], why[4200];

    snprintf(path, sizeof path, "golden/families/%s/golden.safetensors", same[_i].folder);
    ck_assert_msg(golden_open(&golden, support_path(path), why, sizeof why) == 0, "%s", why);
    ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
    printf("%s: whole %.3g chunks %.3g steps %.3g\n", same[_i].folder, r.whole, r.chunked,
           r.stepped);
    ck_assert_msg(r.whole <= 3e-4 && r.chunked <= 3e-4 && r.stepped <= 3e-4, "%g %g %g", r.whole,
                  r.chunked, r.stepped);
    ck_assert(r.greedy_agrees && r.routing_agrees);
    golden_close(&golden);
    engine_close(g);
}
END_TEST

/* Of 24 tokens, mem of the caller's. */
static void logits_of(const char *folder, float *out, int n)
{
    struct engine *g = open_folder(folder);
    int ids[24];

    for (int i = 0; i < 24; i++)
        ids[i] = (3 + 7 * i) % n;
    ck_assert_int_eq(engine_info(g)->model->hp.n_vocab, n);
    ck_assert_msg(engine_eval(g, ids, 24, out, false, &e) == 0, "%s", e.text);
    engine_close(g);
}

#define TWOS "[2.0,2.0,2.0,2.0,2.0,2.0,2.0,2.0]"

/* Longrope by one number for all pairs is linear scaling, in families that have it in no published
 * model. */
START_TEST(longrope_of_any_family)
{
    static const char *const longrope =
        "{\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": " TWOS
        ", \"long_factor\": " TWOS ", \"original_max_position_embeddings\": 64%s}}";
    float a[2048], b[2048];
    char merged[700];
    struct engine *g = open_folder(
        respelled("qwen3_moe", false, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}"));
    int n = engine_info(g)->model->hp.n_vocab;
    double ratio = engine_info(g)->model->hp.context_max / 64.0;

    engine_close(g);
    ck_assert_int_le(n, 2048);
    logits_of(respelled("qwen3_moe", false,
                        "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}"),
              a, n);
    snprintf(merged, sizeof merged, longrope, ", \"attention_factor\": 1.0");
    logits_of(respelled("qwen3_moe", false, merged), b, n);
    ck_assert_mem_eq(a, b, (size_t)n * sizeof *a);
    snprintf(merged, sizeof merged, longrope, "");
    g = open_folder(respelled("qwen3_moe", false, merged));
    ck_assert_int_eq(engine_info(g)->model->hp.original_context, 64);
    ck_assert_float_eq_tol(engine_info(g)->model->hp.short_mscale,
                           (float)sqrt(1.0 + log(ratio) / log(64.0)), 1e-6f);
    engine_close(g);
    snprintf(merged, sizeof merged, longrope, ", \"factor\": 1.5");
    g = open_folder(respelled("qwen3_moe", false, merged));
    ck_assert_float_eq_tol(engine_info(g)->model->hp.long_mscale,
                           (float)sqrt(1.0 + log(1.5) / log(64.0)), 1e-6f);
    engine_close(g);
}
END_TEST

START_TEST(dynamic_scaling_ends_with_the_context)
{
    struct engine_config c = {.model_path = respelled("qwen3", false, same[2].merged),
                              .context = 1 << 20,
                              .no_tokenizer = true};
    struct engine *g;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_info(g)->context, engine_info(g)->model->hp.context_max);
    engine_close(g);
}
END_TEST

static void check_windows(const char *folder, const char *merged, int layers, unsigned with)
{
    struct model *m;

    ck_assert_msg(model_describe(&m, respelled(folder, false, merged), NULL, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(m->hp.n_layers, layers);
    for (int l = 0; l < layers; l++)
        ck_assert_msg(hparams_layer(&m->hp, l)->mixer.window == (with >> l & 1 ? 8 : 0),
                      "%s, layer %d: %d", folder, l, hparams_layer(&m->hp, l)->mixer.window);
    model_free(m);
}

/* modeling_qwen3_moe.py, configuration_qwen3.py, configuration_qwen2_moe.py */
START_TEST(windows_of_qwen)
{
    struct model *m = NULL;
    int n[3];
    static const char *const folders[] = {"qwen3_moe", "qwen3", "qwen2_moe"};

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(model_describe(&m, respelled(folders[i], false, "{}"), NULL, &e), 0);
        n[i] = m->hp.n_layers;
        model_free(m);
    }
    check_windows("qwen3_moe", "{\"use_sliding_window\": true, \"sliding_window\": 8}", n[0],
                  (1U << n[0]) - 1);
    check_windows("qwen3",
                  "{\"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 1, "
                  "\"layer_types\": null}",
                  n[1], (1U << n[1]) - 2);
    check_windows("qwen2_moe",
                  "{\"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 4, "
                  "\"layer_types\": null}",
                  n[2], 5 & ((1U << n[2]) - 1));
    check_windows("qwen3", "{\"use_sliding_window\": false, \"sliding_window\": 8}", n[1], 0);
}
END_TEST

/* A copy of a GGUF file that calls itself and its keys by another architecture. */
static void rearchitect(const char *in, const char *out, const char *from, const char *to)
{
    struct weight_file *f;
    struct gguf_writer *w;
    const void *entry;
    const char *key;
    size_t key_bytes, bytes, n = strlen(from);

    ck_assert_msg(weight_file_open(&f, in, false, &e) == 0, "%s", e.text);
    ck_assert_msg(gguf_write_open(&w, out, &e) == 0, "%s", e.text);
    gguf_put_string(w, "general.architecture", to, strlen(to));
    for (size_t i = 0; weight_file_entry(f, i, &key, &key_bytes, &entry, &bytes); i++) {
        uint8_t *own = malloc(bytes + 64);
        uint64_t length = key_bytes - n + strlen(to);

        if (key_bytes > n && memcmp(key, from, n) == 0 && key[n] == '.') {
            memcpy(own, &length, 8);
            memcpy(own + 8, to, strlen(to));
            memcpy(own + 8 + strlen(to), (const uint8_t *)entry + 8 + n, bytes - 8 - n);
            gguf_put_raw(w, own, bytes - n + strlen(to));
        } else if (key_bytes != 20 || memcmp(key, "general.architecture", 20) != 0) {
            gguf_put_raw(w, entry, bytes);
        }
        free(own);
    }
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        gguf_write_tensor(w, t->name, t->type, t->n_dims, t->dims);
    }
    ck_assert_msg(gguf_write_begin(w, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < weight_file_count(f); i++)
        ck_assert_int_eq(
            gguf_write_data(w, weight_file_at(f, i)->data, weight_file_at(f, i)->bytes, &e), 0);
    ck_assert_msg(gguf_write_finish(w, &e) == 0, "%s", e.text);
    weight_file_close(f);
}

/* llama.cpp calls Nemotron-H without experts by an older name, and its keys too. */
START_TEST(the_older_architecture)
{
    const char *in = support_shared("ggufs/nemotronh.gguf");
    char out[300];
    float a[2048], b[2048];

    if (!in)
        return;
    snprintf(out, sizeof out, "%s/older.gguf", support_tmpdir());
    rearchitect(in, out, "nemotron_h_moe", "nemotron_h");
    logits_of(in, a, 304);
    logits_of(out, b, 304);
    ck_assert_mem_eq(a, b, 304 * sizeof *a);
}
END_TEST

/* A folder's weights with the names of two layers exchanged: both names are as long. */
static void exchange_layers(const char *folder, char a, char b)
{
    static const struct file_kind kind = {"weights", (size_t)1 << 30, ERR_MODEL};
    static const char mark[] = ".layers.";
    char path[500], *bytes;
    size_t n;

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(file_read(path, &kind, &bytes, &n, &e), 0);
    for (char *at = bytes; (at = memmem(at, n - (size_t)(at - bytes), mark, sizeof mark - 1));) {
        at += sizeof mark - 1;
        if (at[1] == '.')
            *at = *at == a ? b : *at == b ? a : *at;
    }
    unlink(path);
    ck_assert_int_eq(file_replace(path, bytes, n, &e), 0);
    mem_free(bytes);
}

/* The first layer need not have the heads that most have. */
START_TEST(other_heads_come_first)
{
    const char *folder = respelled(
        "gemma4", true,
        "{\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
        "\"sliding_attention\", \"full_attention\"]}");
    struct engine *g;
    const struct hparams *hp;

    exchange_layers(folder, '0', '1');
    g = open_folder(folder);
    hp = &engine_info(g)->model->hp;
    ck_assert(hparams_layer(hp, 0)->mixer.key_dim == 32 && hparams_layer(hp, 0)->mixer.window == 0);
    ck_assert(hparams_layer(hp, 1)->mixer.key_dim == 16 &&
              hparams_layer(hp, 1)->mixer.window == 16);
    engine_close(g);
}
END_TEST

/* Latent attention whose heads are rotated in halves: other logits than those of pairs. */
START_TEST(latent_heads_in_halves)
{
    float a[96], b[96];
    struct engine *g = open_folder(respelled("deepseek_v3", false, "{\"rope_interleave\": false}"));

    ck_assert_int_eq(hparams_layer(&engine_info(g)->model->hp, 0)->mixer.rope, ROPE_HALVES);
    engine_close(g);
    logits_of(respelled("deepseek_v3", false, "{\"rope_interleave\": true}"), a, 96);
    logits_of(respelled("deepseek_v3", false, "{\"rope_interleave\": false}"), b, 96);
    ck_assert(memcmp(a, b, sizeof a) != 0);
}
END_TEST

static const struct {
    const char *folder, *merged, *said;
} refused[] = {
    {"qwen4_exp", "{\"ple_layer_ids\": [2]}", "layer 1 has n-grams"},
    {"qwen4_exp", "{\"ngram_size\": 9}", "ngram_size of its config.json must be an integer"},
    {"qwen4_exp", "{\"ple_embed_dim\": 20}", "are not computed"},
    {"qwen4_exp", "{\"eos_token_id\": 99}", "need an end of text"},
    {"qwen4_exp", "{\"heads_per_ngram\": 4}", "must hold 8 integers of 64 bits"},
    {"qwen4_exp", "{\"ngram_size\": 4}", "6 hashes of its n-grams that give 16 values"},
    {"llama", "{\"mlp_bias\": true}", "mlp_bias of its config.json is set"},
    {"qwen3_moe", "{\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": " TWOS "}}",
     "only one of them is there"},
    {"qwen3_moe",
     "{\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": " TWOS
     ", \"long_factor\": " TWOS "}}",
     "original_max_position_embeddings"},
    {"qwen3_moe", "{\"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 2}}", "'ntk'"},
    {"qwen3", "{\"use_sliding_window\": true, \"sliding_window\": -4}", "sliding_window"},
    {"qwen3_moe", "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
    {"gpt_oss", "{\"swiglu_alpha\": 1.5}", "swiglu_alpha of its config.json is 1.5"},
    {"gpt_oss", "{\"rope_scaling\": null}", "neither rope_scaling nor rope_parameters"},
    {"ernie4_5_moe", "{\"moe_norm_min\": 0.5}", "moe_norm_min"},
    {"granitemoehybrid", "{\"time_step_limit\": [0.0, 1.0]}", "time_step_limit"},
    {"granitemoehybrid", "{\"time_step_limit\": [0.1, {\"__float__\": \"Infinity\"}]}",
     "time_step_limit"},
    {"gemma4", "{\"use_bidirectional_attention\": \"all\"}", "use_bidirectional_attention"},
    {"gemma4", "{\"hidden_size_per_layer_input\": 16}", "embed_tokens_per_layer"},
    {"gemma4", "{\"num_kv_shared_layers\": 5}", "reads the keys of a layer like it"},
    {"mistral4", "{\"n_group\": 2, \"topk_group\": 1}", "n_group"},
};

/* Scores of latent attention are stretched under every scaling (modeling_deepseek_v3.py,
 * yarn_apply_mscale). */
START_TEST(latent_scores_are_stretched)
{
    static const char *const kinds[] = {"linear", "dynamic", "yarn"};
    double stretch = 0.1 * 0.7 * log(4.0) + 1.0;
    char merged[200];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct mixer_shape *m;
        struct engine *g;

        snprintf(merged, sizeof merged,
                 "{\"rope_scaling\": {\"type\": \"%s\", \"factor\": 4.0, \"mscale_all_dim\": 0.7}}",
                 kinds[i]);
        g = open_folder(respelled("deepseek_v3", false, merged));
        m = &hparams_layer(&engine_info(g)->model->hp, 0)->mixer;
        ck_assert_float_eq_tol(m->scale, (float)(stretch * stretch / sqrt((double)m->key_dim)),
                               1e-7f);
        engine_close(g);
    }
}
END_TEST

/* Where YaRN's numbers stand, and what it does where they do not. */
START_TEST(yarn_in_other_places)
{
    static const struct {
        const char *folder, *a, *b;
        bool same;
    } pairs[] = {
        {"qwen3_moe",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 64}}",
         "{\"original_max_position_embeddings\": 64, \"rope_parameters\": "
         "{\"rope_type\": \"yarn\", \"factor\": 4.0}}",
         true},
        {"gpt_oss",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 32}}",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"truncate\": true, "
         "\"original_max_position_embeddings\": 32}}",
         true},
        {"gpt_oss",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 32}}",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"truncate\": false, "
         "\"original_max_position_embeddings\": 32}}",
         false},
    };
    static float a[2048], b[2048];

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct engine *g = open_folder(respelled(pairs[i].folder, false, pairs[i].a));
        int n = engine_info(g)->model->hp.n_vocab;

        engine_close(g);
        ck_assert_int_le(n, 2048);
        logits_of(respelled(pairs[i].folder, false, pairs[i].a), a, n);
        logits_of(respelled(pairs[i].folder, false, pairs[i].b), b, n);
        ck_assert_msg((memcmp(a, b, (size_t)n * sizeof *a) == 0) == pairs[i].same, "%s, %s",
                      pairs[i].folder, pairs[i].b);
    }
}
END_TEST

/* No layer needs to have keys: the first three of this one are recurrences. */
START_TEST(recurrences_alone)
{
    const char *folder = respelled("qwen3_next", false,
                                   "{\"num_hidden_layers\": 3, \"layer_types\": null}");
    struct engine *g = open_folder(folder);
    static float whole[2048], steps[2048];
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct export_report r;
    char out[300];
    int n = engine_info(g)->model->hp.n_vocab, ids[24];

    ck_assert_int_le(n, 2048);
    for (int l = 0; l < 3; l++)
        ck_assert_int_eq(hparams_layer(&engine_info(g)->model->hp, l)->mixer.kind, MIXER_DELTA_NET);
    for (int i = 0; i < 24; i++)
        ids[i] = (3 + 7 * i) % n;
    ck_assert_msg(engine_eval(g, ids, 24, whole, false, &e) == 0, "%s", e.text);
    engine_close(g);
    g = open_folder(folder);
    for (int i = 0; i < 24; i++)
        ck_assert_msg(engine_eval(g, ids + i, 1, steps, false, &e) == 0, "%s", e.text);
    ck_assert_mem_eq(whole, steps, (size_t)n * sizeof *whole);
    ck_assert(isfinite(whole[0]) && whole[0] != whole[1]);
    engine_close(g);
    /* in GGUF their key-value heads are all 0 */
    snprintf(out, sizeof out, "%s/recurrences.gguf", support_tmpdir());
    ck_assert_msg(model_export(folder, out, &o, &r, &e) == 0, "%s", e.text);
    g = open_folder(out);
    ck_assert_msg(engine_eval(g, ids, 24, steps, false, &e) == 0, "%s", e.text);
    for (int i = 0; i < n; i++)
        ck_assert_float_eq_tol(whole[i], steps[i], 1e-4f);
    engine_close(g);
}
END_TEST

START_TEST(what_is_refused)
{
    struct engine *g = NULL;

    ck_assert_int_eq(golden_engine(&g, respelled(refused[_i].folder, false, refused[_i].merged),
                                   NULL, 1, -1, true, &e),
                     ERR_MODEL);
    ck_assert_msg(strstr(e.text, refused[_i].said) != NULL, "%s", e.text);
}
END_TEST

/* By its config.json alone. */
static struct model *described(const char *folder, const char *merged)
{
    const char *dir = respelled(folder, false, merged);
    char weights[500];
    struct model *m;

    snprintf(weights, sizeof weights, "%s/model.safetensors", dir);
    unlink(weights);
    ck_assert_msg(model_describe(&m, dir, NULL, &e) == 0, "%s", e.text);
    return m;
}

/* Granite's shared expert, and the dense Qwen3.5. */
START_TEST(shared_and_dense_kin)
{
    struct model *m = described("granitemoe",
                                "{\"architectures\": [\"GraniteMoeSharedForCausalLM\"], "
                                "\"shared_intermediate_size\": 48}");

    ck_assert(hparams_layer(&m->hp, 0)->ffn.kind == FFN_ROUTED &&
              hparams_layer(&m->hp, 0)->ffn.shared_width == 48);
    model_free(m);
    m = described("qwen3_next", "{\"architectures\": [\"Qwen3_5ForCausalLM\"], "
                                "\"num_experts\": null, \"intermediate_size\": 96}");
    ck_assert(hparams_layer(&m->hp, 0)->ffn.kind == FFN_DENSE &&
              hparams_layer(&m->hp, 0)->ffn.shared_width == 96 &&
              hparams_layer(&m->hp, 0)->mixer.kind == MIXER_DELTA_NET &&
              hparams_layer(&m->hp, 3)->mixer.kind == MIXER_ATTENTION);
    model_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("spellings");
    TCase *c = tcase_create("config");

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, the_same_in_other_words, 0, (int)(sizeof same / sizeof *same));
    tcase_add_test(c, longrope_of_any_family);
    tcase_add_test(c, dynamic_scaling_ends_with_the_context);
    tcase_add_test(c, windows_of_qwen);
    tcase_add_test(c, other_heads_come_first);
    tcase_add_test(c, latent_heads_in_halves);
    tcase_add_loop_test(c, what_is_refused, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(c, latent_scores_are_stretched);
    tcase_add_test(c, yarn_in_other_places);
    tcase_add_test(c, recurrences_alone);
    tcase_add_test(c, shared_and_dense_kin);
    tcase_add_test(c, the_older_architecture);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
