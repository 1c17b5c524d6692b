/* --analyze: its counts against figures counted apart from the program. */
#include "app/analyze/count.h"
#include "engine/base/error.h"
#include "tests/build_file.h"
#include "tests/support.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error e;

static void count(const char *path, struct model **m, struct analysis_count *c)
{
    ck_assert_msg(model_describe(m, path, NULL, &e) == 0, "%s", e.text);
    ck_assert_msg(analysis_count(c, *m, path, &e) == 0, "%s", e.text);
}

static const struct {
    const char *tensor;
    enum analysis_part part;
} names[] = {
    {"model.embed_tokens.weight", ANALYSIS_EMBEDDING},
    {"token_embd.weight", ANALYSIS_EMBEDDING},
    {"wpe.weight", ANALYSIS_EMBEDDING},
    {"lm_head.bias", ANALYSIS_HEAD},
    {"output.weight", ANALYSIS_HEAD},
    {"output_norm.weight", ANALYSIS_NORMS},
    {"model.layers.3.self_attn.q_norm.weight", ANALYSIS_NORMS},
    {"ln_f.bias", ANALYSIS_NORMS},
    {"blk.0.attn_output.weight", ANALYSIS_ATTENTION},
    {"model.layers.3.self_attn.o_proj.weight", ANALYSIS_ATTENTION},
    {"model.layers.3.linear_attn.in_proj_qkvz.weight", ANALYSIS_RECURRENT},
    {"blk.1.ssm_conv1d.weight", ANALYSIS_RECURRENT},
    {"model.layers.0.block_sparse_moe.gate.weight", ANALYSIS_ROUTER},
    {"model.layers.0.mlp.gate.weight", ANALYSIS_ROUTER},
    {"model.layers.0.mlp.gate_proj.weight", ANALYSIS_MLP},
    {"blk.0.ffn_gate_inp.weight", ANALYSIS_ROUTER},
    {"blk.0.ffn_gate_inp_shexp.weight", ANALYSIS_SHARED_EXPERTS},
    {"blk.0.exp_probs_b.bias", ANALYSIS_ROUTER},
    {"model.layers.0.mlp.gate.e_score_correction_bias", ANALYSIS_ROUTER},
    {"model.layers.0.mlp.shared_expert_gate.weight", ANALYSIS_SHARED_EXPERTS},
    {"model.layers.0.mlp.shared_experts.up_proj.weight", ANALYSIS_SHARED_EXPERTS},
    {"model.layers.0.mlp.experts.7.up_proj.weight", ANALYSIS_EXPERTS},
    {"model.layers.0.block_sparse_moe.input_linear.weight", ANALYSIS_EXPERTS},
    {"model.layers.0.block_sparse_moe.output_linear.weight", ANALYSIS_EXPERTS},
    {"model.layers.0.block_sparse_moe.router.layer.weight", ANALYSIS_ROUTER},
    {"model.layers.0.shared_mlp.input_linear.weight", ANALYSIS_SHARED_EXPERTS},
    {"blk.0.ffn_gate_exps.weight", ANALYSIS_EXPERTS},
    {"blk.0.ffn_gate.weight", ANALYSIS_MLP},
    {"model.layers.1.ple.ple_embedding.ngram_embedding.shard_7.weight", ANALYSIS_LAYER_TABLE},
    {"model.layers.1.ple.key_proj.weight", ANALYSIS_LAYER_INPUTS},
    {"blk.1.ple_norm_key.weight", ANALYSIS_LAYER_INPUTS},
    {"model.layers.1.mlp_hyper_connection.hc_norm.weight", ANALYSIS_STREAMS},
    {"model.hyper_connection_mixer.input_mix_weight_up.weight", ANALYSIS_STREAMS},
    {"blk.1.hc_attn_down.weight", ANALYSIS_STREAMS},
    {"output_hc_norm.weight", ANALYSIS_STREAMS},
    {"model.layers.0.attn_hc.fn", ANALYSIS_STREAMS},
    {"model.hc_head.hc_fn", ANALYSIS_STREAMS},
    {"blk.3.indexer.q_proj.weight", ANALYSIS_ATTENTION},
};

START_TEST(tensors_are_told_by_name)
{
    ck_assert_msg(analysis_part_of(names[_i].tensor) == names[_i].part, "%s is counted with %s",
                  names[_i].tensor, analysis_part_name(analysis_part_of(names[_i].tensor)));
}
END_TEST

/* 8 layers of width 256, 16 experts of 128, vocabulary 4096, 8 heads of 32, 2 of keys. */
START_TEST(the_bundled_model_has_what_its_sizes_say)
{
    struct analysis_count c;
    struct model *m;
    uint64_t expert = 3 * 256 * 128, layers = 8;

    count(support_demo(), &m, &c);
    ck_assert_uint_eq(c.parts[ANALYSIS_EXPERTS], layers * 16 * expert);
    ck_assert_uint_eq(c.active_parts[ANALYSIS_EXPERTS], layers * 2 * expert);
    ck_assert_uint_eq(c.one_expert, expert);
    ck_assert_uint_eq(c.parts[ANALYSIS_ROUTER], layers * 16 * 256);
    ck_assert_uint_eq(c.parts[ANALYSIS_EMBEDDING], 4096 * 256);
    ck_assert_uint_eq(c.active_parts[ANALYSIS_EMBEDDING], 256);
    ck_assert_uint_eq(c.parts[ANALYSIS_NORMS], (2 * layers + 1) * 2 * 256);
    ck_assert_uint_eq(c.tied_head, 0);
    ck_assert_uint_eq(c.file_bytes, weight_file_bytes(m->file));
    model_free(m);
}
END_TEST

/* 3 layers of width 32, 7 experts of 16, of which a token takes 4; one tensor holds all of them. */
START_TEST(experts_of_granite_are_experts)
{
    struct analysis_count c;
    struct model *m;
    uint64_t expert = 3 * 32 * 16, layers = 3;

    count(support_path("golden/families/granitemoe"), &m, &c);
    ck_assert_uint_eq(c.parts[ANALYSIS_EXPERTS], layers * 7 * expert);
    ck_assert_uint_eq(c.active_parts[ANALYSIS_EXPERTS], layers * 4 * expert);
    ck_assert_uint_eq(c.one_expert, expert);
    ck_assert_uint_eq(c.parts[ANALYSIS_ROUTER], layers * 7 * 32);
    ck_assert_uint_eq(c.parts[ANALYSIS_MLP], 0);
    model_free(m);
}
END_TEST

/* 24 heads would be counted otherwise by every shortcut: latent rows, windows, layers apart. */
START_TEST(attention_and_cache_follow_the_layers)
{
    struct hparams hp = {.n_layers = 2};
    struct layer_shape layers[2] = {
        {.mixer = {.kind = MIXER_ATTENTION, .heads = 4, .kv_heads = 2, .key_dim = 8, .window = 16}},
        {.mixer = {.kind = MIXER_MLA,
                   .heads = 3,
                   .kv_heads = 3,
                   .key_dim = 12,
                   .value_dim = 8,
                   .rope_dims = 4,
                   .kv_rank = 32}},
    };

    hp.layers = layers;
    ck_assert(analysis_attention_flops(&hp, 10) == 10 * (2. * 4 * 16 + 2. * 3 * (64 + 4)));
    ck_assert(analysis_attention_flops(&hp, 100) == 16 * 2. * 4 * 16 + 100 * 2. * 3 * (64 + 4));
    ck_assert_uint_eq(analysis_kv_token(&hp), 2 * 2 * 8 * 2 + 36 * 2);
    ck_assert_uint_eq(analysis_kv_bytes(&hp, 100), 16 * 2 * 2 * 8 * 2 + 100 * 36 * 2);
}
END_TEST

static void write_config(const char *folder, const char *text)
{
    mkdir(folder, 0700);
    support_put(folder, "config.json", text);
    support_put(folder, "tokenizer.json", "{}");
}

START_TEST(weights_that_are_not_there_follow_from_phimoes_configuration)
{
    struct analysis_count c;
    struct model *m;
    char folder[4096];
    /* layers: q, k, v, o with biases, two norms with biases, router, experts */
    uint64_t layer = 64 * 64 + 64 + 2 * (32 * 64 + 32) + 64 * 64 + 64 + 4 * 64 + 4 * 64 +
                     4 * 3 * 64 * 24;

    snprintf(folder, sizeof folder, "%s/weightless", support_tmpdir());
    write_config(folder,
                 "{\"model_type\": \"phimoe\", \"hidden_size\": 64, \"num_hidden_layers\": 3,"
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 100,"
                 "\"intermediate_size\": 24, \"num_local_experts\": 4, \"num_experts_per_tok\": 2,"
                 "\"attention_bias\": true, \"lm_head_bias\": true, \"rms_norm_eps\": 1e-5,"
                 "\"max_position_embeddings\": 128, \"rope_theta\": 10000.0}");
    count(folder, &m, &c);
    ck_assert(c.from_config);
    ck_assert_uint_eq(c.total, 3 * layer + 2 * 100 * 64 + 100 + 2 * 64);
    model_free(m);
}
END_TEST

START_TEST(weights_that_are_not_there_are_refused_of_other_families)
{
    struct analysis_count c;
    struct model *m;
    char folder[4096];

    snprintf(folder, sizeof folder, "%s/llama", support_tmpdir());
    write_config(folder,
                 "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 3,"
                 "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 24,"
                 "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 128}");
    ck_assert_msg(model_describe(&m, folder, NULL, &e) == 0, "%s", e.text);
    ck_assert_int_eq(analysis_count(&c, m, folder, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "weights are not there") != NULL, "%s", e.text);
    model_free(m);
}
END_TEST

/* ---- the count of the shared tools ---- */

static json_t *counted_apart(const char *folder)
{
    char command[3 * 4096];
    json_t *counted;
    FILE *p;

    snprintf(command, sizeof command, "python3 '%s/../tools/onnx/count_model.py' '%s'",
             support_shared("."), folder);
    p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    counted = json_loadf(p, 0, NULL);
    pclose(p);
    return counted;
}

static uint64_t number(const json_t *o, const char *group, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(o, group), key));
}

/* exact: its formulas of experts, heads and windows hold for all layers of these. Of the others its
 * total does. */
static const struct {
    const char *folder;
    bool exact;
} folders[] = {
    {"phi-tiny-moe", true},
    {"phimoe/phimoe-16x-bf16", true},
    {"phimoe/phimoe-quirk-f32", true},
    {"phimoe/phimoe-longrope-f32", true},
    {"phimoe/phimoe-window-f32", true},
    {"families/qwen3_moe", true},
    {"families/olmoe", true},
    {"families/mixtral", true},
    {"families/granitemoe", false}, /* there its experts count as dense */
    {"families/llama", true},
    {"families/qwen3", true},
    {"families/gpt2", true},
    {"families/opt", true},
    {"families/qwen2_moe", false},
    {"families/deepseek_v2", false},
    {"families/deepseek_v3", false},
    {"families/glm4_moe", false},
    {"families/glm4_moe_lite", false},
    {"families/gpt_oss", false},
    {"families/lfm2_moe", false},
    {"families/qwen3_next", false},
    {"families/qwen3_5_moe", false},
    {"families/granitemoehybrid", false},
    {"families/nemotron_h", false},
    {"families/bailing_hybrid", false},
    {"families/gemma4", false},
    {"families/opt-350m", false},
};

static void compare_all(const json_t *apart, const struct analysis_count *c,
                        const struct hparams *hp)
{
    const char *key;
    json_t *value;

    ck_assert_uint_eq(number(apart, "parameters", "active_per_token"), c->active);
    ck_assert_uint_eq(number(apart, "parameters", "one_expert_one_layer"), c->one_expert);
    ck_assert_uint_eq(number(apart, "flops_per_token", "matrices"),
                      (uint64_t)analysis_matrix_flops(c));
    ck_assert_uint_eq(number(apart, "kv_bytes", "per_token_f16"), analysis_kv_token(hp));
    for (int t = 0; t < ANALYSIS_DTYPES; t++) {
        ck_assert_uint_eq(number(apart, "weight_bytes_per_decoded_token", analysis_dtypes[t].name),
                          analysis_token_bytes(c, t));
        ck_assert_uint_eq(number(apart, "memory_of_weights", analysis_dtypes[t].name),
                          analysis_memory(c, t));
    }
    json_object_foreach(
        json_object_get(json_object_get(apart, "flops_per_token"), "attention_at_context"), key,
        value) ck_assert_uint_eq((uint64_t)json_integer_value(value),
                                 (uint64_t)analysis_attention_flops(hp, atoi(key)));
}

START_TEST(counts_agree_with_those_made_apart)
{
    const char *folder = support_shared(folders[_i].folder);
    struct analysis_count c;
    struct model *m;
    json_t *apart;

    if (!folder)
        return;
    if (!(apart = counted_apart(folder))) {
        support_skip("python3 or count_model.py is not here");
        return;
    }
    count(folder, &m, &c);
    ck_assert_uint_eq(number(apart, "parameters", "total"), c.total);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(apart, "file_bytes_of_tensors")),
                      c.file_bytes);
    if (folders[_i].exact)
        compare_all(apart, &c, &m->hp);
    json_decref(apart);
    model_free(m);
}
END_TEST

static char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return text;
}

/* A folder with olmoe's weights and its config.json, in which `from` is something else. */
static const char *stranger(const char *from, const char *to)
{
    static char dir[300];
    char path[400], *text = text_of(support_path("golden/families/olmoe/config.json"));
    FILE *f;

    snprintf(dir, sizeof dir, "%s/stranger", support_tmpdir());
    ck_assert(mkdir(dir, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_ptr_nonnull(f = fopen(path, "w"));
    for (char *at; (at = strstr(text, from)); text = at + strlen(from))
        fprintf(f, "%.*s%s", (int)(at - text), text, to);
    fputs(text, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ck_assert(symlink(support_path("golden/families/olmoe/model.safetensors"), path) == 0 ||
              errno == EEXIST);
    return dir;
}

/* Of an architecture that is not known, and of a variant that is refused, the tensors alone say the
 * same. */
START_TEST(strangers_are_told_by_their_tensors)
{
    static const char *const changes[][2] = {{"lmoe", "xyz"}, {"\"silu\"", "\"mish\""}};
    struct analysis_by_tensors by;
    struct analysis_count c;
    struct model *m;
    const char *dir = stranger(changes[_i][0], changes[_i][1]);

    ck_assert_int_eq(model_describe(&m, dir, NULL, &e), ERR_MODEL);
    ck_assert_msg(analysis_count_tensors(&by, dir, NULL, &e) == 0, "%s", e.text);
    count(support_path("golden/families/olmoe"), &m, &c);
    ck_assert_str_eq(by.name, "stranger");
    ck_assert_str_eq(by.architecture, _i == 0 ? "oxyz" : "olmoe");
    ck_assert_int_eq(by.layers, m->hp.n_layers);
    ck_assert_int_eq(by.strange, 0);
    ck_assert_int_eq(by.count.experts, 7);
    ck_assert_int_eq(by.count.used, 4);
    ck_assert_mem_eq(&by.count, &c, sizeof c);
    model_free(m);
}
END_TEST

/* Of a table of n-grams a token takes a row for each of its hashes: 2 and 3 tokens, 4 hashes each.
 * Without a head the tokens' own table is it. */
START_TEST(rows_of_n_grams_are_counted)
{
    struct made_file *m = calloc(1, sizeof *m);
    struct analysis_by_tensors by;
    struct bytes b;
    char path[PATH_MAX];

    meta_string(m, "general.architecture", "qwen4exp");
    meta_u32(m, "qwen4exp.ple.ngram_size", 3);
    meta_u32(m, "qwen4exp.ple.heads_per_ngram", 4);
    made_add(m, "token_embd.weight", DTYPE_F32, 64, 32, 0, NULL);
    made_add(m, "per_layer_token_embd.weight", DTYPE_F32, 1000, 4, 0, NULL);
    made_add(m, "blk.0.ple_key.weight", DTYPE_F32, 128, 32, 0, NULL);
    made_add(m, "blk.0.hc_attn_down.weight", DTYPE_F32, 8, 128, 0, NULL);
    made_add(m, "blk.0.attn_q.weight", DTYPE_F32, 32, 32, 0, NULL);
    b = made_gguf(m);
    snprintf(path, sizeof path, "%s/n-grams.gguf", support_tmpdir());
    ck_assert_int_eq(save(&b, path), 0);
    ck_assert_msg(analysis_count_tensors(&by, path, NULL, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(by.count.parts[ANALYSIS_LAYER_TABLE], 4000);
    ck_assert_uint_eq(by.count.active_parts[ANALYSIS_LAYER_TABLE], 2 * 4 * 4);
    ck_assert_uint_eq(by.count.parts[ANALYSIS_LAYER_INPUTS], 128 * 32);
    ck_assert_uint_eq(by.count.parts[ANALYSIS_STREAMS], 8 * 128);
    ck_assert_uint_eq(by.count.tied_head, 64 * 32);
    ck_assert_uint_eq(by.count.matrices, 128 * 32 + 8 * 128 + 32 * 32 + 64 * 32);
    ck_assert_int_eq(by.strange, 0);
    free(b.data);
    made_release(m);
    free(m);
}
END_TEST

/* Adapters are no language model; weights that are not there say nothing. */
START_TEST(what_is_no_model_is_not_described)
{
    struct analysis_by_tensors by;

    ck_assert_int_eq(analysis_count_tensors(&by, support_path("golden/lora/qwen3_moe/full.gguf"),
                                            NULL, &e),
                     ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "not those of a language model"));
    ck_assert_int_lt(analysis_count_tensors(&by, support_tmpdir(), NULL, &e), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("analyze");
    TCase *t = tcase_create("analyze");

    tcase_add_loop_test(t, tensors_are_told_by_name, 0, (int)(sizeof names / sizeof *names));
    tcase_add_loop_test(t, strangers_are_told_by_their_tensors, 0, 2);
    tcase_add_test(t, rows_of_n_grams_are_counted);
    tcase_add_test(t, what_is_no_model_is_not_described);
    tcase_add_test(t, the_bundled_model_has_what_its_sizes_say);
    tcase_add_test(t, experts_of_granite_are_experts);
    tcase_add_test(t, attention_and_cache_follow_the_layers);
    tcase_add_test(t, weights_that_are_not_there_follow_from_phimoes_configuration);
    tcase_add_test(t, weights_that_are_not_there_are_refused_of_other_families);
    tcase_add_loop_test(t, counts_agree_with_those_made_apart, 0,
                        (int)(sizeof folders / sizeof *folders));
    suite_add_tcase(s, t);
    return support_run(s);
}
