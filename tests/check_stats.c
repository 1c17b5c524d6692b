/* app/stats: the figures against a recount, the definition of the rates, and what the
 * interpretation says. */
#include "app/stats/run_stats.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/device/cpu/kernels/patterns.h"
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

static struct error e;
static struct stats s;

static void setup(void)
{
    e = (struct error){0};
    ck_assert_int_eq(stats_open(&s, NULL, &e), 0);
}

static void teardown(void)
{
    stats_release(&s);
}

/* Decode rate = tokens after the first / time from first to last, over all turns; one-token turns
 * say nothing of it. */
START_TEST(rates_follow_their_definition)
{
    struct turn_done_event a = {.reason = STOP_LENGTH,
                                .prompt_tokens = 30,
                                .cached_tokens = 10,
                                .recomputed_tokens = 4,
                                .completion_tokens = 11,
                                .ttft_ns = 5000000,
                                .prefill_ns = 100000000,
                                .decode_ns = 1000000000,
                                .total_ns = 1100000000};
    struct turn_done_event b = {.reason = STOP_TOKEN,
                                .prompt_tokens = 5,
                                .completion_tokens = 1,
                                .ttft_ns = 7000000,
                                .prefill_ns = 10000000,
                                .total_ns = 10000000};

    stats_add_turn(&s, &a);
    ck_assert_double_eq_tol(stats_decode_rate(&s), 10, 1e-9);
    ck_assert_double_eq_tol(stats_prefill_rate(&s), 200, 1e-9);
    stats_add_turn(&s, &b);
    ck_assert_double_eq_tol(stats_decode_rate(&s), 10, 1e-9);
    ck_assert_double_eq_tol(stats_prefill_rate(&s), 25 / 0.11, 1e-6);
    ck_assert_uint_eq(s.generated_tokens, 12);
    ck_assert_uint_eq(s.prompt_tokens, 35);
    ck_assert_uint_eq(s.recomputed_tokens, 4);
    ck_assert_uint_eq(s.ttft_ns, 7000000);
}
END_TEST

/* Drafts are told of where some were made, and why there are none where they were wanted. */
START_TEST(drafts_are_told)
{
    static const char *const says[] = {"75 of 100 accepted (75 %, by lookup), in 25 of 50 passes: "
                                       "2.50 tokens a pass, +60 % of late",
                                       "off: because",
                                       "none: weights were still brought into place in 9 of 10 "
                                       "passes",
                                       "none: nothing that was said before went on alike"};
    char *text;
    size_t n;

    for (int i = 0; i < 5; i++) {
        FILE *f = open_memstream(&text, &n);

        s.speculation = (struct speculation_figures){.wanted = i > 0};
        if (i == 1)
            s.speculation = (struct speculation_figures){.wanted = true,
                                                         .passes = 50,
                                                         .passes_drafted = 25,
                                                         .drafted = 100,
                                                         .accepted = 75,
                                                         .gain = 0.6,
                                                         .from = "lookup"};
        if (i == 2)
            strcpy(s.speculation.why, "off: because");
        if (i > 2) {
            s.speculation.passes = 10;
            s.speculation.passes_early = i == 3 ? 9 : 0;
        }
        if (i == 3)
            strcpy(s.speculation.why, "off: because");
        stats_print(&s, f);
        fclose(f);
        for (int k = 0; k < 4; k++)
            ck_assert_int_eq(strstr(text, says[k]) != NULL, i == k + 1);
        free(text);
    }
}
END_TEST

START_TEST(nothing_done_is_not_a_rate_of_zero)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    stats_take(&s, NULL, NULL);
    stats_print(&s, f);
    fclose(f);
    ck_assert(strstr(text, "not available"));
    ck_assert(!strstr(text, "inf") && !strstr(text, "nan"));
    ck_assert(strstr(text, "Too short"));
    free(text);
}
END_TEST

/* What bounds the speed, from cases where it is plain. */
static const struct {
    uint64_t active, weights;
    bool in_cache, disturbed;
    double bandwidth;
    double cpu_s, delay_s, others_s; /* in a second of computing with 2 threads on 2 cores */
    const char *says;
} cases[] = {
    /* 30 tokens/s x 0.63 GB = 18.9 of 20 GB/s */
    {600ull << 20, 2ull << 30, false, false, 20e9, 2, 0, 0, "Memory-bound"},
    /* the same on a faster memory */
    {600ull << 20, 2ull << 30, false, false, 80e9, 2, 0, 0, "Compute-bound"},
    {4 << 20, 16 << 20, true, false, 0, 2, 0, 0, "stays in the processor's cache (measured)"},
    {600ull << 20, 2ull << 30, false, false, 0, 2, 0, 0, "was not measured"},
    {600ull << 20, 2ull << 30, false, true, 20e9, 2, 0, 0, "beside other programs"},
    /* no processor: one cause, one answer, whatever the memory does */
    {600ull << 20, 2ull << 30, false, true, 20e9, 0.65, 1.2, 1.3,
     "Starved: other processes used 1.3 of the 2 cores"},
    {600ull << 20, 2ull << 30, false, true, 80e9, 0.65, 1.2, 1.3,
     "Starved: other processes used 1.3 of the 2 cores"},
    {4 << 20, 16 << 20, true, false, 0, 0.65, 1.2, 1.3, "waited 60 % of the time for a processor"},
    /* a kernel that does not tell delays */
    {600ull << 20, 2ull << 30, false, true, 80e9, 0.65, 0, 1.3, "Starved"},
    {600ull << 20, 2ull << 30, false, false, 80e9, 1, 0.9, 0.05, "a limit of the container"},
};

START_TEST(interpretation)
{
    char text[512];

    s.later_tokens = 30;
    s.decode_ns = 1000000000;
    s.n_threads = 2;
    s.last->n_cores = 2;
    s.load = (struct machine_load){.repetitions = 1,
                                   .n_cores = 2,
                                   .seconds = 1,
                                   .cpu_s = cases[_i].cpu_s,
                                   .delay_s = cases[_i].delay_s,
                                   .others_s = cases[_i].others_s};
    s.active_bytes = cases[_i].active;
    s.weights_packed = cases[_i].weights;
    s.in_cache = cases[_i].in_cache;
    s.bandwidth_disturbed = cases[_i].disturbed;
    s.bandwidth = cases[_i].bandwidth;
    s.last->memory_total = 16ull << 30;
    s.last->memory_available = 8ull << 30;
    s.last->process_swap = 0;
    stats_interpret(&s, text, sizeof text);
    ck_assert_msg(strstr(text, cases[_i].says), "%s", text);
    ck_assert_msg(strstr(text, "No risk of swapping"), "%s", text);
    s.last->memory_available = 1ull << 30;
    stats_interpret(&s, text, sizeof text);
    ck_assert_msg(strstr(text, "swapping is near"), "%s", text);
    s.last->process_swap = 1 << 20;
    stats_interpret(&s, text, sizeof text);
    ck_assert_msg(strstr(text, "in swap"), "%s", text);
}
END_TEST

START_TEST(who_waits_for_the_disk_is_told_so)
{
    char text[512];

    s.later_tokens = 30;
    s.decode_ns = 1000000000;
    s.active_bytes = 600ull << 20;
    s.bandwidth = 20e9;
    s.paged = (struct expert_cache_stats){.slots = 4,
                                          .experts = 9,
                                          .hits = 30,
                                          .misses = 70,
                                          .read_bytes = 1000000000,
                                          .read_ns = 2000000000,
                                          .wait_ns = 600000000};
    stats_interpret(&s, text, sizeof text);
    ck_assert_msg(strstr(text, "Disk-bound: computing waited 60 %"), "%s", text);
    ck_assert_msg(strstr(text, "500 MB/s; 30 % of"), "%s", text);
    s.paged.wait_ns = 100000000;
    stats_interpret(&s, text, sizeof text);
    ck_assert_msg(strstr(text, "Memory-bound"), "%s", text);
}
END_TEST

static int count_tokens(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_TOKEN && ev->token.id >= 0)
        ++*(int *)ctx;
    return 0;
}

static json_t *at(json_t *root, const char *path)
{
    json_t *v = (json_t *)json_walk(root, path);

    ck_assert_msg(v != NULL, "%s is missing", path);
    return v;
}

/* A real answer: tokens recounted, experts summed, the JSON agreeing with both. */
START_TEST(figures_of_a_real_answer)
{
    static char model[4096];
    struct engine_config c = {
        .model_path = model, .convert = -1, .n_threads = 1, .kv_k = KV_F16, .kv_v = KV_F16};
    struct message message = {.role = ROLE_USER, .text = "Tell me a story about a brave fox."};
    struct dialogue said = {.messages = &message, .n_messages = 1};
    struct turn t = {
        .max_tokens = 40, .ignore_eos = true, .sampling = {.top_p = 1, .repeat_penalty = 1}};
    struct turn_done_event done;
    struct engine *g;
    char path[256], block[65536];
    int tokens = 0;
    json_t *root;
    FILE *f;
    size_t n;

    snprintf(model, sizeof model, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    stats_begin_turn(&s);
    ck_assert_msg(prompt_turn(g, NULL, &said, &t, count_tokens, &tokens, &done, &e) == 0, "%s",
                  e.text);
    stats_add_turn(&s, &done);
    ck_assert_double_gt(s.load.seconds, 0);
    ck_assert_double_gt(s.load.cpu_s, 0);
    stats_take(&s, engine_info(g), engine_telemetry(g));
    ck_assert_int_eq(tokens, 40);
    ck_assert_uint_eq(s.generated_tokens, 40);
    ck_assert_str_eq(s.type, "q8_0");
    ck_assert_int_ge(pattern_from_word(s.pattern), 0);
    ck_assert(!s.pattern_measured); /* no folder that keeps measurements */
    for (int l = 0; l < s.n_layers; l++) {
        uint64_t sum = 0;

        for (int x = 0; x < s.n_experts; x++)
            sum += s.experts[l * s.n_experts + x];
        /* two experts a token; the last token of the answer was sampled and may not have been
         * computed on */
        ck_assert_uint_ge(sum, 2 * (s.prompt_tokens + s.generated_tokens - 1));
        ck_assert_uint_le(sum, 2 * (s.prompt_tokens + s.generated_tokens));
    }
    snprintf(path, sizeof path, "%s/stats.json", support_tmpdir());
    ck_assert_msg(stats_write_json(&s, path, &e) == 0, "%s", e.text);
    ck_assert((f = fopen(path, "r")) != NULL);
    n = fread(block, 1, sizeof block, f);
    fclose(f);
    root = json_read(block, n, path, &e);
    ck_assert_msg(root != NULL, "%s", e.text);
    ck_assert_str_eq(json_string_value(at(root, "model.read_pattern")), s.pattern);
    ck_assert_int_eq(json_integer_value(at(root, "tokens.generated")), 40);
    ck_assert_int_eq(json_integer_value(at(root, "tokens.total")),
                     (json_int_t)(40 + s.prompt_tokens));
    ck_assert_double_eq_tol(json_number_value(at(root, "time.decode_tok_s")),
                            39e3 / json_number_value(at(root, "time.decode_ms")), 0.5);
    ck_assert_int_gt(json_integer_value(at(root, "memory.rss_bytes")), 1 << 20);
    ck_assert_int_ge(json_integer_value(at(root, "memory.peak_rss_bytes")),
                     json_integer_value(at(root, "memory.rss_bytes")));
    ck_assert_double_gt(json_number_value(at(root, "memory.percent")), 0);
    ck_assert_int_gt(json_integer_value(at(root, "cpu.cores")), 0);
    at(root, "cpu.mhz");
    at(root, "disk.read_bytes");
    at(root, "disk.write_calls");
    at(root, "disk.system_write_operations");
    at(root, "cpu.waited_share");
    at(root, "memory.in_cache");
    ck_assert_uint_eq(json_array_size(at(root, "experts")), 8);
    ck_assert_int_gt((int)strlen(json_string_value(at(root, "interpretation"))), 20);
    json_decref(root);
    engine_close(g);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_said_early)
{
    static struct options o;
    struct stats late;

    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_int_eq(options_set(&o, options_find("stats-json"), "/no/such/folder/s.json",
                                 ORIGIN_FLAG, NULL, &e),
                     0);
    ck_assert_int_eq(stats_open(&late, &o, &e), ERR_IO);
    ck_assert(strstr(e.text, "/no/such/folder/s.json"));
    stats_release(&late);
    stats_take(&s, NULL, NULL);
    ck_assert_int_eq(stats_write_json(&s, "/dev/full", &e), ERR_IO);
    options_release(&o);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite_ = suite_create("stats");
    TCase *t = tcase_create("stats");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rates_follow_their_definition);
    tcase_add_test(t, nothing_done_is_not_a_rate_of_zero);
    tcase_add_test(t, drafts_are_told);
    tcase_add_loop_test(t, interpretation, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, who_waits_for_the_disk_is_told_so);
    tcase_add_test(t, figures_of_a_real_answer);
    tcase_add_test(t, a_file_that_cannot_be_written_is_said_early);
    suite_add_tcase(suite_, t);
    return suite_;
}

int main(void)
{
    return support_run(suite());
}
