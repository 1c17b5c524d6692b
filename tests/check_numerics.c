/* The numeric contract itself: the approximations against libm, exact conversions over their whole
 * range, and the routing table. */
#include "engine/device/numerics.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* In units of the last place of a float near want. */
static double ulps(float got, double want)
{
    int e;

    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

START_TEST(test_recip)
{
    double worst = 0, worst_r = 0;

    for (uint32_t u = 0x04000000u; u < 0x7b000000u; u += 4999) {
        float x = num_float(u);
        double w = ulps(num_recip(x), 1.0 / (double)x),
               r = ulps(num_rsqrt(x), 1.0 / sqrt((double)x));

        worst = w > worst ? w : worst;
        worst_r = r > worst_r ? r : worst_r;
        ck_assert(num_recip(-x) == -num_recip(x));
    }
    ck_assert_msg(worst < 1.5, "reciprocal: %g units of the last place", worst);
    ck_assert_msg(worst_r < 2.5, "reciprocal root: %g", worst_r);
    ck_assert(num_recip(1.0f) == 1.0f);
}
END_TEST

START_TEST(test_exp)
{
    double worst = 0;

    for (double x = -87.0; x <= 88.0; x += 0.00037) {
        double w = ulps(num_exp((float)x), exp((double)(float)x));

        worst = w > worst ? w : worst;
    }
    ck_assert_msg(worst < 2.0, "exp: %g units of the last place", worst);
    ck_assert(num_exp(0.0f) == 1.0f && num_exp(-0.0f) == 1.0f);
    ck_assert(num_exp(-87.5f) == 0.0f && num_exp(-INFINITY) == 0.0f);
    ck_assert(num_exp(1000.0f) == num_exp(88.0f) && isfinite(num_exp(INFINITY)));
}
END_TEST

START_TEST(test_silu)
{
    for (double x = -30.0; x <= 30.0; x += 0.0011) {
        double want = (double)(float)x / (1.0 + exp(-(double)(float)x));

        ck_assert_msg(fabs((double)num_silu((float)x) - want) <=
                          4e-7 * (fabs(want) + 1e-30) + 1e-12,
                      "silu(%g)", x);
    }
    ck_assert(num_silu(0.0f) == 0.0f);
    ck_assert(isfinite(num_silu(-3e38f)) && num_silu(3e38f) == 3e38f);
}
END_TEST

/* The other functions of rule 8, against double. */
START_TEST(test_activations)
{
    for (double x = -30.0; x <= 30.0; x += 0.0011) {
        double v = (double)(float)x, inner = v + 0.044715 * v * v * v,
               gelu = v / (1.0 + exp(-2.0 * sqrt(2.0 / acos(-1.0)) * inner)), g = v < 7.0 ? v : 7.0,
               u = v < -7.0 ? -7.0 : g, swiglu = (u + 1.0) * g / (1.0 + exp(-1.702 * g));

        ck_assert_msg(fabs((double)num_gelu((float)x) - gelu) <= 2e-6 * fabs(gelu) + 1e-12,
                      "gelu(%g): %g", x, (double)num_gelu((float)x));
        ck_assert_msg(fabs((double)num_clamped_swiglu((float)x, (float)x, 7.0f) - swiglu) <=
                          2e-6 * fabs(swiglu) + 1e-9,
                      "clamped swiglu(%g)", x);
    }
    for (double x = -12.0; x < 12.0; x += 0.001) {
        double v = (double)(float)x, gelu = 0.5 * v * (1.0 + erf(v / sqrt(2.0)));

        ck_assert_msg(fabs((double)num_gelu_erf((float)x) - gelu) <= 3e-7 * fabs(v) + 1e-12,
                      "gelu by erf(%g): %g", x, (double)num_gelu_erf((float)x));
    }
    ck_assert(num_gelu_erf(0.0f) == 0.0f && num_gelu_erf(1e30f) == 1e30f);
    ck_assert(num_gelu(0.0f) == 0.0f && num_gelu(1e30f) == 1e30f && isfinite(num_gelu(-1e30f)));
    ck_assert(num_activate(ACTIVATION_RELU2, 5.0f, -2.0f, 0.0f) == 0.0f &&
              num_activate(ACTIVATION_RELU2, 5.0f, 3.0f, 0.0f) == 9.0f &&
              num_activate(ACTIVATION_RELU, 5.0f, 3.0f, 0.0f) == 3.0f);
}
END_TEST

START_TEST(test_halves)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = num_from_f16((uint16_t)i);
        int e = (int)(i >> 10 & 31), m = (int)(i & 1023);
        double want = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

        if (i & 0x8000)
            want = -want;
        if (want != want) {
            ck_assert(x != x);
            continue;
        }
        ck_assert((double)x == want);
        ck_assert_int_eq(num_to_f16(x), (int)i);
        /* between two halves: the nearer, ties to even */
        if (e < 31 && !(i & 0x8000)) {
            double next = e == 30 && m == 1023 ? 65536.0 : (double)num_from_f16((uint16_t)(i + 1)),
                   middle = (want + next) / 2;

            ck_assert_int_eq(num_to_f16((float)middle), (int)(i & 1 ? i + 1 : i));
            ck_assert_int_eq(num_to_f16(nextafterf((float)middle, 0.0f)), (int)i);
            ck_assert_int_eq(num_to_f16(nextafterf((float)middle, INFINITY)), (int)i + 1);
        }
        x = num_from_bf16((uint16_t)i);
        ck_assert(x != x || num_to_bf16(x) == (uint16_t)i);
    }
    ck_assert_int_eq(num_to_bf16(num_float(0x3f808000u)), 0x3f80);
    ck_assert_int_eq(num_to_bf16(num_float(0x3f818000u)), 0x3f82);
    ck_assert_int_eq(num_to_bf16(num_float(0x3f808001u)), 0x3f81);
}
END_TEST

START_TEST(test_quantise)
{
    float x[32];
    int8_t q[32];
    int32_t sum;

    for (int round = 0; round < 3000; round++) {
        float amax = 0.0f, d;
        int total = 0;

        for (int i = 0; i < 32; i++) {
            x[i] = (float)((rand() % 20001) - 10000) * powf(10.0f, (float)(round % 20 - 12));
            amax = fmaxf(amax, fabsf(x[i]));
        }
        d = num_quantise_block(x, q, &sum);
        for (int i = 0; i < 32; i++) {
            ck_assert_int_le(abs(q[i]), 127);
            total += q[i];
            if (d > 0)
                ck_assert_msg(fabs((double)q[i] * (double)d - (double)x[i]) <= (double)d * 0.5001,
                              "%g becomes %g", (double)x[i], (double)q[i] * (double)d);
        }
        ck_assert_int_eq(total, sum);
        if (amax > 1e-15f)
            ck_assert(fabsf(d * 127.0f - amax) <= amax * 1e-6f);
    }
    for (int i = 0; i < 32; i++)
        x[i] = i ? NAN : INFINITY;
    ck_assert(num_quantise_block(x, q, &sum) == 0.0f && sum == 0);
    x[0] = 2.0f;
    ck_assert(num_quantise_block(x, q, &sum) > 0.0f && sum == 127);
}
END_TEST

START_TEST(test_dot_and_fold)
{
    float a[10], b[10], lanes[16];

    for (int i = 0; i < 10; i++) {
        a[i] = (float)(i + 1);
        b[i] = (float)(1 << i);
    }
    ck_assert(num_dot(a, b, 10) == 9217.0f);
    ck_assert(num_dot(a, b, 1) == 1.0f && num_dot(a, b, 0) == 0.0f);
    for (int i = 0; i < 16; i++)
        lanes[i] = i == 3 ? 1e8f : i == 11 ? -1e8f : 1.0f; /* lane 3 meets lane 11 first */
    ck_assert(num_fold(lanes) == 14.0f);
}
END_TEST

/* The table computed with the model's official code. */
START_TEST(test_router_table)
{
    json_error_t error;
    json_t *root = json_load_file(support_path("golden/phimoe/router.json"), 0, &error),
           *cases = json_is_array(root) ? root : json_object_get(root, "cases"), *c;
    size_t i;

    ck_assert_msg(json_is_array(cases) && json_array_size(cases) > 0, "router.json: %s",
                  error.text);
    json_array_foreach(cases, i, c)
    {
        json_t *s = json_object_get(c, "scores"), *experts = json_object_get(c, "experts"),
               *weights = json_object_get(c, "weights");
        float scores[512], got[8];
        int n = (int)json_array_size(s), k = (int)json_array_size(experts), chosen[8];

        ck_assert(n > 0 && n <= 512 && k > 0 && k <= 8);
        for (int j = 0; j < n; j++)
            scores[j] = (float)json_number_value(json_array_get(s, (size_t)j));
        num_sparsemixer(scores, NULL, n, (float)json_number_value(json_object_get(c, "jitter")), k,
                        chosen, got);
        for (int j = 0; j < k; j++) {
            ck_assert_msg(chosen[j] == json_integer_value(json_array_get(experts, (size_t)j)),
                          "case %zu: expert %d", i, j);
            ck_assert_msg(fabs((double)got[j] -
                               json_number_value(json_array_get(weights, (size_t)j))) < 1e-6,
                          "case %zu: weight %d is %g", i, j, (double)got[j]);
        }
    }
    json_decref(root);
}
END_TEST

/* Routers by hand. */
START_TEST(test_route)
{
    const float scores[] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 0.5f}, bias[] = {0, 0, 0, -1, 0, 1};
    struct router_shape r = {.kind = ROUTER_SOFTMAX};
    double sum = 0.0;
    int x[3];
    float w[3];

    for (int i = 0; i < 6; i++)
        sum += exp(scores[i] - 2.0);
    num_route(&r, scores, NULL, 6, 3, x, w);
    ck_assert(x[0] == 1 && x[1] == 3 && x[2] == 2); /* ties: the lower index */
    ck_assert(fabs(w[0] - 1.0 / sum) < 1e-6 && fabs(w[2] - exp(-1.0) / sum) < 1e-6);
    r.normalised = true;
    r.factor = 2.5f;
    num_route(&r, scores, NULL, 6, 2, x, w);
    ck_assert(fabsf(w[0] - 1.25f) < 1e-6f && fabsf(w[1] - 1.25f) < 1e-6f);
    r = (struct router_shape){.kind = ROUTER_SIGMOID, .choice_bias = true};
    num_route(&r, scores, bias, 6, 2, x, w);
    ck_assert(x[0] == 5 && x[1] == 1);                      /* the bias chooses ... */
    ck_assert(fabs(w[0] - 1.0 / (1.0 + exp(-0.5))) < 1e-6); /* ... and does not weigh */
    /* groups of two: by the sum of two, biased; by the largest, unbiased */
    r.groups = 3;
    r.groups_used = 1;
    num_route(&r, scores, bias, 6, 2, x, w);
    ck_assert(x[0] == 5 && x[1] == 4);
    r = (struct router_shape){.kind = ROUTER_SOFTMAX, .groups = 3, .groups_used = 2};
    num_route(&r, scores, NULL, 6, 3, x, w);
    ck_assert(x[0] == 1 && x[1] == 3 && x[2] == 2);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("numerics");
    TCase *t = tcase_create("numerics");

    tcase_add_test(t, test_recip);
    tcase_add_test(t, test_exp);
    tcase_add_test(t, test_silu);
    tcase_add_test(t, test_activations);
    tcase_add_test(t, test_halves);
    tcase_add_test(t, test_quantise);
    tcase_add_test(t, test_dot_and_fold);
    tcase_add_test(t, test_router_table);
    tcase_add_test(t, test_route);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
