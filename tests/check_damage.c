/* Damaged n-grams and hyper-connections (Qwen4), and layers of DeepSeek V4: what a broken copy or a
 * wrong conversion may leave of them is one clear line and the exit status of a model that cannot
 * be read, or of values that are no numbers. */
#include "tests/golden.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE "golden/families/qwen4_exp"
#define OTHER "golden/families/deepseek_v4"
#define NGRAMS "model.layers.0.ple."
#define EMBEDDING NGRAMS "ple_embedding."
#define SHARD(i) EMBEDDING "ngram_embedding.shard_" #i ".weight"
#define MULTIPLIERS EMBEDDING "layer_multipliers"
#define SIZES EMBEDDING "ngram_heads_vocab_sizes"
#define OFFSETS EMBEDDING "ngram_heads_offsets"
#define AROUND_MIXER "model.layers.0.attn_hyper_connection."
#define AROUND_EXPERTS "model.layers.1.mlp_hyper_connection."
#define AT_END "model.hyper_connection_mixer."

static struct error e;

/* ---- Folders ---- */

enum harm {
    HARM_NONE,
    HARM_LOST,   /* the tensor is not there */
    HARM_HEADER, /* its entry has these members */
    HARM_NUMBER, /* its second number of 64 bits is this one */
    HARM_FIRST,  /* its first value is this BF16 number */
    HARM_ALL     /* all of its values are */
};

struct damage {
    enum harm harm;
    const char *tensor, *header;
    int64_t number;
};

static void harm_values(const struct damage *d, const json_t *entry, char *data)
{
    const json_t *at = json_object_get(entry, "data_offsets");
    size_t from = (size_t)json_integer_value(json_array_get(at, 0)),
           to = (size_t)json_integer_value(json_array_get(at, 1));
    uint16_t half = (uint16_t)d->number;

    if (d->harm == HARM_NUMBER)
        memcpy(data + from + sizeof d->number, &d->number, sizeof d->number);
    for (size_t i = from; i < (d->harm == HARM_FIRST ? from + 2 : to) && d->harm >= HARM_FIRST;
         i += 2)
        memcpy(data + i, &half, sizeof half);
}

/* The weights of a folder, damaged, to a file. */
static void harm_weights(const char *whole, const struct damage *d, const char *to)
{
    static const struct file_kind kind = {"weights", (size_t)1 << 30, ERR_MODEL};
    char path[200], *bytes, *head, *all;
    size_t n, long_head;
    uint64_t length;
    json_t *root, *entry;

    snprintf(path, sizeof path, "%s/model.safetensors", whole);
    ck_assert_int_eq(file_read(support_path(path), &kind, &bytes, &n, &e), 0);
    memcpy(&length, bytes, sizeof length);
    ck_assert((root = json_loadb(bytes + 8, (size_t)length, 0, NULL)));
    if (d->harm != HARM_NONE) {
        ck_assert_msg((entry = json_object_get(root, d->tensor)) != NULL, "%s", d->tensor);
        harm_values(d, entry, bytes + 8 + length);
        if (d->harm == HARM_HEADER) {
            json_t *other = json_loads(d->header, 0, NULL);

            ck_assert_msg(other != NULL, "%s", d->header);
            json_object_update(entry, other);
            json_decref(other);
        }
        if (d->harm == HARM_LOST)
            json_object_del(root, d->tensor);
    }
    ck_assert((head = json_dumps(root, JSON_COMPACT)));
    long_head = strlen(head);
    ck_assert((all = mem_alloc(8 + long_head + n - 8 - (size_t)length, 1)));
    memcpy(all, &(uint64_t){long_head}, 8);
    memcpy(all + 8, head, long_head);
    memcpy(all + 8 + long_head, bytes + 8 + length, n - 8 - (size_t)length);
    unlink(to);
    ck_assert_int_eq(file_replace(to, all, 8 + long_head + n - 8 - (size_t)length, &e), 0);
    json_decref(root);
    free(head);
    mem_free(all);
    mem_free(bytes);
}

/* A folder like `whole` with members of its config.json merged (JSON or NULL) and its weights
 * damaged. */
static const char *damaged_of(const char *whole, const char *merged, const struct damage *d)
{
    static char dir[400];
    char path[500];
    json_t *root, *other = json_loads(merged ? merged : "{}", 0, NULL), *value;
    const char *name;

    snprintf(path, sizeof path, "%s/config.json", whole);
    root = json_load_file(support_path(path), 0, NULL);
    ck_assert_msg(root && other, "%s", merged);
    json_object_foreach(other, name, value)
    {
        if (json_is_null(value))
            json_object_del(root, name);
        else
            json_object_set(root, name, value);
    }
    snprintf(dir, sizeof dir, "%s/damaged", support_tmpdir());
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    json_decref(other);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    harm_weights(whole, d, path);
    return dir;
}

static const char *damaged(const char *merged, const struct damage *d)
{
    return damaged_of(WHOLE, merged, d);
}

/* Opens the model; the error's code, 0: none. */
static int opened(const char *model)
{
    struct engine *g = NULL;
    int rc;

    e = (struct error){0};
    rc = golden_engine(&g, model, NULL, 2, -1, true, &e);
    if (rc == 0)
        engine_close(g);
    return rc;
}

static void refused(const char *model, int code, const char *said)
{
    int rc = opened(model);

    ck_assert_msg(rc == code, "%d instead of %d: %s", rc, code, e.text);
    ck_assert_msg(strstr(e.text, said) && !strchr(e.text, '\n'), "'%s' is not in '%s'", said,
                  e.text);
    ck_assert_int_eq(error_exit_code(rc), 3);
}

#define MOST_NEGATIVE INT64_MIN
#define NAN_HALF 0x7fc0
#define INFINITE_HALF 0xff80

static const struct {
    const char *merged;
    struct damage damage;
    int code;
    const char *said;
} folders[] = {
    {NULL, {HARM_LOST, SHARD(0), NULL, 0}, ERR_MODEL, "is missing"},
    {NULL,
     {HARM_LOST, SHARD(1), NULL, 0},
     ERR_MODEL,
     "table of 60; tensors of the table that are there: 1"},
    {NULL, {HARM_LOST, SHARD(2), NULL, 0}, ERR_MODEL, "tensors of the table that are there: 2"},
    {NULL,
     {HARM_LOST, SHARD(3), NULL, 0},
     ERR_MODEL,
     "table of 180; tensors of the table that are there: 3"},
    {NULL, {HARM_HEADER, SHARD(0), "{\"shape\": [4, 60]}", 0}, ERR_MODEL, SHARD(0) " is no part"},
    {NULL, {HARM_HEADER, SHARD(0), "{\"shape\": [240]}", 0}, ERR_MODEL, SHARD(0) " is no part"},
    {NULL, {HARM_HEADER, SHARD(1), "{\"shape\": [30, 8]}", 0}, ERR_MODEL, SHARD(1) " is no part"},
    {NULL,
     {HARM_HEADER, SHARD(1), "{\"shape\": [60, 4, 1]}", 0},
     ERR_MODEL,
     SHARD(1) " is no part"},
    {NULL, {HARM_HEADER, SHARD(3), "{\"shape\": [120, 2]}", 0}, ERR_MODEL, SHARD(3) " is no part"},
    {NULL, {HARM_HEADER, SHARD(3), "{\"shape\": [0, 4]}", 0}, ERR_MODEL, SHARD(3)},
    {NULL, {HARM_HEADER, SHARD(3), "{\"shape\": [-60, -4]}", 0}, ERR_MODEL, SHARD(3)},
    {NULL,
     {HARM_HEADER, SHARD(3), "{\"shape\": [4611686018427387904, 4]}", 0},
     ERR_MODEL,
     SHARD(3)},
    {NULL,
     {HARM_HEADER, SHARD(2), "{\"dtype\": \"I64\", \"shape\": [15, 4]}", 0},
     ERR_MODEL,
     SHARD(2)},
    {NULL,
     {HARM_HEADER, SHARD(0), "{\"dtype\": \"I64\", \"shape\": [15, 4]}", 0},
     ERR_MODEL,
     "not supported"},
    {NULL, {HARM_LOST, MULTIPLIERS, NULL, 0}, ERR_MODEL, MULTIPLIERS " is missing"},
    {NULL, {HARM_LOST, SIZES, NULL, 0}, ERR_MODEL, SIZES " is missing"},
    {NULL, {HARM_LOST, OFFSETS, NULL, 0}, ERR_MODEL, OFFSETS " is missing"},
    {NULL, {HARM_HEADER, MULTIPLIERS, "{\"shape\": [1, 3]}", 0}, ERR_MODEL, "must hold 3 integers"},
    {NULL,
     {HARM_HEADER, SIZES, "{\"dtype\": \"BF16\", \"shape\": [16]}", 0},
     ERR_MODEL,
     "must hold 4 integers"},
    {NULL,
     {HARM_HEADER, OFFSETS, "{\"dtype\": \"F32\", \"shape\": [8]}", 0},
     ERR_MODEL,
     "must hold 4 integers"},
    {NULL, {HARM_NUMBER, SIZES, NULL, 0}, ERR_MODEL, "holds 0, less than 1"},
    {NULL, {HARM_NUMBER, SIZES, NULL, -1}, ERR_MODEL, "holds -1, less than 1"},
    {NULL,
     {HARM_NUMBER, SIZES, NULL, MOST_NEGATIVE},
     ERR_MODEL,
     "holds -9223372036854775808, less"},
    {NULL, {HARM_NUMBER, SIZES, NULL, INT64_MAX}, ERR_MODEL, "one of 9223372036854775807 rows"},
    {NULL, {HARM_NUMBER, SIZES, NULL, 241}, ERR_MODEL, "one of 241 rows"},
    {NULL, {HARM_NUMBER, OFFSETS, NULL, -1}, ERR_MODEL, "holds -1, less than 0"},
    {NULL,
     {HARM_NUMBER, OFFSETS, NULL, MOST_NEGATIVE},
     ERR_MODEL,
     "holds -9223372036854775808, less"},
    {NULL, {HARM_NUMBER, OFFSETS, NULL, INT64_MAX}, ERR_MODEL, "rows from 9223372036854775807 on"},
    {NULL, {HARM_NUMBER, OFFSETS, NULL, 200}, ERR_MODEL, "of a table of 240"},
    {NULL, {HARM_LOST, NGRAMS "key_proj.weight", NULL, 0}, ERR_MODEL, "key_proj.weight is missing"},
    {NULL, {HARM_LOST, NGRAMS "conv1d.weight", NULL, 0}, ERR_MODEL, "conv1d.weight is missing"},
    {NULL,
     {HARM_LOST, NGRAMS "norm_query.weight", NULL, 0},
     ERR_MODEL,
     "norm_query.weight is missing"},
    {NULL,
     {HARM_HEADER, NGRAMS "key_proj.weight", "{\"shape\": [16, 128]}", 0},
     ERR_MODEL,
     "(16, 128); the model needs (128, 16)"},
    {NULL,
     {HARM_HEADER, NGRAMS "conv1d.weight", "{\"shape\": [4, 1, 128]}", 0},
     ERR_MODEL,
     "has rows of 128 values; the model needs rows of 4"},
    {NULL,
     {HARM_HEADER, "model.layers.0.linear_attn.conv1d.weight", "{\"shape\": [4, 64]}", 0},
     ERR_MODEL,
     "has rows of 64 values; the model needs rows of 4"},
    {NULL,
     {HARM_ALL, NGRAMS "conv1d.weight", NULL, NAN_HALF},
     ERR_VALUE,
     NGRAMS "conv1d.weight holds values that are no numbers"},
    {NULL,
     {HARM_FIRST, NGRAMS "value_proj.weight", NULL, NAN_HALF},
     ERR_VALUE,
     NGRAMS "value_proj.weight holds"},
    {NULL,
     {HARM_FIRST, NGRAMS "norm_key.weight", NULL, INFINITE_HALF},
     ERR_VALUE,
     NGRAMS "norm_key.weight holds"},
    {NULL,
     {HARM_LOST, AROUND_MIXER "block_inject_weight.weight", NULL, 0},
     ERR_MODEL,
     "is missing"},
    {NULL,
     {HARM_LOST, AROUND_EXPERTS "hc_norm.weight", NULL, 0},
     ERR_MODEL,
     AROUND_EXPERTS "hc_norm.weight is missing"},
    {NULL, {HARM_LOST, AT_END "input_mix_weight_up.weight", NULL, 0}, ERR_MODEL, "is missing"},
    {NULL,
     {HARM_HEADER, AROUND_MIXER "block_inject_weight.weight", "{\"shape\": [128, 4]}", 0},
     ERR_MODEL,
     "(128, 4); the model needs (4, 128)"},
    {NULL,
     {HARM_HEADER, AROUND_EXPERTS "input_mix_weight_down.weight", "{\"shape\": [128, 16]}", 0},
     ERR_MODEL,
     "the model needs (16, 128)"},
    {NULL,
     {HARM_HEADER, AT_END "hc_norm.weight", "{\"dtype\": \"F32\", \"shape\": [64]}", 0},
     ERR_MODEL,
     "has 64 values; the model needs 128"},
    {NULL,
     {HARM_HEADER, AT_END "hc_norm.weight", "{\"shape\": [64, 2]}", 0},
     ERR_MODEL,
     "has rows of 2 values; the model needs rows of 128"},
    {NULL,
     {HARM_HEADER, AROUND_MIXER "hc_norm.weight", "{\"shape\": [2, 1, 64]}", 0},
     ERR_MODEL,
     "has rows of 64 values; the model needs rows of 128"},
    {NULL,
     {HARM_HEADER, NGRAMS "norm_key.weight", "{\"shape\": [4, 32]}", 0},
     ERR_MODEL,
     "has rows of 32 values"},
    {NULL,
     {HARM_HEADER, "model.layers.0.linear_attn.A_log", "{\"shape\": [2, 2]}", 0},
     ERR_MODEL,
     "has rows of 2 values; the model needs rows of 4"},
    {NULL,
     {HARM_FIRST, AROUND_MIXER "block_inject_weight.weight", NULL, NAN_HALF},
     ERR_VALUE,
     AROUND_MIXER "block_inject_weight.weight holds"},
    {NULL,
     {HARM_FIRST, AROUND_MIXER "hc_norm.weight", NULL, INFINITE_HALF},
     ERR_VALUE,
     AROUND_MIXER "hc_norm.weight holds"},
    {NULL,
     {HARM_ALL, AROUND_EXPERTS "input_mix_weight_up.weight", NULL, INFINITE_HALF},
     ERR_VALUE,
     AROUND_EXPERTS "input_mix_weight_up.weight holds"},
    {NULL,
     {HARM_FIRST, AT_END "input_mix_weight_down.weight", NULL, NAN_HALF},
     ERR_VALUE,
     AT_END "input_mix_weight_down.weight holds"},
    {"{\"hc_count\": 0}", {0}, ERR_MODEL, "hc_count is 0; 2 to 8"},
    {"{\"hc_count\": -4}", {0}, ERR_MODEL, "hc_count is -4; 2 to 8"},
    {"{\"hc_count\": 1099511627776}", {0}, ERR_MODEL, "2 to 8 make sense"},
    {"{\"hc_count\": 1e99}", {0}, ERR_MODEL, "2 to 8 make sense"},
    {"{\"hc_count\": \"4\"}", {0}, ERR_MODEL, "hc_count is not a number"},
    {"{\"hc_count\": 8}", {0}, ERR_MODEL, "has 128 values; the model needs 256"},
    {"{\"hc_lowrank\": -1}", {0}, ERR_MODEL, "hc_lowrank is -1"},
    {"{\"hc_lowrank\": 17}", {0}, ERR_MODEL, "hc_lowrank of 17 is not computed"},
    {"{\"hc_lowrank\": 1048576}", {0}, ERR_MODEL, "the model needs (1048576, 128)"},
    {"{\"ngram_size\": 1}", {0}, ERR_MODEL, "an integer from 2 to 8"},
    {"{\"ngram_size\": -3}", {0}, ERR_MODEL, "an integer from 2 to 8"},
    {"{\"ngram_size\": 8589934592}", {0}, ERR_MODEL, "an integer from 2 to 8"},
    {"{\"ngram_size\": 2}", {0}, ERR_MODEL, "must hold 2 integers"},
    {"{\"heads_per_ngram\": 0}", {0}, ERR_MODEL, "an integer from 1 to 64"},
    {"{\"heads_per_ngram\": 2147483648}", {0}, ERR_MODEL, "an integer from 1 to 64"},
    {"{\"heads_per_ngram\": 64}", {0}, ERR_MODEL, "128 hashes of its n-grams"},
    {"{\"ngram_size\": 8, \"heads_per_ngram\": 64, \"ple_embed_dim\": 1048576}",
     {0},
     ERR_MODEL,
     "448 hashes of its n-grams"},
    {"{\"ple_embed_dim\": -16}", {0}, ERR_MODEL, "an integer from 1 to 1048576"},
    {"{\"ple_embed_dim\": 32}", {0}, ERR_MODEL, "is no part of a table"},
    {"{\"ple_conv_kernel_size\": 0}", {0}, ERR_MODEL, "an integer from 1 to 16"},
    {"{\"ple_conv_kernel_size\": 16}", {0}, ERR_MODEL, "has 512 values; the model needs 2048"},
    {"{\"ple_layer_ids\": [0]}", {0}, ERR_MODEL, "has a 0; it counts layers from 1"},
    {"{\"ple_layer_ids\": [4]}", {0}, ERR_MODEL, "layer 3 has n-grams"},
    {"{\"ple_layer_ids\": [2147483647]}", {0}, ERR_MODEL, "is no part of"},
    {"{\"ple_layer_ids\": [1, 3]}",
     {0},
     ERR_MODEL,
     "model.layers.2.ple.ple_embedding.layer_multipliers is missing"},
    {"{\"ple_layer_ids\": [1099511627776]}", {0}, ERR_MODEL, "is no part of"},
    {"{\"ple_layer_ids\": \"1\"}", {0}, ERR_MODEL, "is no part of"},
    {"{\"eos_token_id\": -1}", {0}, ERR_MODEL, "need an end of text"},
    {"{\"eos_token_id\": []}", {0}, ERR_MODEL, "need an end of text"},
    {"{\"eos_token_id\": 1099511627776}", {0}, ERR_MODEL, "need an end of text"},
    {"{\"indexer_budget\": 7}", {0}, ERR_MODEL, "do not divide the 7"},
    {"{\"indexer_compress_ratio\": -1}", {0}, ERR_MODEL, "do not divide"},
    {"{\"indexer_head_dim\": 512}", {0}, ERR_MODEL, "are not computed"},
};
#define FOLDERS (int)(sizeof folders / sizeof folders[0])

START_TEST(damaged_folders_are_refused)
{
    refused(damaged(folders[_i].merged, &folders[_i].damage), folders[_i].code, folders[_i].said);
}
END_TEST

/* Dimensions of 1 say nothing. */
START_TEST(shapes_that_say_the_same_open)
{
    static const struct damage same[] = {
        {HARM_HEADER, AT_END "hc_norm.weight", "{\"shape\": [1, 128]}", 0},
        {HARM_HEADER, AROUND_EXPERTS "hc_norm.weight", "{\"shape\": [128, 1, 1]}", 0},
        {HARM_HEADER, "model.layers.0.linear_attn.A_log", "{\"shape\": [1, 1, 4, 1]}", 0},
        {HARM_HEADER, "model.layers.0.linear_attn.conv1d.weight", "{\"shape\": [64, 4]}", 0},
        {HARM_HEADER, NGRAMS "conv1d.weight", "{\"shape\": [1, 128, 1, 4]}", 0},
    };

    ck_assert_msg(opened(damaged(NULL, &same[_i])) == 0, "%s", e.text);
}
END_TEST

/* ---- DeepSeek V4 ---- */

#define UNNAMED(ratios) "{\"layer_types\": null, \"compress_ratios\": " ratios "}"
#define HYPER "model.layers.0.hc_"
#define NO_NUMBERS "holds values that are no numbers"

static const struct {
    const char *merged;
    struct damage damage;
    int code;
    const char *said;
} others[] = {
    {UNNAMED("[]"), {0}, ERR_MODEL, "compress_ratios of its config.json lists 0 layers; it has 3"},
    {UNNAMED("[0, 4]"), {0}, ERR_MODEL, "lists 2 layers; it has 3"},
    {UNNAMED("[-4]"), {0}, ERR_MODEL, "lists 1 layers; it has 3"},
    {UNNAMED("5"), {0}, ERR_MODEL, "compress_ratios of its config.json is not a list"},
    {UNNAMED("4"), {0}, ERR_MODEL, "compress_ratios of its config.json is not a list"},
    {UNNAMED("\"4\""), {0}, ERR_MODEL, "compress_ratios of its config.json is not a list"},
    {UNNAMED("[0, 4, -4]"), {0}, ERR_MODEL, "does not say what layer 2 sees: 0, 4 or 128"},
    {UNNAMED("[0, 8, 128]"), {0}, ERR_MODEL, "does not say what layer 1 sees: 0, 4 or 128"},
    {UNNAMED("[0, \"4\", 128]"), {0}, ERR_MODEL, "does not say what layer 1 sees"},
    {UNNAMED("[1099511627776, 4, 128]"), {0}, ERR_MODEL, "does not say what layer 0 sees"},
    {"{\"layer_types\": []}", {0}, ERR_MODEL, "layer_types of its config.json lists 0 layers"},
    {"{\"layer_types\": \"sliding_attention\"}", {0}, ERR_MODEL, "layer_types of its config.json"},
    {"{\"layer_types\": [\"sliding_attention\", \"full_attention\", \"moe\"]}",
     {0},
     ERR_MODEL,
     "layer_types of its config.json does not say what layer 1 sees: sliding_attention"},
    {"{\"mlp_layer_types\": [\"moe\"]}", {0}, ERR_MODEL, "mlp_layer_types of its config.json"},
    {"{\"mlp_layer_types\": [\"hash_moe\", \"dense\", \"moe\"]}",
     {0},
     ERR_MODEL,
     "how layer 1's experts are chosen"},
    {"{\"compress_rates\": [4, 8]}", {0}, ERR_MODEL, "does not name kinds of layers"},
    {"{\"compress_rates\": {\"compressed_sparse_attention\": -4}}",
     {0},
     ERR_MODEL,
     "an integer from 2 to 1024"},
    {NULL, {HARM_FIRST, HYPER "attn_fn", NULL, NAN_HALF}, ERR_VALUE, HYPER "attn_fn " NO_NUMBERS},
    {NULL, {HARM_ALL, HYPER "ffn_fn", NULL, INFINITE_HALF}, ERR_VALUE, HYPER "ffn_fn " NO_NUMBERS},
    {NULL, {HARM_FIRST, HYPER "attn_base", NULL, NAN_HALF}, ERR_VALUE, "attn_base " NO_NUMBERS},
    {NULL, {HARM_FIRST, HYPER "ffn_scale", NULL, NAN_HALF}, ERR_VALUE, "ffn_scale " NO_NUMBERS},
    {NULL, {HARM_FIRST, "model.hc_head.hc_fn", NULL, NAN_HALF}, ERR_VALUE, "hc_fn " NO_NUMBERS},
    {NULL,
     {HARM_HEADER, HYPER "attn_fn", "{\"shape\": [64, 8]}", 0},
     ERR_MODEL,
     "(64, 8); the model needs (8, 64)"},
    {NULL,
     {HARM_HEADER, HYPER "attn_base", "{\"shape\": [4, 2]}", 0},
     ERR_MODEL,
     "has rows of 2 values; the model needs rows of 8"},
    {NULL,
     {HARM_HEADER, "model.layers.1.attn.compressor.ape", "{\"shape\": [64, 4]}", 0},
     ERR_MODEL,
     "(64, 4); the model needs (4, 64)"},
};
#define OTHERS (int)(sizeof others / sizeof others[0])

START_TEST(damaged_others_are_refused)
{
    refused(damaged_of(OTHER, others[_i].merged, &others[_i].damage), others[_i].code,
            others[_i].said);
}
END_TEST

/* ---- DeepSeek V4's block that predicts further tokens ---- */

#define FURTHER "mtp.0."

static const struct {
    const char *merged;
    struct damage damage;
    int code;
    const char *said;
} blocks[] = {
    {NULL, {HARM_LOST, FURTHER "e_proj.weight", NULL, 0}, ERR_MODEL, "e_proj.weight is missing"},
    {NULL, {HARM_LOST, FURTHER "h_proj.weight", NULL, 0}, ERR_MODEL, "h_proj.weight is missing"},
    {NULL, {HARM_LOST, FURTHER "enorm.weight", NULL, 0}, ERR_MODEL, FURTHER "enorm.weight is miss"},
    {NULL, {HARM_LOST, FURTHER "hnorm.weight", NULL, 0}, ERR_MODEL, FURTHER "hnorm.weight is miss"},
    {NULL, {HARM_LOST, FURTHER "hc_head_fn", NULL, 0}, ERR_MODEL, FURTHER "hc_head_fn is missing"},
    {NULL, {HARM_LOST, FURTHER "hc_head_scale", NULL, 0}, ERR_MODEL, "hc_head_scale is missing"},
    {NULL,
     {HARM_LOST, FURTHER "hc_attn_fn", NULL, 0},
     ERR_MODEL,
     "tensor " FURTHER "hc_attn_fn is missing"},
    {NULL,
     {HARM_LOST, FURTHER "attn.wkv.weight", NULL, 0},
     ERR_MODEL,
     "tensor " FURTHER "attn.wkv.weight is missing"},
    {NULL,
     {HARM_LOST, FURTHER "attn.attn_sink", NULL, 0},
     ERR_MODEL,
     "tensor " FURTHER "attn.attn_sink is missing"},
    {NULL,
     {HARM_LOST, FURTHER "ffn.experts.3.w2.weight", NULL, 0},
     ERR_MODEL,
     "tensor " FURTHER "ffn.experts.3.w2.weight is missing"},
    {NULL,
     {HARM_LOST, FURTHER "ffn.gate.bias", NULL, 0},
     ERR_MODEL,
     "tensor " FURTHER "ffn.gate.bias is missing"},
    {NULL,
     {HARM_HEADER, FURTHER "e_proj.weight", "{\"shape\": [16, 64]}", 0},
     ERR_MODEL,
     "e_proj.weight has the shape (16, 64); the model needs (32, 32)"},
    {NULL,
     {HARM_HEADER, FURTHER "h_proj.weight", "{\"shape\": [1024]}", 0},
     ERR_MODEL,
     "h_proj.weight has the shape (1024); the model needs (32, 32)"},
    {NULL,
     {HARM_HEADER, FURTHER "hc_head_fn", "{\"shape\": [64, 2]}", 0},
     ERR_MODEL,
     "(64, 2); the model needs (2, 64)"},
    {NULL,
     {HARM_HEADER, FURTHER "attn.wq_b.weight", "{\"shape\": [8, 128]}", 0},
     ERR_MODEL,
     "(8, 128); the model needs (128, 8)"},
    {UNNAMED("[0, 4, 128, 4]"), {0}, ERR_MODEL, "predicts further tokens has compressed keys"},
    {NULL,
     {HARM_FIRST, FURTHER "e_proj.weight", NULL, NAN_HALF},
     ERR_VALUE,
     FURTHER "e_proj.weight " NO_NUMBERS},
    {NULL,
     {HARM_ALL, FURTHER "h_proj.weight", NULL, INFINITE_HALF},
     ERR_VALUE,
     FURTHER "h_proj.weight " NO_NUMBERS},
    {NULL,
     {HARM_FIRST, FURTHER "hc_head_base", NULL, NAN_HALF},
     ERR_VALUE,
     FURTHER "hc_head_base " NO_NUMBERS},
};
#define BLOCKS (int)(sizeof blocks / sizeof blocks[0])

/* Opens it with this drafter, drafting or not; *drafts: whether the block does. */
static int opened_to_draft(const char *model, const char *drafter, bool *drafts)
{
    struct engine_config c = {
        .model_path = model, .context = 64, .n_threads = 2, .convert = -1, .no_tokenizer = true};
    struct engine *g = NULL;
    int rc;

    e = (struct error){0};
    snprintf(c.drafting.type, sizeof c.drafting.type, "%s", drafter);
    rc = engine_open(&g, &c, &e);
    *drafts = rc == 0 && g->mtp;
    if (rc == 0)
        engine_close(g);
    return rc;
}

/* Who asks for the block is told what it lacks; the model alone, and where nobody asks, opens. */
START_TEST(damaged_blocks_are_refused)
{
    const char *dir = damaged_of(OTHER, blocks[_i].merged, &blocks[_i].damage);
    bool drafts;
    int rc = opened_to_draft(dir, "mtp", &drafts);

    ck_assert_msg(rc == blocks[_i].code, "%d instead of %d: %s", rc, blocks[_i].code, e.text);
    ck_assert_msg(strstr(e.text, blocks[_i].said) && !strchr(e.text, '\n'), "'%s' is not in '%s'",
                  blocks[_i].said, e.text);
    ck_assert_int_eq(error_exit_code(rc), 3);
    ck_assert_msg(opened_to_draft(dir, "none", &drafts) == 0, "%s", e.text);
    if (blocks[_i].code == ERR_MODEL) {
        ck_assert_msg(opened_to_draft(dir, "auto", &drafts) == 0, "%s", e.text);
        ck_assert(!drafts);
    }
}
END_TEST

START_TEST(a_whole_block_drafts)
{
    bool drafts;

    ck_assert_msg(opened_to_draft(support_path(OTHER), "auto", &drafts) == 0, "%s", e.text);
    ck_assert(drafts);
}
END_TEST

/* What transformers' class reads: names before numbers; those of layers behind the last are not
 * looked at, a rate of its own goes before the list's. */
START_TEST(what_counts_opens)
{
    static const char *const merged[] = {
        NULL,
        "{\"compress_ratios\": [-4]}",
        "{\"compress_ratios\": 5}",
        UNNAMED("[0, 4, 128]"),
        UNNAMED("[0, 4, 128, 7, -1]"),
        "{\"compress_rates\": {\"compressed_sparse_attention\": 3, "
        "\"heavily_compressed_attention\": 8}, \"compress_rate_csa\": 4}"};

    ck_assert_msg(opened(damaged_of(OTHER, merged[_i], &(struct damage){0})) == 0, "%s", e.text);
}
END_TEST

/* ---- The table is read as it is needed ---- */

static int computed(const char *model)
{
    const int ids[] = {1, 5, 7, 11, 5, 9, 3, 20, 31, 40, 2, 17, 47, 0, 8, 33};
    struct engine *g = NULL;
    float logits[48];
    int rc;

    ck_assert_msg(golden_engine(&g, model, NULL, 2, -1, true, &e) == 0, "%s", e.text);
    rc = engine_eval(g, ids, (int)(sizeof ids / sizeof *ids), logits, false, &e);
    engine_close(g);
    return rc;
}

START_TEST(no_numbers_in_the_table)
{
    static const char *const shards[] = {SHARD(0), SHARD(1), SHARD(2), SHARD(3)};
    const struct damage d = {HARM_ALL, shards[_i / 2], NULL, _i % 2 ? INFINITE_HALF : NAN_HALF};

    ck_assert_int_eq(computed(damaged(NULL, &d)), ERR_VALUE);
    ck_assert_msg(strstr(e.text, shards[_i / 2]) && !strchr(e.text, '\n'), "%s", e.text);
}
END_TEST

/* Whatever the hashes' factors are, rows stay in the table: integers that wrap. */
START_TEST(any_multiplier_computes)
{
    static const int64_t multipliers[] = {0, -1, INT64_MIN, INT64_MAX};
    const struct damage d = {HARM_NUMBER, MULTIPLIERS, NULL, multipliers[_i]};

    ck_assert_msg(computed(damaged(NULL, &d)) == 0, "%s", e.text);
}
END_TEST

/* A file of several that is not there. */
START_TEST(a_lost_file_is_named)
{
    const char *dir = damaged(NULL, &(struct damage){0});
    char from[500], to[500];

    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    snprintf(to, sizeof to, "%s/model-00001-of-00002.safetensors", dir);
    ck_assert_int_eq(rename(from, to), 0);
    support_put(
        dir, "model.safetensors.index.json",
        "{\"weight_map\": {\"lm_head.weight\": \"model-00001-of-00002.safetensors\", \"" SHARD(
            2) "\": \"model-00002-of-00002.safetensors\"}}");
    ck_assert_int_lt(opened(dir), 0);
    ck_assert_msg(strstr(e.text, "model-00002-of-00002.safetensors") && !strchr(e.text, '\n'), "%s",
                  e.text);
    ck_assert(error_exit_code(e.code) == 3 || error_exit_code(e.code) == 5);
    snprintf(from, sizeof from, "%s/model.safetensors.index.json", dir);
    unlink(from);
    unlink(to);
}
END_TEST

/* ---- GGUF: the hashes' numbers are metadata ---- */

static const char *written_of(const char *whole, const char *name)
{
    static char out[400];
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct export_report r;

    snprintf(out, sizeof out, "%s/%s", support_tmpdir(), name);
    if (access(out, F_OK) != 0)
        ck_assert_msg(model_export(support_path(whole), out, &o, &r, &e) == 0, "%s", e.text);
    return out;
}

static const char *written(void)
{
    return written_of(WHOLE, "whole.gguf");
}

static bool is_without(const char *name, const char *without)
{
    size_t n = strlen(without);

    return n && without[n - 1] == '.' ? strncmp(name, without, n) == 0 : strcmp(name, without) == 0;
}

/* A copy of a GGUF file in which the entry whose name ends so has n numbers, each the same; n 0: it
 * is not there, below 0: one number alone. without: a tensor that is not there, those whose names
 * begin so if it ends with a point, or NULL. */
static const char *rewritten(const char *in, const char *ends, int n, int64_t number,
                             const char *without)
{
    static char out[400];
    struct weight_file *f;
    struct gguf_writer *w;
    const void *entry;
    const char *key;
    size_t long_key, bytes, end = strlen(ends);
    char name[200];
    bool found = false;

    snprintf(out, sizeof out, "%s/damaged.gguf", support_tmpdir());
    ck_assert_msg(weight_file_open(&f, in, false, &e) == 0, "%s", e.text);
    ck_assert_msg(gguf_write_open(&w, out, &e) == 0, "%s", e.text);
    for (size_t i = 0; weight_file_entry(f, i, &key, &long_key, &entry, &bytes); i++) {
        if (!end || long_key < end || memcmp(key + long_key - end, ends, end) != 0) {
            gguf_put_raw(w, entry, bytes);
            continue;
        }
        found = true;
        snprintf(name, sizeof name, "%.*s", (int)long_key, key);
        if (n < 0)
            gguf_put_u32(w, name, (uint32_t)number);
        else if (n > 0)
            gguf_put_array(w, name, GGUF_U64, (size_t)n);
        for (int k = 0; k < n; k++)
            gguf_add_u64(w, (uint64_t)number);
    }
    ck_assert_msg(found || !end, "%s", ends);
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < weight_file_count(f); i++) {
            const struct tensor_view *t = weight_file_at(f, i);

            if (without && is_without(t->name, without))
                continue;
            if (!pass)
                gguf_write_tensor(w, t->name, t->type, t->n_dims, t->dims);
            else
                ck_assert_int_eq(gguf_write_data(w, t->data, t->bytes, &e), 0);
        }
        if (!pass)
            ck_assert_msg(gguf_write_begin(w, &e) == 0, "%s", e.text);
    }
    ck_assert_msg(gguf_write_finish(w, &e) == 0, "%s", e.text);
    weight_file_close(f);
    return out;
}

static const struct {
    const char *ends;
    int n;
    int64_t number;
    const char *without, *said;
} files[] = {
    {"ple.layer_multipliers", 0, 0, NULL, "must be a list of 3 integers"},
    {"ple.layer_multipliers", 2, 7, NULL, "must be a list of 3 integers"},
    {"ple.layer_multipliers", -1, 7, NULL, "must be a list of 3 integers"},
    {"ple.head_vocab_sizes", 3, 50, NULL, "must be a list of 4 integers from 1 on"},
    {"ple.head_vocab_sizes", 4, 0, NULL, "must be a list of 4 integers from 1 on"},
    {"ple.head_vocab_sizes", 4, -1, NULL, "of a table of 240"},
    {"ple.head_vocab_sizes", 4, INT64_MAX, NULL, "one of 9223372036854775807 rows"},
    {"ple.head_offsets", 0, 0, NULL, "must be a list of 4 integers from 0 on"},
    {"ple.head_offsets", 4, 200, NULL, "rows from 200 on"},
    {"ple.head_offsets", 4, INT64_MAX, NULL, "rows from 9223372036854775807 on"},
    {"ple.layers", 1, 1, NULL, "layer 1 has n-grams"},
    {"ple.layers", 1, 3, NULL, "layer 3 has n-grams"},
    {"ple.layers", 1, 1LL << 40, NULL, "per_layer_token_embd.weight"},
    {"ple.layers", 0, 0, NULL, "per_layer_token_embd.weight"},
    {"ple.layers", 3, 0, NULL, "one table for n-grams of 3 layers"},
    {"ple.ngram_size", -1, 0, NULL, "an integer from 2 to 8"},
    {"ple.ngram_size", -1, 0xffffffff, NULL, "an integer from 2 to 8"},
    {"ple.heads_per_ngram", -1, 65, NULL, "an integer from 1 to 64"},
    {"ple.conv_kernel", -1, 17, NULL, "an integer from 1 to 16"},
    {"ple.eos_token_id", -1, 48, NULL, "need an end of text"},
    {"ple.eos_token_id", -1, 0xffffffff, NULL, "need an end of text"},
    {"embedding_length_per_layer_input", -1, 0, NULL, "an integer from 1 to 65536"},
    {"embedding_length_per_layer_input", -1, 65536, NULL, "is no part of a table"},
    {"embedding_length_per_layer_input", -1, 0x7fffffff, NULL, "an integer from 1 to 65536"},
    {"hyper_connection.count", -1, 1, NULL, "2 to 8 make sense"},
    {"hyper_connection.count", -1, 0xffffffff, NULL, "2 to 8 make sense"},
    {"hyper_connection.low_rank", -1, 0, NULL, "make sense"},
    {"hyper_connection.low_rank", -1, 32, NULL, "the model needs (32, 128)"},
    {"", 0, 0, "per_layer_token_embd.weight", "per_layer_token_embd.weight is missing"},
    {"", 0, 0, "blk.0.hc_attn_norm.weight", "blk.0.hc_attn_norm.weight is missing"},
    {"", 0, 0, "output_hc_up.weight", "output_hc_up.weight is missing"},
};
#define FILES (int)(sizeof files / sizeof files[0])

START_TEST(damaged_files_are_refused)
{
    refused(rewritten(written(), files[_i].ends, files[_i].n, files[_i].number, files[_i].without),
            ERR_MODEL, files[_i].said);
}
END_TEST

/* What is not damaged opens: the copies are right but for the damage. */
START_TEST(what_is_whole_opens)
{
    ck_assert_msg(opened(damaged(NULL, &(struct damage){0})) == 0, "%s", e.text);
    ck_assert_msg(opened(rewritten(written(), "", 0, 0, NULL)) == 0, "%s", e.text);
}
END_TEST

/* The program says one line on standard error and exits so; --fit tells the layers before. */
START_TEST(the_program_says_one_line)
{
    static const struct damage damages[] = {{HARM_LOST, SHARD(1), NULL, 0},
                                            {HARM_NUMBER, OFFSETS, NULL, INT64_MAX},
                                            {HARM_HEADER, AT_END "input_mix_weight_up.weight",
                                             "{\"shape\": [16, 128]}", 0}};
    const char *dir = damaged(NULL, &damages[_i]);

    ck_assert_int_eq(support_sh(support_tmpdir(), "$T -m '%s' --fit >out 2>err", dir), 3);
    ck_assert_int_eq(support_sh(support_tmpdir(), "test $(wc -l <err) = 1"), 0);
}
END_TEST

/* ---- GGUF files with a block that predicts further tokens ---- */

static const struct {
    const char *without;
    int code;
    const char *said;
} written_blocks[] = {
    {"blk.3.nextn.hc_head_fn.weight", 0, ""}, /* the model's end is taken */
    {"blk.3.nextn.hc_head_base.weight", ERR_MODEL, "blk.3.nextn.hc_head_base.weight is missing"},
    {"blk.3.nextn.eh_proj.weight", ERR_USAGE, "no block that predicts further tokens"},
    {"blk.3.nextn.enorm.weight", ERR_MODEL, "blk.3.nextn.enorm.weight is missing"},
    {"blk.3.nextn.shared_head_norm.weight", ERR_MODEL, "shared_head_norm.weight is missing"},
    {"blk.3.attn_kv.weight", ERR_MODEL, "blk.3.attn_kv.weight is missing"},
    {"blk.3.ffn_down_exps.weight", ERR_MODEL, "blk.3.ffn_down_exps.weight is missing"},
    {"blk.3.hc_ffn_scale.weight", ERR_MODEL, "blk.3.hc_ffn_scale.weight is missing"},
};
#define WRITTEN_BLOCKS (int)(sizeof written_blocks / sizeof written_blocks[0])

START_TEST(damaged_written_blocks_are_refused)
{
    const char *whole = written_of(OTHER, "other.gguf"),
               *file = rewritten(whole, "", 0, 0, written_blocks[_i].without);
    bool drafts;
    int rc = opened_to_draft(file, "mtp", &drafts);

    ck_assert_msg(rc == written_blocks[_i].code, "%d: %s", rc, e.text);
    ck_assert(rc ? !drafts : drafts);
    ck_assert_msg(!rc || (strstr(e.text, written_blocks[_i].said) && !strchr(e.text, '\n')), "%s",
                  e.text);
    ck_assert_msg(opened_to_draft(file, "auto", &drafts) == 0, "%s", e.text);
    ck_assert(rc ? !drafts : drafts);
}
END_TEST

/* As llama.cpp's converter writes a block into a file of its own, all but its other layers. */
START_TEST(a_block_alone_is_no_model)
{
    refused(rewritten(written_of(OTHER, "other.gguf"), "", 0, 0, "blk.0."), ERR_MODEL,
            "it holds nothing but a block that predicts further tokens");
}
END_TEST

/* Without the block, as llama.cpp's converter writes it. */
START_TEST(a_block_can_be_left_out)
{
    struct export_options o = {
        .type = export_type_find("f32"), .n_threads = 2, .without_mtp = true};
    struct export_report r;
    char out[400];
    bool drafts;

    snprintf(out, sizeof out, "%s/trunk.gguf", support_tmpdir());
    ck_assert_msg(model_export(support_path(OTHER), out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_msg(!r.mtp && strstr(r.left_out, "further tokens"), "%s", r.left_out);
    ck_assert_msg(opened_to_draft(out, "auto", &drafts) == 0 && !drafts, "%s", e.text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("damage");
    TCase *c = tcase_create("damage");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, what_is_whole_opens);
    tcase_add_loop_test(c, damaged_folders_are_refused, 0, FOLDERS);
    tcase_add_loop_test(c, shapes_that_say_the_same_open, 0, 5);
    tcase_add_loop_test(c, damaged_others_are_refused, 0, OTHERS);
    tcase_add_loop_test(c, damaged_blocks_are_refused, 0, BLOCKS);
    tcase_add_test(c, a_whole_block_drafts);
    tcase_add_loop_test(c, damaged_written_blocks_are_refused, 0, WRITTEN_BLOCKS);
    tcase_add_test(c, a_block_alone_is_no_model);
    tcase_add_test(c, a_block_can_be_left_out);
    tcase_add_loop_test(c, what_counts_opens, 0, 6);
    tcase_add_loop_test(c, no_numbers_in_the_table, 0, 8);
    tcase_add_loop_test(c, any_multiplier_computes, 0, 4);
    tcase_add_test(c, a_lost_file_is_named);
    tcase_add_loop_test(c, damaged_files_are_refused, 0, FILES);
    tcase_add_loop_test(c, the_program_says_one_line, 0, 3);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
