/* What a token must read, by hand; the memory's speed is measured and plausible. */
#include "engine/base/membw.h"
#include "engine/base/mem.h"
#include "engine/run/report/roofline.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct expert_weights experts[2][4];
static struct layer_weights layers[2];

static struct model make_model(void)
{
    static const float value[1];
    const struct norm_weights norm = {value, value};
    struct model m = {.layers = layers,
                      .hp = {.n_layers = 2,
                             .common.ffn.experts = 4,
                             .common.ffn.used = 2,
                             .hidden = 10,
                             .common.mixer.kv_heads = 1,
                             .common.mixer.key_dim = 32}};

    hparams_count(&m.hp);
    m.head = (struct matrix){.bytes = 5000, .rows = 50, .cols = 10};
    m.output_norm = norm;
    for (int l = 0; l < 2; l++) {
        layers[l].q = layers[l].o = (struct matrix){.bytes = 300, .rows = 30, .cols = 10};
        layers[l].k = layers[l].v = (struct matrix){.bytes = 100, .rows = 10, .cols = 10};
        layers[l].attention_norm = layers[l].expert_norm = norm;
        layers[l].router = value;
        layers[l].experts = experts[l];
        for (int x = 0; x < 4; x++)
            experts[l][x].gate = experts[l][x].up = experts[l][x].down =
                (struct matrix){.bytes = 70, .rows = 7, .cols = 10};
    }
    return m;
}

/* 1 of 3 experts of heads: a third of the queries and of the outputs. */
START_TEST(heads_that_are_routed_count_as_used)
{
    struct model m = make_model();
    struct roofline r;

    m.hp.common.mixer.heads = m.hp.common.mixer.experts = 3;
    m.hp.common.mixer.used = 1;
    roofline_init(&r, &m, KV_F16, KV_F32);
    ck_assert_uint_eq(r.attention, 2 * (2 * 100 + 2 * 100));
    ck_assert_uint_eq(r.all_weights, 1600 + 2 * 4 * 210 + 5080 + 640);
}
END_TEST

START_TEST(bytes_by_hand)
{
    struct model m = make_model();
    struct roofline r;
    char text[64];

    roofline_init(&r, &m, KV_F16, KV_F32);
    ck_assert_uint_eq(r.attention, 2 * 800);
    ck_assert_uint_eq(r.experts, 2 * 2 * 210);
    ck_assert_uint_eq(r.head, 5000 + 80);
    ck_assert_uint_eq(r.router_norms, 2 * (4 * 10 * 4 + 2 * 80));
    ck_assert_uint_eq(roofline_state_bytes(&r, 1, 1), 2 * (32 * 2 + 32 * 4));
    ck_assert_uint_eq(r.all_weights, 1600 + 2 * 4 * 210 + 5080 + 640);
    ck_assert_uint_eq(roofline_token_bytes(&r, 0), 1600 + 840 + 5080 + 640);
    ck_assert_uint_eq(roofline_token_bytes(&r, 10), 8160 + 3840);
    {
        /* layer 0: experts 1, 2 and 3 of three rows; layer 1: only 0 and 3 */
        static const int chosen[] = {1, 2, 2, 3, 1, 3, 0, 3, 3, 0, 0, 3};

        ck_assert_uint_eq(roofline_rows_bytes(&r, &m, chosen, 3, 7), 1600 + 640 + 5 * 210 + 3840);
    }
    ck_assert(fabs(r.operations - 2 * (500 + 2 * (600 + 200 + 40) + 2 * 2 * 210)) < 1e-9);
    ck_assert(fabs(roofline_tokens_per_second(&r, 10, 24000) - 2) < 1e-12);
    ck_assert_str_eq(roofline_text(&r, 10, 1.24, 0, 24000, false, text, sizeof text),
                     "62 % of memory speed");
    ck_assert_str_eq(roofline_text(&r, 10, 1.24, 0, 24000, true, text, sizeof text), "in cache");
    ck_assert_str_eq(roofline_text(&r, 10, 1e6, 77e9, 46.4e9, false, text, sizeof text),
                     "memory swung 46-77 GB/s");
    ck_assert_str_eq(roofline_text(&r, 10, 1.24, 24000 * 1.2, 24000, false, text, sizeof text),
                     "62 % of memory speed");
    ck_assert_str_eq(roofline_text(&r, 10, 2.2, 0, 24000, false, text, sizeof text),
                     "110 % of memory speed");
    ck_assert_str_eq(roofline_text(&r, 10, 5.34, 0, 24000, false, text, sizeof text),
                     "faster than memory"); /* 267 % says nothing to anybody */
    ck_assert_str_eq(roofline_text(&r, 10, 1.24, 0, 0, false, text, sizeof text), "");
    m.hp.common.mixer.window = 4;
    ck_assert_uint_eq(roofline_token_bytes(&r, 10), 8160 + 4 * 384);
    {
        /* layers that differ: a window, none, a recurrence */
        struct layer_shape unlike[2] = {m.hp.common, m.hp.common};

        m.hp.layers = unlike;
        unlike[1].mixer.window = 0;
        unlike[1].mixer.value_dim = 64;
        ck_assert_uint_eq(roofline_state_bytes(&r, 10, 1), 4 * 192 + 10 * (64 + 256));
        ck_assert_uint_eq(roofline_state_bytes(&r, 10, 3), 6 * 192 + 10 * (64 + 256));
        unlike[1].mixer = (struct mixer_shape){
            .kind = MIXER_SHORT_CONVOLUTION, .heads = 1, .value_dim = 10, .taps = 3};
        ck_assert_uint_eq(roofline_state_bytes(&r, 10, 1), 4 * 192 + 2 * 10 * 4);
    }
}
END_TEST

START_TEST(memory_speed_is_a_number)
{
    double one = membw_read(NULL, 0, 1, 60);

    ck_assert_msg(one > 0 && isfinite(one), "%g bytes a second", one);
}
END_TEST

START_TEST(given_memory_is_read_and_too_little_is_refused)
{
    size_t n = (size_t)4 * membw_cache_bytes() > (size_t)64 << 20 ? (size_t)4 * membw_cache_bytes()
                                                                  : (size_t)64 << 20;
    char *p, small[256] = {0};

    ck_assert(membw_read(small, sizeof small, 1, 5) == 0);
    ck_assert(membw_read(small, 3, 1, 5) == 0);
    n = n > (size_t)1 << 30 ? (size_t)1 << 30 : n;
    p = mem_pages(n + 100);
    ck_assert_ptr_nonnull(p);
    memset(p, 3, n + 100);
    ck_assert(membw_read(p + 7, n, 2, 30) > 0);
    mem_pages_free(p, n + 100);
}
END_TEST

/* What the processor says of its cache is where measuring begins, not what is told. */
START_TEST(in_cache_is_measured)
{
    ck_assert(!membw_cached(0, 1));
    ck_assert(!membw_cached(membw_cache_bytes() + 1, 1));
    ck_assert(membw_faster(30e9, 11e9) && !membw_faster(12e9, 11e9) && !membw_faster(30e9, 0));
    mem_fail_after(0);
    ck_assert(!membw_cached(1 << 20, 1));
    mem_fail_after(-1);
    printf("8 MiB in the cache: %d\n", membw_cached(8 << 20, 1));
}
END_TEST

static uint64_t little(void)
{
    return (uint64_t)100 << 20;
}

static uint64_t some(void)
{
    return (uint64_t)160 << 20;
}

static uint64_t plenty(void)
{
    return (uint64_t)1 << 40;
}

/* A control group leaves less than the machine has: who takes more is killed. */
START_TEST(the_meter_leaves_what_others_need)
{
    membw_limit(little);
    ck_assert(membw_read(NULL, 0, 1, 5) == 0);
    ck_assert(!membw_cached(1 << 20, 1));
    ck_assert_uint_eq(membw_held().most, 0);
    membw_limit(some);
    ck_assert(membw_read(NULL, 0, 1, 5) > 0);
    ck_assert_uint_eq(membw_held().most, (uint64_t)64 << 20);
    /* files in memory leave few pages free; the buffer is four caches all the same */
    membw_limit(plenty);
    ck_assert_uint_eq(membw_far_bytes(),
                      4 * membw_cache_bytes() > (uint64_t)1 << 30    ? (uint64_t)1 << 30
                      : 4 * membw_cache_bytes() < (uint64_t)64 << 20 ? (uint64_t)64 << 20
                                                                     : 4 * membw_cache_bytes());
    membw_limit(NULL);
}
END_TEST

/* Who types while it is measured does not wait for it. */
START_TEST(the_meter_stops_when_told)
{
    atomic_bool stop = false;
    size_t far = (size_t)4 * membw_cache_bytes();

    ck_assert(membw_read_until(1, 5, &stop) > 0);
    atomic_store(&stop, true);
    ck_assert(membw_read_until(1, 60000, &stop) == 0);
    ck_assert(!membw_cached_until(far > (size_t)8 << 20 ? 1 << 20 : 1, 1, &stop));
    ck_assert_uint_eq(membw_held().now, 0);
}
END_TEST

START_TEST(no_memory_is_no_figure)
{
    mem_fail_after(0);
    ck_assert(membw_read(NULL, 0, 1, 5) == 0);
    mem_fail_after(-1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("roofline");
    TCase *t = tcase_create("roofline");

    tcase_add_test(t, heads_that_are_routed_count_as_used);
    tcase_add_test(t, bytes_by_hand);
    tcase_add_test(t, memory_speed_is_a_number);
    tcase_add_test(t, given_memory_is_read_and_too_little_is_refused);
    tcase_add_test(t, the_meter_leaves_what_others_need);
    tcase_add_test(t, the_meter_stops_when_told);
    tcase_add_test(t, no_memory_is_no_figure);
    tcase_add_test(t, in_cache_is_measured);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
