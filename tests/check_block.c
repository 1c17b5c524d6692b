/* The walker over a model's blocks, on a model made by hand whose layers differ: three routed
 * experts and a shared one, a dense layer, a layer without a mixer. */
#include "engine/model/block.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>

#define LAYERS 3
#define HIDDEN 8

static struct layer_shape shapes[LAYERS];
static struct layer_weights layers[LAYERS];
static struct expert_weights experts[LAYERS][4];
static const float value[4];
static struct model model;

static void setup(void)
{
    const struct norm_weights with_bias = {value, value}, without = {value, NULL};

    memset(shapes, 0, sizeof shapes);
    memset(layers, 0, sizeof layers);
    memset(experts, 0, sizeof experts);
    memset(&model, 0, sizeof model);
    shapes[0].ffn = (struct ffn_shape){.experts = 3, .used = 2, .shared = 1};
    shapes[1].ffn = (struct ffn_shape){.kind = FFN_DENSE, .shared = 1};
    shapes[2].ffn = (struct ffn_shape){.experts = 2, .used = 1};
    shapes[2].mixer.kind = MIXER_NONE;
    model.hp = (struct hparams){.n_layers = LAYERS, .hidden = HIDDEN, .layers = shapes};
    model.layers = layers;
    hparams_count(&model.hp);
    model.head = (struct matrix){.bytes = 900, .rows = 9, .bias = value};
    model.output_norm = with_bias;
    for (int l = 0; l < LAYERS; l++) {
        layers[l].experts = experts[l];
        layers[l].attention_norm = layers[l].expert_norm = l ? without : with_bias;
        layers[l].router = shapes[l].ffn.experts ? value : NULL;
        for (int x = 0; x < shape_experts(&shapes[l]); x++) {
            experts[l][x].gate = experts[l][x].up = (struct matrix){.bytes = 10 + 10 * (size_t)x};
            experts[l][x].down = (struct matrix){.bytes = 5 + 10 * (size_t)l};
        }
    }
    experts[1][0].gate = (struct matrix){0}; /* relu(up) needs none */
    layers[0].q = layers[0].o = (struct matrix){.bytes = 300, .rows = 30};
    layers[0].k = layers[0].v = (struct matrix){.bytes = 100, .rows = 10, .bias = value};
    layers[1].q = layers[1].k = layers[1].v = layers[1].o = (struct matrix){.bytes = 50};
}

START_TEST(every_block_once_in_order)
{
    static const struct block_id want[] = {
        {BLOCK_ATTENTION, 0, 0}, {BLOCK_EXPERT, 0, 0},    {BLOCK_EXPERT, 0, 1},
        {BLOCK_EXPERT, 0, 2},    {BLOCK_EXPERT, 0, 3},    {BLOCK_ATTENTION, 1, 0},
        {BLOCK_EXPERT, 1, 0},    {BLOCK_ATTENTION, 2, 0}, {BLOCK_EXPERT, 2, 0},
        {BLOCK_EXPERT, 2, 1},    {BLOCK_HEAD, 0, 0}};
    int n = 0;

    ck_assert_int_eq(model.hp.n_experts, 4);
    for (struct block_id id = BLOCK_BEFORE; model_block_next(&model, &id); n++)
        ck_assert(id.kind == want[n].kind && id.layer == want[n].layer &&
                  id.expert == want[n].expert);
    ck_assert_int_eq(n, (int)(sizeof want / sizeof *want));
}
END_TEST

static void names(struct block_id id, const char *want)
{
    struct block_matrix list[BLOCK_MATRICES];
    char got[64] = "";

    for (int i = 0, n = model_block_matrices(&model, id, list); i < n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ",
                 matrix_part_name(list[i].part));
    ck_assert_str_eq(got, want);
}

START_TEST(absent_matrices_are_left_out)
{
    names((struct block_id){BLOCK_ATTENTION, 0, 0}, "q k v o ");
    names((struct block_id){BLOCK_ATTENTION, 2, 0}, "");
    names((struct block_id){BLOCK_EXPERT, 0, 3}, "gate up down ");
    names((struct block_id){BLOCK_EXPERT, 1, 0}, "up down ");
    names((struct block_id){BLOCK_EXPERT, 1, 1}, "");
    names((struct block_id){BLOCK_EXPERT, 2, 3}, "");
    names((struct block_id){BLOCK_HEAD, 0, 0}, "head ");
}
END_TEST

START_TEST(bytes_by_hand)
{
    struct block_bytes b = model_block_parts(&model, (struct block_id){BLOCK_ATTENTION, 0, 0});
    uint64_t largest[3];

    ck_assert_uint_eq(b.matrices, 800);
    ck_assert_uint_eq(b.biases, 2 * 10 * 4);
    ck_assert_uint_eq(b.norms, 4 * HIDDEN * 4);
    ck_assert_uint_eq(b.router, 3 * HIDDEN * 4); /* the shared expert has no row */
    ck_assert_uint_eq(model_block_bytes(&model, (struct block_id){BLOCK_ATTENTION, 0, 0}),
                      800 + 80 + 128 + 96);
    ck_assert_uint_eq(model_block_bytes(&model, (struct block_id){BLOCK_ATTENTION, 2, 0}),
                      2 * HIDDEN * 4 + 2 * HIDDEN * 4);
    ck_assert_uint_eq(model_block_bytes(&model, (struct block_id){BLOCK_EXPERT, 1, 0}), 25);
    ck_assert_uint_eq(model_block_bytes(&model, (struct block_id){BLOCK_EXPERT, 1, 1}), 0);
    ck_assert_uint_eq(model_block_bytes(&model, (struct block_id){BLOCK_HEAD, 0, 0}),
                      900 + 9 * 4 + 2 * HIDDEN * 4);
    /* 25, 45, 65 of which two are met; the shared one always */
    ck_assert_uint_eq(model_token_experts(&model, 0), (25 + 45 + 65) * 2 / 3 + 85);
    ck_assert_uint_eq(model_token_experts(&model, 1), 25);
    ck_assert_uint_eq(model_token_experts(&model, 2), (45 + 65) / 2);
    model_largest_expert(&model, largest);
    ck_assert(largest[0] == 40 && largest[1] == 40 && largest[2] == 25);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("block");
    TCase *t = tcase_create("block");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, every_block_once_in_order);
    tcase_add_test(t, absent_matrices_are_left_out);
    tcase_add_test(t, bytes_by_hand);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
