/* What --perplexity and --kl-divergence compute with: packed rows, sums, the file of base logits.
 */
#include "app/quality/base_file.h"
#include "app/quality/log_probs.h"
#include "app/quality/score.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 1001, CONTEXT = 9, CHUNKS = 2 };

static float logits[N];

static void draw(unsigned seed)
{
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 8) / (float)(1 << 24) * 12.0f - 6.0f;
    }
}

/* Against sums in long double. */
static double surprise_of(int id)
{
    long double sum = 0.0L;

    for (int i = 0; i < N; i++)
        sum += expl((long double)logits[i]);
    return (double)(logl(sum) - (long double)logits[id]);
}

START_TEST(surprise_is_minus_log_p)
{
    for (unsigned seed = 0; seed < 5; seed++) {
        draw(seed);
        ck_assert_double_eq_tol(log_probs_surprise(logits, N, 17), surprise_of(17), 1e-10);
    }
    for (int i = 0; i < N; i++)
        logits[i] = 1e30f; /* no overflow */
    ck_assert_double_eq_tol(log_probs_surprise(logits, N, 3), log((double)N), 1e-9);
}
END_TEST

/* The layout is llama.cpp's: step, least, then 16 bits each; the depth is 16. */
START_TEST(packed_rows_hold_log_probabilities)
{
    uint8_t *row = malloc(log_probs_packed_bytes(N));
    float head[2];
    uint16_t code;

    ck_assert_uint_eq(log_probs_packed_bytes(N), 8 + 2 * 1002);
    draw(7);
    logits[5] = -100.0f; /* deeper than the format goes */
    log_probs_pack(logits, N, row);
    memcpy(head, row, sizeof head);
    for (int i = 0; i < N; i++) {
        memcpy(&code, row + 8 + 2 * i, 2);
        if (i != 5)
            ck_assert_double_eq_tol((double)(head[0] * (float)code + head[1]), -surprise_of(i),
                                    0.51 * 16.0 / 65535.0 + 1e-5);
        else
            ck_assert_uint_eq(code, 0);
    }
    memcpy(&code, row + 8 + 2 * N, 2);
    ck_assert_uint_eq(code, 0); /* padding */
    free(row);
}
END_TEST

START_TEST(divergence_of_a_row)
{
    uint8_t *row = malloc(log_probs_packed_bytes(N));
    struct divergence_sums s = {0};
    static float base[N];
    double expected = 0.0;
    float kl, diff;

    draw(3);
    log_probs_pack(logits, N, row);
    divergence_add(&s, logits, row, N, 11, &kl, &diff);
    ck_assert(fabsf(kl) < 1e-4f && fabsf(diff) < 1e-4f && s.same_top == 1 && s.count == 1);
    for (int i = 0; i < N; i++)
        base[i] = (float)-surprise_of(i);
    for (int i = 0; i < N; i++)
        logits[i] = i == 40 ? 9.0f : 0.5f * logits[i];
    for (int i = 0; i < N; i++)
        expected += exp((double)base[i]) * ((double)base[i] + surprise_of(i));
    divergence_add(&s, logits, row, N, 40, &kl, &diff);
    ck_assert_double_eq_tol((double)kl, expected, 1e-4);
    ck_assert(diff > 0.1f && s.same_top == 1 && s.count == 2);
    ck_assert_double_eq_tol(estimate_mean(s.kl, s.kl2, 2).value, (double)kl / 2.0, 1e-4);
    free(row);
}
END_TEST

/* Without the file's rounding: equal logits diverge by nothing, others by the definition. */
START_TEST(divergence_of_whole_logits)
{
    struct divergence_sums s = {0};
    static float base[N];
    double expected = 0.0;
    float kl, diff;

    draw(3);
    memcpy(base, logits, sizeof base);
    divergence_add_logits(&s, logits, base, N, 11, &kl, &diff);
    ck_assert(fabsf(kl) < 1e-12f && diff == 0.0f && s.same_top == 1 && s.count == 1);
    for (int i = 0; i < N; i++)
        base[i] = (float)-surprise_of(i);
    for (int i = 0; i < N; i++)
        logits[i] = i == 40 ? 9.0f : 0.5f * logits[i];
    for (int i = 0; i < N; i++)
        expected += exp((double)base[i]) * ((double)base[i] + surprise_of(i));
    divergence_add_logits(&s, logits, base, N, 40, &kl, &diff);
    ck_assert_double_eq_tol((double)kl, expected, 1e-5);
    ck_assert(diff > 0.1f && s.same_top == 1 && s.count == 2);
    ck_assert_double_eq(divergence_same_top(&s).value, 0.5);
}
END_TEST

START_TEST(figures_of_samples)
{
    static const double x[] = {1.0, 2.0, 4.0, 5.0};
    static const float sorted[] = {0.0f, 1.0f, 2.0f, 3.0f, 10.0f};
    double sum = 0.0, squares = 0.0;
    struct estimate e;

    for (int i = 0; i < 4; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    e = estimate_mean(sum, squares, 4);
    ck_assert_double_eq(e.value, 3.0);
    ck_assert_double_eq_tol(e.error, sqrt(2.5 / 3.0), 1e-12);
    ck_assert_double_eq_tol(estimate_exp(e).error, exp(3.0) * e.error, 1e-9);
    ck_assert(percentile(sorted, 5, 0.5) == 2.0f && percentile(sorted, 5, 1.0) == 10.0f);
    ck_assert_double_eq_tol((double)percentile(sorted, 5, 0.9), 7.2, 1e-6);
}
END_TEST

static char path[600];

static void write_base(struct base_file *f)
{
    int ids[CHUNKS * CONTEXT];
    struct error e = {0};

    for (int i = 0; i < CHUNKS * CONTEXT; i++)
        ids[i] = i;
    snprintf(path, sizeof path, "%s/base", support_tmpdir());
    ck_assert_msg(base_file_create(f, path, CONTEXT, N, ids, CHUNKS, &e) == 0, "%s", e.text);
    for (int i = 0; i < CHUNKS * base_file_rows(CONTEXT); i++) {
        draw((unsigned)i);
        ck_assert_int_eq(base_file_write(f, logits, &e), 0);
    }
}

START_TEST(base_files_come_back)
{
    struct base_file f;
    struct error e = {0};
    uint8_t *row = malloc(log_probs_packed_bytes(N));

    write_base(&f);
    ck_assert_int_ne(access(path, F_OK), 0); /* no name before it is whole */
    ck_assert_int_eq(base_file_finish(&f, &e), 0);
    base_file_close(&f);
    ck_assert_msg(base_file_open(&f, path, N, &e) == 0, "%s", e.text);
    ck_assert(f.context == CONTEXT && f.chunks == CHUNKS && f.ids[17] == 17);
    for (int i = 0; i < CHUNKS * base_file_rows(CONTEXT); i++) {
        draw((unsigned)i);
        log_probs_pack(logits, N, row);
        ck_assert_int_eq(base_file_read(&f, &e), 0);
        ck_assert_int_eq(memcmp(row, f.row, log_probs_packed_bytes(N)), 0);
    }
    base_file_close(&f);
    ck_assert_int_eq(base_file_open(&f, path, N + 1, &e), ERR_INPUT);
    ck_assert_msg(strstr(e.text, "1001 tokens"), "%s", e.text);
    base_file_close(&f);
    write_base(&f); /* not finished: the old one stays, nothing else is left */
    base_file_close(&f);
    ck_assert_int_eq(base_file_open(&f, path, N, &e), 0);
    base_file_close(&f);
    free(row);
}
END_TEST

/* Every number of the head changed, and every length cut: one line, nothing read past the end. */
START_TEST(damaged_base_files_are_refused)
{
    struct base_file f;
    struct error e = {0};
    static uint8_t whole[64 << 10];
    size_t n;
    FILE *file;

    write_base(&f);
    ck_assert_int_eq(base_file_finish(&f, &e), 0);
    base_file_close(&f);
    file = fopen(path, "rb");
    n = fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (size_t at = 0; at < 20 + sizeof(int) * CHUNKS * CONTEXT; at += 3) {
        whole[at] ^= 0x85;
        file = fopen(path, "wb");
        ck_assert_uint_eq(fwrite(whole, 1, n, file), n);
        fclose(file);
        ck_assert_msg(base_file_open(&f, path, N, &e) == ERR_INPUT ||
                          (at >= 20 && at % 4 == 0 && f.ids[(at - 20) / 4] < N),
                      "byte %zu", at);
        base_file_close(&f);
        whole[at] ^= 0x85;
    }
    for (size_t cut = 0; cut < n; cut += 977) {
        file = fopen(path, "wb");
        ck_assert_uint_eq(fwrite(whole, 1, cut, file), cut);
        fclose(file);
        ck_assert_int_eq(base_file_open(&f, path, N, &e), ERR_INPUT);
        base_file_close(&f);
    }
}
END_TEST

static int count_row(void *ctx, int at, const float *row, struct error *e)
{
    (void)row;
    (void)e;
    *(int *)ctx += at;
    return 0;
}

/* The last id is computed with by nobody, but its logit is looked up. */
START_TEST(ids_beyond_the_vocabulary_are_refused)
{
    struct engine_config c = {.context = 64, .n_threads = 1, .convert = -1};
    int ids[] = {1, 5, 9, 7}, sum = 0;
    struct engine *g = NULL;
    struct error e = {0};
    double nll;

    c.model_path = support_path("../configs/models/tiny-storyteller-Q8_0.gguf");
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(score_text(g, ids, 4, 0, count_row, &sum, &e) == 0, "%s", e.text);
    ck_assert_int_eq(sum, 0 + 1 + 2);
    ids[3] = engine_info(g)->model->hp.n_vocab;
    ck_assert_int_eq(score_surprise(g, ids, 4, 0, &nll, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "tokenizer"), "%s", e.text);
    ids[3] = -1;
    ck_assert_int_eq(score_text(g, ids, 4, 0, count_row, &sum, &e), ERR_MODEL);
    ck_assert_int_eq(sum, 0 + 1 + 2);
    engine_close(g);
}
END_TEST

/* JSON has no infinity: neither a file nor a wrong reason. */
START_TEST(infinite_figures_are_named)
{
    struct options o = {.quality_json = "/nonexistent/q.json"};
    struct error e = {0};

    ck_assert_int_eq(score_report(&o, NULL, json_pack("{s:f}", "perplexity", HUGE_VAL), &e),
                     ERR_VALUE);
    ck_assert_msg(strstr(e.text, "q.json") && strstr(e.text, "infinite"), "%s", e.text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("quality");
    TCase *t = tcase_create("quality");

    tcase_add_test(t, surprise_is_minus_log_p);
    tcase_add_test(t, packed_rows_hold_log_probabilities);
    tcase_add_test(t, divergence_of_a_row);
    tcase_add_test(t, divergence_of_whole_logits);
    tcase_add_test(t, figures_of_samples);
    tcase_add_test(t, base_files_come_back);
    tcase_add_test(t, damaged_base_files_are_refused);
    tcase_add_test(t, ids_beyond_the_vocabulary_are_refused);
    tcase_add_test(t, infinite_figures_are_named);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
