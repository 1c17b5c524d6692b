/* The benchmark's pure parts: its command line, its five formats, comparing two reports, pictures.
 */
#include "app/bench/args.h"
#include "app/common/machine_load.h"
#include "app/bench/memory_share.h"
#include "app/bench/result.h"
#include "app/bench/routing.h"
#include "app/common/svg_plot.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- command line ---- */

static struct option_list one(const char *text)
{
    static char *items[1];

    items[0] = (char *)text;
    return (struct option_list){items, 1};
}

static const struct {
    const char *text;
    int n, values[6];
} lists[] = {
    {"512", 1, {512}},        {"0", 1, {0}},           {"1,2,4", 3, {1, 2, 4}},
    {"1-4", 4, {1, 2, 3, 4}}, {"1-8+3", 3, {1, 4, 7}}, {"1-16*2", 5, {1, 2, 4, 8, 16}},
    {"7,2-3", 3, {7, 2, 3}},
};
static const char *const bad_lists[] = {"",        "x",     "1,",  ",1", "4-1",         "1-8*1",
                                        "0-8*2",   "1-8+0", "1.5", "-3", "99999999999", "1;2",
                                        "1-100000"};

START_TEST(numbers_and_ranges)
{
    struct option_list l = one(lists[_i].text);
    struct error e = {0};
    int *v;
    size_t n;

    ck_assert_msg(bench_numbers(&l, "-p", &v, &n, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(n, (size_t)lists[_i].n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(v[i], lists[_i].values[i]);
    mem_free(v);
}
END_TEST

START_TEST(bad_numbers)
{
    struct option_list l = one(bad_lists[_i]);
    struct error e = {0};
    int *v;
    size_t n;

    ck_assert_int_eq(bench_numbers(&l, "-p", &v, &n, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "-p: '"));
    ck_assert_ptr_null(v);
}
END_TEST

START_TEST(pairs)
{
    static const char *const bad[] = {"512", "512,0", "0,128", "512,128,3", "a,b"};
    struct option_list l = one("512,128;16,4");
    struct error e = {0};
    int *v;
    size_t n;

    ck_assert_int_eq(bench_pairs(&l, "-pg", &v, &n, &e), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert(v[0] == 512 && v[1] == 128 && v[2] == 16 && v[3] == 4);
    mem_free(v);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        l = one(bad[i]);
        ck_assert_msg(bench_pairs(&l, "-pg", &v, &n, &e) == ERR_USAGE, "%s was read", bad[i]);
    }
}
END_TEST

START_TEST(spellings_of_llama_bench)
{
    char *argv[] = {"moetop", "-p", "512", "--bench", "-pg", "1,2",        "-o",
                    "json",   "-m", "x",   "-n",      "0",   "--no-warmup"};
    char *chat[] = {"moetop", "-p", "hello", "-n", "3"};
    struct options o;
    struct error e = {0};

    bench_respell(13, argv);
    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 13, argv, &e) >= 0, "%s", e.text);
    ck_assert(o.bench);
    ck_assert_str_eq(o.bench_prompt.items[0], "512");
    ck_assert_str_eq(o.bench_pg.items[0], "1,2");
    ck_assert_str_eq(o.bench_gen.items[0], "0");
    ck_assert_str_eq(o.model, "x");
    ck_assert(!o.bench_warmup);
    ck_assert_int_eq(o.bench_format, REPORT_JSON);
    options_release(&o);
    bench_respell(5, chat);
    ck_assert_str_eq(chat[1], "-p");
    ck_assert_str_eq(chat[3], "-n");
}
END_TEST

START_TEST(compare_takes_two_files)
{
    char *argv[] = {"moetop", "--bench-compare", "a.json", "b.json"};
    struct options o;
    struct error e = {0};

    bench_respell(4, argv);
    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 4, argv, &e) >= 0, "%s", e.text);
    ck_assert_uint_eq(o.bench_compare.n, 2);
    ck_assert_str_eq(o.bench_compare.items[0], "a.json");
    ck_assert_str_eq(o.bench_compare.items[1], "b.json");
    options_release(&o);
    mem_free(argv[2]);
    mem_free(argv[3]);
}
END_TEST

START_TEST(arms_are_cut)
{
    char ***arms;
    size_t n;
    struct error e = {0};

    ck_assert_int_eq(
        bench_arms("-t 1; -t  2 --place 'hot:1 M' -m \"a;b\";--x a\\ b;", &arms, &n, &e), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(arms[0][0], "-t");
    ck_assert_str_eq(arms[0][1], "1");
    ck_assert_ptr_null(arms[0][2]);
    ck_assert_str_eq(arms[1][3], "hot:1 M");
    ck_assert_str_eq(arms[1][5], "a;b");
    ck_assert_ptr_null(arms[1][6]);
    ck_assert_str_eq(arms[2][1], "a b");
    ck_assert_ptr_null(arms[2][2]);
    mem_free(arms);
    /* an empty arm: the options as they are */
    ck_assert_int_eq(bench_arms("-t 1;;-t 2", &arms, &n, &e), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_null(arms[1][0]);
    mem_free(arms);
    ck_assert_int_eq(bench_arms("-t '1", &arms, &n, &e), ERR_USAGE);
    ck_assert_int_eq(bench_arms("", &arms, &n, &e), 0);
    ck_assert_ptr_null(arms[0][0]);
    mem_free(arms);
}
END_TEST

START_TEST(options_are_copied)
{
    char *argv[] = {"moetop", "-t", "3", "--stop", "a", "--stop", "b", "-m", "file", "--exact"};
    struct options o, copy;
    struct error e = {0};

    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 10, argv, &e) >= 0, "%s", e.text);
    ck_assert_msg(options_copy(&copy, &o, &e) == 0, "%s", e.text);
    ck_assert_int_eq(copy.threads, 3);
    ck_assert_uint_eq(copy.stop.n, 2);
    ck_assert_str_eq(copy.stop.items[1], "b");
    ck_assert_str_eq(copy.model, "file");
    ck_assert(copy.exact);
    ck_assert_int_eq(copy.top_k, o.top_k);
    options_release(&copy);
    options_release(&o);
}
END_TEST

/* ---- results ---- */

static void fill(struct bench_result *r, int n_prompt, int n_gen, double ms, double spread)
{
    memset(r, 0, sizeof *r);
    strcpy(r->model_type, "phimoe Q4_0");
    strcpy(r->model_filename, "dir/a \"b\" 'c'.gguf");
    strcpy(r->backends, "CPU");
    strcpy(r->version, "0.1.0");
    strcpy(r->placement, "cpu");
    strcpy(r->test_time, "2026-01-02T03:04:05Z");
    r->n_threads = 2;
    r->n_prompt = n_prompt;
    r->n_gen = n_gen;
    r->model_size = 2203000000u;
    r->model_n_params = 3750000000u;
    r->mhz = NAN;
    for (int i = 0; i < 5; i++)
        series_add(&r->ns, 1e6 * (ms + spread * (i - 2)));
}

static char *written(enum report_format format, struct bench_result *r, int n)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    bench_write_begin(f, format);
    for (int i = 0; i < n; i++)
        bench_write_row(f, format, &r[i], i);
    bench_write_end(f, format, n);
    fclose(f);
    return text;
}

/* Column names as llama-bench (b9931's sources) prints them, in its order. */
static const char theirs[] =
    "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,"
    "model_n_params,n_batch,n_ubatch,"
    "n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_gpu,"
    "no_kv_offload,flash_attn,devices,tensor_split,"
    "tensor_buft_overrides,load_mode,lazy_mode,embeddings,no_op_offload,no_host,repack,fit_target,"
    "fit_min_ctx,n_prompt,n_gen,n_depth,test_time,"
    "avg_ns,stddev_ns,avg_ts,stddev_ts,";

START_TEST(csv_begins_with_their_columns)
{
    struct bench_result r;
    char *text;
    int commas[2] = {0, 0}, line = 0;
    bool quoted = false;

    fill(&r, 512, 0, 1000, 10);
    text = written(REPORT_CSV, &r, 1);
    ck_assert_int_eq(strncmp(text, theirs, strlen(theirs)), 0);
    for (char *p = text; *p && line < 2; p++) {
        quoted ^= *p == '"';
        commas[line] += *p == ',' && !quoted;
        line += *p == '\n';
    }
    ck_assert_int_eq(commas[0], commas[1]);
    ck_assert_ptr_nonnull(strstr(text, "\"dir/a \"\"b\"\" 'c'.gguf\""));
    free(text);
    bench_result_release(&r);
}
END_TEST

START_TEST(json_is_an_array_with_their_names_and_figures)
{
    struct bench_result r[2];
    char *text, name[64];
    json_error_t why;
    json_t *root, *o;

    fill(&r[0], 512, 0, 1000, 10);
    fill(&r[1], 0, 128, 4000, 0);
    text = written(REPORT_JSON, r, 2);
    root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    ck_assert_msg(root != NULL, "%s in line %d:\n%s", why.text, why.line, text);
    ck_assert_uint_eq(json_array_size(root), 2);
    o = json_array_get(root, 0);
    for (const char *p = theirs; *p; p += strcspn(p, ",") + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        ck_assert_msg(json_object_get(o, name) != NULL, "%s is missing", name);
    }
    ck_assert(fabs(json_real_value(json_object_get(o, "avg_ts")) -
                   (512 / 0.98 + 512 / 0.99 + 512 + 512 / 1.01 + 512 / 1.02) / 5) < 1e-3);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "avg_ns")), 1000000000);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "stddev_ns")), 15811388);
    ck_assert(fabs(json_real_value(json_object_get(o, "median_ts")) - 512) < 1e-6);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "samples_ns")), 5);
    ck_assert(fabs(json_real_value(json_array_get(json_object_get(o, "samples_ts"), 2)) - 512) <
              1e-6);
    ck_assert(json_is_null(json_object_get(o, "cpu_mhz")));
    ck_assert(json_is_false(json_object_get(o, "embeddings")));
    o = json_array_get(root, 1);
    ck_assert(fabs(json_real_value(json_object_get(o, "avg_ts")) - 32) < 1e-6);
    json_decref(root);
    free(text);
    text = written(REPORT_JSON, r, 0);
    root = json_loads(text, 0, NULL);
    ck_assert(json_is_array(root));
    json_decref(root);
    free(text);
    bench_result_release(&r[0]);
    bench_result_release(&r[1]);
}
END_TEST

/* A meter that says what the test wants, and how often it was asked. */
struct fake_meter {
    const double *rates;
    int asked;
};

static double fake_read(void *ctx, int threads)
{
    struct fake_meter *m = ctx;

    return m->rates[m->asked++] * threads;
}

START_TEST(memory_is_read_between_samples)
{
    static const double rates[] = {10, 11, 12, 13, 14};
    struct fake_meter fake = {rates, 0};
    struct memory_meter m = {.read = fake_read, .ctx = &fake};

    ck_assert(memory_meter_before(&m, 1) == 10);
    ck_assert(memory_meter_after(&m, 1) == 11);
    ck_assert(memory_meter_before(&m, 1) == 11); /* after one sample is before the next */
    ck_assert_int_eq(fake.asked, 2);
    ck_assert(memory_meter_before(&m, 2) == 24); /* but not for other threads */
    ck_assert(memory_meter_after(&m, 2) == 26);
    ck_assert(memory_meter_before(&m, 1) == 14);
    ck_assert_int_eq(fake.asked, 5);
}
END_TEST

/* Each sample counts against the readings around it; where those lie apart, it does not. */
START_TEST(a_share_is_of_the_memory_around_it)
{
    static const struct memory_sample steady[] = {{40e9, 40e9, 36e9}, {40e9, 44e9, 38e9}},
                                      half[] = {{40e9, 40e9, 36e9},
                                                {40e9, 80e9, 60e9},
                                                {80e9, 80e9, 64e9},
                                                {80e9, 80e9, 72e9}},
                                      wild[] = {{46e9, 77e9, 45e9},
                                                {77e9, 46e9, 50e9},
                                                {46e9, 46e9, 40e9}},
                                      unknown[] = {{0, 0, 5e9}};
    struct memory_share m;
    char text[80];

    ck_assert_int_eq(memory_share(steady, 2, &m), 0);
    ck_assert_double_eq_tol(m.share, (36.0 / 40 + 38.0 / 42) / 2, 1e-9);
    ck_assert(m.lowest == 40e9 && m.highest == 44e9);
    ck_assert_str_eq(memory_share_text(&m, text, sizeof text), "");
    ck_assert_int_eq(memory_share(half, 4, &m), 0);
    ck_assert_double_eq_tol(m.share, 0.9, 1e-9);
    ck_assert_str_eq(memory_share_text(&m, text, sizeof text), "memory speed swung 40-80 GB/s");
    ck_assert_int_eq(memory_share(wild, 3, &m), 0);
    ck_assert(m.share == 0);
    ck_assert_str_eq(memory_share_text(&m, text, sizeof text),
                     "memory speed swung 46-77 GB/s: no share");
    ck_assert_int_eq(memory_share(unknown, 1, &m), 0);
    ck_assert(m.share == 0);
    ck_assert_str_eq(memory_share_text(&m, text, sizeof text), "");
}
END_TEST

START_TEST(jsonl_sql_and_markdown)
{
    struct bench_result r;
    char *text;
    json_t *o;

    fill(&r, 0, 128, 4000, 3);
    r.n_depth = 1024;
    r.share = 0.853;
    text = written(REPORT_JSONL, &r, 1);
    o = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(o);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "n_depth")), 1024);
    json_decref(o);
    free(text);
    text = written(REPORT_SQL, &r, 1);
    ck_assert_ptr_nonnull(strstr(
        text,
        "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n  build_number INTEGER,"));
    ck_assert_ptr_nonnull(strstr(text, "''c''"));
    ck_assert_ptr_nonnull(strstr(text, ");\n"));
    free(text);
    text = written(REPORT_MD, &r, 1);
    ck_assert_ptr_nonnull(strstr(text, "tg128 @ d1024"));
    ck_assert_ptr_nonnull(strstr(text, "32.00 ±"));
    ck_assert_ptr_nonnull(strstr(text, "85 %"));
    ck_assert_ptr_nonnull(strstr(text, "2.05 GiB"));
    free(text);
    bench_result_release(&r);
}
END_TEST

/* Where the machine tells, a row says what a token costs; else there is no figure, not a zero. */
START_TEST(energy_is_in_every_format)
{
    static const struct {
        enum report_format format;
        const char *known, *unknown;
    } all[] = {{REPORT_MD, "| 0.25 J a token, 12.5 W |", "|  |"},
               {REPORT_JSON, "\"joules_a_token\": 0.25", "\"joules_a_token\": null"},
               {REPORT_CSV, "\"0.25", NULL}};
    struct bench_result r;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *text;

        fill(&r, 0, 16, 100, 0.01);
        r.arm[0] = r.remark[0] = 0;
        r.disturbed = false;
        r.joules_a_token = 0.25;
        r.watts = 12.5;
        text = written(all[i].format, &r, 1);
        ck_assert_msg(strstr(text, all[i].known) != NULL, "%s", text);
        free(text);
        r.joules_a_token = r.watts = NAN;
        text = written(all[i].format, &r, 1);
        ck_assert_ptr_null(strstr(text, all[i].known));
        ck_assert_msg(!all[i].unknown || strstr(text, all[i].unknown), "%s", text);
        free(text);
        bench_result_release(&r);
    }
}
END_TEST

static const char *report(const char *name, const char *text)
{
    static char path[2][400];
    static int at;
    char *p = path[at++ & 1];
    FILE *f;

    snprintf(p, sizeof path[0], "%s/%s", support_tmpdir(), name);
    f = fopen(p, "w");
    fputs(text, f);
    fclose(f);
    return p;
}

START_TEST(reports_are_compared)
{
    struct bench_result r[3], *a, *b;
    size_t n_a, n_b;
    struct error e = {0};
    char *text, *table = NULL;
    size_t size;
    FILE *f;

    fill(&r[0], 512, 0, 1000, 10);
    fill(&r[1], 0, 128, 4000, 300);
    fill(&r[2], 64, 0, 10, 0);
    text = written(REPORT_JSON, r, 3);
    ck_assert_msg(bench_read(&a, &n_a, report("a.json", text), &e) == 0, "%s", e.text);
    free(text);
    for (int i = 0; i < 5; i++) {
        r[0].ns.values[i] /= 2;    /* twice as fast */
        r[1].ns.values[i] *= 1.01; /* inside the noise */
    }
    text = written(REPORT_JSON, r, 2);
    ck_assert_msg(bench_read(&b, &n_b, report("b.json", text), &e) == 0, "%s", e.text);
    free(text);
    ck_assert_uint_eq(n_a, 3);
    ck_assert_uint_eq(n_b, 2);
    f = open_memstream(&table, &size);
    ck_assert_int_eq(bench_compare(f, a, n_a, b, n_b), 2);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(table, "2.000x | B is faster"));
    ck_assert_ptr_nonnull(strstr(table, "x | none"));
    ck_assert_ptr_null(strstr(table, "pp64"));
    free(table);
    for (size_t i = 0; i < 3; i++) {
        bench_result_release(&a[i]);
        bench_result_release(&r[i]);
        if (i < 2)
            bench_result_release(&b[i]);
    }
    mem_free(a);
    mem_free(b);
}
END_TEST

static const struct {
    const char *text, *says;
} bad_reports[] = {
    {"", "line"},
    {"{}", "not a benchmark report"},
    {"[1]", "result 1"},
    {"[{\"n_prompt\": 5}]", "no samples_ns"},
    {"[{\"n_gen\": -5, \"samples_ns\": [1]}]", "result 1"},
    {"[{\"n_prompt\": 5, \"samples_ns\": [1]}, {}]", "result 2"},
};

START_TEST(bad_reports_are_named)
{
    struct bench_result *a;
    size_t n;
    struct error e = {0};

    ck_assert_int_eq(bench_read(&a, &n, report("bad.json", bad_reports[_i].text), &e), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, "bad.json"));
    ck_assert_msg(strstr(e.text, bad_reports[_i].says) != NULL, "%s", e.text);
    ck_assert_ptr_null(a);
    ck_assert_int_eq(bench_read(&a, &n, "/nonexistent.json", &e), ERR_IO);
}
END_TEST

/* ---- the real program on the bundled model ---- */

static char *output_of(const char *arguments, int *status)
{
    const char *build = getenv("CHECK_BUILD");
    char command[5000];
    char *text = calloc(1, 1 << 20);
    size_t n = 0, got;
    FILE *p;

    snprintf(command, sizeof command, "XDG_CACHE_HOME=%s %s%s%s/moetop %s", support_tmpdir(),
             build && *build == '/' ? "" : support_root(), build && *build == '/' ? "" : "/",
             build ? build : "build/release", arguments);
    p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    while ((got = fread(text + n, 1, (1 << 20) - 1 - n, p)) > 0)
        n += got;
    *status = pclose(p);
    return text;
}

/* Several texts side by side: a row a number, rates over all of their tokens; what is read a token
 * falls, for one expert serves all that chose it, but not below what the texts' own experts leave.
 */
START_TEST(texts_side_by_side)
{
    int status;
    char *text = output_of("--bench -p 0 -n 6 -r 2 -t 1 -o json --parallel 1,3 --device none "
                           "2>/dev/null",
                           &status);
    json_t *root = json_loads(text, 0, NULL), *one, *three;
    double ns, bytes;

    ck_assert_int_eq(status, 0);
    ck_assert_msg(json_array_size(root) == 2, "%s", text);
    one = json_array_get(root, 0);
    three = json_array_get(root, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(one, "n_parallel")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(three, "n_parallel")), 3);
    ns = (double)json_integer_value(json_array_get(json_object_get(three, "samples_ns"), 0));
    ck_assert_double_eq_tol(json_number_value(
                                json_array_get(json_object_get(three, "samples_ts"), 0)),
                            6.0 * 3.0 * 1e9 / ns, 1.0);
    bytes = json_number_value(json_object_get(one, "token_bytes"));
    ck_assert_double_lt(json_number_value(json_object_get(three, "token_bytes")), bytes);
    ck_assert_double_gt(json_number_value(json_object_get(three, "token_bytes")), bytes / 3);
    json_decref(root);
    free(text);
}
END_TEST

START_TEST(a_run_reports_what_it_measured)
{
    int status;
    char *text = output_of("--bench -p 16 -n 6 -pg 8,4 -d 0,20 -r 3 -o json --arms '-t 1;-t 1 "
                           "--place gpu' --device none 2>/dev/null",
                           &status),
         report_path[300], arguments[700];
    json_t *root = json_loads(text, 0, NULL), *o;
    size_t i;
    FILE *f;

    ck_assert_int_eq(status, 0);
    ck_assert_msg(root != NULL, "%s", text);
    ck_assert_uint_eq(json_array_size(root), 2 * 3 * 2);
    json_array_foreach(root, i, o)
    {
        ck_assert_uint_eq(json_array_size(json_object_get(o, "samples_ns")), 3);
        ck_assert(json_real_value(json_object_get(o, "avg_ts")) > 0);
        ck_assert_int_eq(json_integer_value(json_object_get(o, "n_threads")), 1);
        ck_assert(json_real_value(json_object_get(o, "experts_seen")) > 0.1);
        ck_assert_int_gt(json_integer_value(json_object_get(o, "rss_peak")), 1 << 20);
    }
    o = json_array_get(root, 2);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "n_gen")), 6);
    ck_assert(json_real_value(json_object_get(o, "token_p50_ms")) > 0);
    ck_assert(json_integer_value(json_object_get(o, "token_bytes")) > 1 << 20);
    ck_assert(json_real_value(json_object_get(o, "bandwidth_before")) > 1e8);
    ck_assert(json_real_value(json_object_get(o, "roofline_ts")) > 1);
    json_decref(root);
    /* and the report compares with itself: no difference */
    snprintf(report_path, sizeof report_path, "%s/self.json", support_tmpdir());
    f = fopen(report_path, "w");
    fputs(text, f);
    fclose(f);
    free(text);
    snprintf(arguments, sizeof arguments, "--bench-compare %s %s", report_path, report_path);
    text = output_of(arguments, &status);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_nonnull(strstr(text, "1.000x | none"));
    ck_assert_ptr_null(strstr(text, "is faster"));
    free(text);
}
END_TEST

/* What an arm says goes before what all share; a row's threads are those of its label. */
START_TEST(an_arm_means_what_its_label_says)
{
    int status;
    char *text = output_of(
             "--bench -p 4 -n 0 -r 1 -t 2 -o json --arms '-t 1;-ub 4' --device none 2>/dev/null",
             &status),
         path[300], arguments[900];
    json_t *root = json_loads(text, 0, NULL);
    FILE *f;

    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(json_array_size(root), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(root, 0), "n_threads")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(root, 1), "n_threads")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(root, 0), "n_ubatch")), 512);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(root, 1), "n_ubatch")), 4);
    json_decref(root);
    snprintf(path, sizeof path, "%s/arms.json", support_tmpdir());
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    free(text);
    /* both sides of a comparison in one drawing, and a side that is not there */
    snprintf(arguments, sizeof arguments,
             "--bench-compare %s %s --plot %s/both.svg && grep -o '>pp4 [AB] -t 1<' %s/both.svg",
             path, path, support_tmpdir(), support_tmpdir());
    text = output_of(arguments, &status);
    ck_assert_int_eq(status, 0);
    ck_assert_msg(strstr(text, ">pp4 A -t 1<") && strstr(text, ">pp4 B -t 1<"), "%s", text);
    free(text);
    snprintf(arguments, sizeof arguments, "--bench-compare %s %s/nowhere.json 2>&1", path,
             support_tmpdir());
    text = output_of(arguments, &status);
    ck_assert_int_eq(WEXITSTATUS(status), 5);
    ck_assert_msg(strstr(text, "nowhere.json: No such file") && !strstr(text, "line -1"), "%s",
                  text);
    free(text);
    text = output_of("--bench -p 4 -n 0 -r 1 -t 1,2 --arms '-t 1;-t 2' --device none 2>&1",
                     &status);
    ck_assert_int_eq(WEXITSTATUS(status), 2);
    ck_assert_msg(strstr(text, "give one of them"), "%s", text);
    free(text);
}
END_TEST

/* Three and three that lie far apart: neither the test nor their order proves it, and "none" would
 * be a lie. */
START_TEST(too_few_runs_are_called_so)
{
    static const double fast[] = {900, 2400, 7000}, slow[] = {110, 113, 118};
    struct series a = {0}, b = {0};
    struct series_figures x, y;

    for (int i = 0; i < 3; i++) {
        series_add(&a, slow[i]);
        series_add(&b, fast[i]);
    }
    ck_assert(series_summarise(&a, &x) == 0 && series_summarise(&b, &y) == 0);
    ck_assert_str_eq(bench_verdict(&x, &y), "too few runs");
    ck_assert_str_eq(bench_verdict(&x, &x), "none");
    /* four and four: by chance once in 35 times */
    series_add(&a, 120);
    series_add(&b, 5000);
    ck_assert(series_summarise(&a, &x) == 0 && series_summarise(&b, &y) == 0);
    ck_assert_str_eq(bench_verdict(&x, &y), "too few runs");
    series_add(&a, 115);
    series_add(&b, 4000);
    ck_assert(series_summarise(&a, &x) == 0 && series_summarise(&b, &y) == 0);
    ck_assert_str_eq(bench_verdict(&x, &y), "B is faster");
    ck_assert_str_eq(bench_verdict(&y, &x), "A is faster");
    series_release(&a);
    series_release(&b);
}
END_TEST

START_TEST(a_prompt_suite_reports_turns)
{
    char arguments[700], path[300];
    json_t *root, *o;
    char *text;
    int status;
    FILE *f;

    snprintf(path, sizeof path, "%s/prompts.txt", support_tmpdir());
    f = fopen(path, "w");
    fputs("# two prompts\nHello there.\n\nTell me about the sea.\n", f);
    fclose(f);
    snprintf(arguments, sizeof arguments,
             "--bench --bench-prompts %s -n 5 -r 2 -t 1 -o json 2>&1 >/dev/null", path);
    text = output_of(arguments, &status);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_nonnull(strstr(text, "time to first token"));
    ck_assert_ptr_nonnull(strstr(text, "(4 runs)"));
    free(text);
    snprintf(arguments, sizeof arguments,
             "--bench --bench-prompts %s -n 5 -r 2 -t 1 -o json 2>/dev/null", path);
    text = output_of(arguments, &status);
    root = json_loads(text, 0, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    ck_assert_uint_eq(json_array_size(root), 4);
    o = json_array_get(root, 0);
    ck_assert(json_real_value(json_object_get(o, "ttft_ms")) > 0);
    ck_assert_str_eq(json_string_value(json_object_get(o, "test")), "pp Hello there.");
    o = json_array_get(root, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "n_gen")), 4);
    json_decref(root);
    free(text);
}
END_TEST

/* A line a number of rows: bytes grow with them, by less than a token's own, for an expert that two
 * rows chose is read once; the pass of one row is its own measure. */
START_TEST(passes_of_several_rows)
{
    int status;
    char *text = output_of("--bench --bench-verify 4 -r 3 -t 1 -d 8 -o json --device none "
                           "2>/dev/null",
                           &status);
    json_t *root = json_loads(text, 0, NULL), *x;
    double bytes = 0, one = 0;
    size_t i;

    ck_assert_int_eq(status, 0);
    ck_assert_msg(json_array_size(root) == 4, "%s", text);
    json_array_foreach(root, i, x)
    {
        double now = json_number_value(json_object_get(x, "bytes"));

        one = i ? one : now;
        ck_assert_int_eq(json_integer_value(json_object_get(x, "rows")), (int)i + 1);
        ck_assert_int_eq(json_integer_value(json_object_get(x, "rounds")), 3);
        ck_assert_double_gt(now, bytes);
        ck_assert_double_lt(now, one * (double)(i + 1) + 1);
        ck_assert_double_gt(json_number_value(json_object_get(x, "pass_ms")), 0);
        if (!i)
            ck_assert_double_eq_tol(json_number_value(json_object_get(x, "time_by_bytes")), 1,
                                    1e-12);
        bytes = now;
    }
    json_decref(root);
    free(text);
}
END_TEST

START_TEST(wrong_use_is_refused)
{
    static const char *const bad[] = {"--bench -p x",
                                      "--bench --parallel 2,many",
                                      "--bench -p 0 -n 0",
                                      "--bench --arms '-t'",
                                      "--bench --arms '--nonsense'",
                                      "--bench --bench-text /nonexistent",
                                      "--bench-compare a.json",
                                      "--compare nonsense",
                                      "--suggest x.json",
                                      "--bench --bench-prompts /nonexistent",
                                      "--bench --bench-verify 2 --plot x.svg",
                                      "--bench --bench-verify 2 -t 1,2",
                                      "--bench --bench-verify 2 -r 1 -o sql"};
    static const int exits[] = {2, 2, 2, 2, 2, 5, 2, 2, 2, 5, 2, 2, 2};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char arguments[300];
        int status;
        char *text;

        snprintf(arguments, sizeof arguments, "%s 2>&1", bad[i]);
        text = output_of(arguments, &status);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == exits[i], "%s: exit %d, %s",
                      bad[i], WEXITSTATUS(status), text);
        ck_assert_ptr_nonnull(strstr(text, "moetop: "));
        free(text);
    }
}
END_TEST

/* ---- pictures ---- */

/* Well formed: every element that opens closes, in order. Enough of XML for what we write. */
static void well_formed(const char *s)
{
    char stack[32][16];
    int depth = 0;

    for (const char *p = s; (p = strchr(p, '<')); p++) {
        size_t n = strcspn(p + 1, " />");
        const char *end = strchr(p, '>');

        ck_assert_ptr_nonnull(end);
        if (p[1] == '/') {
            ck_assert_int_gt(depth, 0);
            n = strcspn(p + 2, ">");
            depth--;
            ck_assert_msg(strncmp(stack[depth], p + 2, n) == 0, "</%.*s> closes <%s>", (int)n,
                          p + 2, stack[depth]);
        } else if (end[-1] != '/') {
            ck_assert_int_lt(depth, 32);
            snprintf(stack[depth++], 16, "%.*s", (int)n, p + 1);
        }
    }
    ck_assert_int_eq(depth, 0);
    ck_assert_ptr_null(strstr(s, "nan"));
    ck_assert_ptr_null(strstr(s, "inf"));
}

START_TEST(pictures_are_well_formed)
{
    double values[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, zeros[12] = {0};
    uint8_t dots[12] = {1, 0, 1};
    struct plot_bar bars[2] = {{"a <b> & \"c\"", "85 %", {5, 30, 34, 32, 32, 33, 1}, 40},
                               {"empty", NULL, {0}, 0}},
                    once = {"once", "1 run", {1, 30, 30, 30, 30, 30, 0}, 0};
    struct plot_point points[3] = {{0, 10}, {8, 30}, {16, 20}};
    char *d[6], path[400], *all;
    struct error e = {0};
    FILE *f;
    long n;

    d[0] = plot_bars("Rates", "tokens/s", bars, 2);
    d[1] = plot_map("Experts", values, dots, 3, 4);
    d[2] = plot_curve("Sweep", "layers", "tokens/s", points, 3);
    d[3] = plot_map("None", zeros, NULL, 3, 4);
    d[4] = plot_bars("Nothing", "", NULL, 0);
    d[5] = plot_curve("Flat", "", "", points, 0);
    for (int i = 0; i < 6; i++) {
        ck_assert_ptr_nonnull(d[i]);
        well_formed(d[i]);
    }
    ck_assert_ptr_nonnull(strstr(d[0], "a &lt;b&gt; &amp; &quot;c&quot;"));
    ck_assert_ptr_nonnull(strstr(d[0], "32.00 ± 1.00"));
    all = plot_bars("One sample", "", &once, 1); /* has no spread */
    well_formed(all);
    ck_assert_ptr_null(strstr(strstr(all, "once"), "±"));
    ck_assert_ptr_null(strstr(strstr(all, "once"), "<line"));
    mem_free(all);
    ck_assert_ptr_nonnull(strstr(d[1], "layer 2 expert 3: 11"));
    snprintf(path, sizeof path, "%s/plot.svg", support_tmpdir());
    ck_assert_msg(plot_write(path, d, 6, &e) == 0, "%s", e.text);
    f = fopen(path, "r");
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    all = calloc(1, (size_t)n + 1);
    ck_assert_uint_eq(fread(all, 1, (size_t)n, f), (size_t)n);
    well_formed(all);
    fclose(f);
    free(all);
    for (int i = 0; i < 6; i++)
        mem_free(d[i]);
    ck_assert_int_eq(plot_write("/nonexistent/x.svg", NULL, 0, &e), ERR_IO);
}
END_TEST

/* Share of the first place that the most used expert of a layer has, and whether every row names
 * distinct experts. */
static double favourite(enum bench_routing kind, int n_experts, int used)
{
    struct imposed_routing r, again;
    struct error e = {0};
    int most = 0, rows;

    ck_assert_int_eq(bench_routing_init(&r, kind, 3, n_experts, used, 7, &e), 0);
    ck_assert_int_eq(bench_routing_init(&again, kind, 3, n_experts, used, 7, &e), 0);
    rows = r.period;
    ck_assert_int_eq(
        memcmp(r.experts, again.experts, (size_t)(3 * rows * used) * sizeof *r.experts), 0);
    for (int l = 0; l < 3; l++) {
        int count[64] = {0};

        for (int p = 0; p < rows; p++) {
            const uint16_t *row = r.experts + (l * rows + p) * used;

            for (int i = 0; i < used; i++) {
                ck_assert_int_lt(row[i], n_experts);
                for (int k = 0; k < i; k++)
                    ck_assert_int_ne(row[i], row[k]);
            }
            count[row[0]]++;
        }
        for (int x = 0; x < n_experts; x++)
            most = count[x] > most ? count[x] : most;
    }
    bench_routing_release(&r);
    bench_routing_release(&again);
    return (double)most / rows;
}

START_TEST(imposed_routing_is_what_it_is_called)
{
    double h16 = 0;

    for (int i = 1; i <= 16; i++)
        h16 += 1.0 / i;
    ck_assert(fabs(favourite(ROUTING_UNIFORM, 16, 2) - 1 / 16.0) < 0.03);
    ck_assert(fabs(favourite(ROUTING_ZIPF, 16, 2) - 1 / h16) < 0.05);
    ck_assert(favourite(ROUTING_SINGLE, 16, 2) == 1);
    /* as many as there are: any order, none twice */
    ck_assert(favourite(ROUTING_UNIFORM, 4, 4) > 0.2);
}
END_TEST

START_TEST(what_disturbs_a_run)
{
    static const struct {
        struct machine_load l;
        const char *why;
    } cases[] = {
        {{.repetitions = 3, .seconds = 2, .others_s = 0.1}, NULL},
        {{.repetitions = 3, .seconds = 2, .others_s = 0.6}, "other processes used 0.30 CPUs"},
        /* a tick each: says nothing */
        {{.repetitions = 3, .seconds = 0.02, .others_s = 0.03}, NULL},
        {{.repetitions = 3, .n_cores = 2, .seconds = 0.02, .cpu_s = 0.03, .delay_s = 0.005},
         "waited 0.25 s a second for a CPU"},
        /* more threads of its own than CPUs */
        {{.repetitions = 3, .n_cores = 2, .seconds = 0.02, .cpu_s = 0.04, .delay_s = 0.005}, NULL},
        {{.repetitions = 3, .seconds = 2, .mhz_most = 4000, .mhz_least = 3900}, NULL},
        {{.repetitions = 3, .seconds = 2, .mhz_most = 4000, .mhz_least = 2400},
         "the clock fell from 4000 to 2400 MHz"},
        {{.repetitions = 0}, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[100] = "";

        ck_assert_int_eq(machine_load_disturbed(&cases[i].l, why, sizeof why),
                         cases[i].why != NULL);
        ck_assert_msg(!cases[i].why || strstr(why, cases[i].why), "%s", why);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("bench");
    TCase *t = tcase_create("bench");

    tcase_add_loop_test(t, numbers_and_ranges, 0, (int)(sizeof lists / sizeof *lists));
    tcase_add_loop_test(t, bad_numbers, 0, (int)(sizeof bad_lists / sizeof *bad_lists));
    tcase_add_test(t, pairs);
    tcase_add_test(t, spellings_of_llama_bench);
    tcase_add_test(t, compare_takes_two_files);
    tcase_add_test(t, arms_are_cut);
    tcase_add_test(t, what_disturbs_a_run);
    tcase_add_test(t, imposed_routing_is_what_it_is_called);
    tcase_add_test(t, options_are_copied);
    tcase_add_test(t, csv_begins_with_their_columns);
    tcase_add_test(t, json_is_an_array_with_their_names_and_figures);
    tcase_add_test(t, jsonl_sql_and_markdown);
    tcase_add_test(t, energy_is_in_every_format);
    tcase_add_test(t, memory_is_read_between_samples);
    tcase_add_test(t, a_share_is_of_the_memory_around_it);
    tcase_add_test(t, reports_are_compared);
    tcase_add_loop_test(t, bad_reports_are_named, 0,
                        (int)(sizeof bad_reports / sizeof *bad_reports));
    tcase_add_test(t, pictures_are_well_formed);
    tcase_add_test(t, a_run_reports_what_it_measured);
    tcase_add_test(t, texts_side_by_side);
    tcase_add_test(t, passes_of_several_rows);
    tcase_add_test(t, an_arm_means_what_its_label_says);
    tcase_add_test(t, too_few_runs_are_called_so);
    tcase_add_test(t, a_prompt_suite_reports_turns);
    tcase_add_test(t, wrong_use_is_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
