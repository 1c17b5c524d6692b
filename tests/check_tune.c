/* The tuning table: look-up, the choice among samples, its file whole and damaged, and that what it
 * says cannot change the text of quantised weights. */
#include "engine/base/load.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/cpu/shape_table.h"
#include "engine/device/device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char key[] = "a machine";

START_TEST(test_lookup)
{
    struct tune t = {0};

    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 32, 64, 24), 24);
    ck_assert(tune_set(&t, (struct tune_entry){DTYPE_Q4_0, 32, 64, 8, {0}}));
    ck_assert(tune_set(&t, (struct tune_entry){DTYPE_Q4_0, 128, 64, 48, {0}}));
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 32, 64, 24), 8);
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 128, 64, 24), 48);
    /* the last slice of a matrix */
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 16, 64, 24), 8);
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 100, 64, 24), 48);
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 32, 96, 24), 24);
    ck_assert_int_eq(tune_from(&t, DTYPE_Q8_0, 32, 64, 24), 24);
    ck_assert(tune_set(&t, (struct tune_entry){DTYPE_Q4_0, 32, 64, 9, {0}}));
    ck_assert_int_eq(t.n, 2);
    ck_assert_int_eq(tune_from(&t, DTYPE_Q4_0, 32, 64, 24), 9);
    for (int i = 0; i < TUNE_MAX - 2; i++)
        ck_assert(tune_set(&t, (struct tune_entry){DTYPE_Q8_0, 32, 32 + i, 9, {0}}));
    ck_assert(!tune_set(&t, (struct tune_entry){DTYPE_F32, 32, 32, 9, {0}}));
    ck_assert(tune_set(&t, (struct tune_entry){DTYPE_Q8_0, 32, 32, 10, {0}}));
}
END_TEST

START_TEST(test_shapes)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 32,
                               .ffn = 96,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = DTYPE_Q4_0,
                               .seed = 11};
    struct tiny_model *m = tiny_model_new(&shape);
    struct tune t;

    tune_shapes(&m->model, &t);
    /* a head of q, k, v; 32 rows of gate and up */
    ck_assert_ptr_nonnull(tune_find(&t, DTYPE_Q4_0, 32, 256));
    ck_assert_ptr_nonnull(tune_find(&t, DTYPE_Q4_0, 128, 128)); /* o */
    ck_assert_ptr_nonnull(tune_find(&t, DTYPE_Q4_0, 128, 96));  /* down */
    /* head: fewer rows than a slice has */
    ck_assert_ptr_nonnull(tune_find(&t, m->model.head.type, 50, 256));
    ck_assert_int_eq(t.n, 4);
    tiny_model_free(m);
}
END_TEST

static const int counts[] = {8, 12, 16, 24, 32, 48, 64, 96, 128};
enum { N = (int)(sizeof counts / sizeof *counts) };

/* Samples in which `large_batch` takes ratio(count) of what `small_batch` does, each off by up to
 * `noise`; one pair in two is hit by an interruption. */
static int choose(double (*many_of)(int count), double noise, int otherwise)
{
    double small_batch[N][TUNE_PAIRS], large_batch[N][TUNE_PAIRS];
    unsigned seed = 5;

    for (int i = 0; i < N; i++)
        for (int p = 0; p < TUNE_PAIRS; p++) {
            small_batch[i][p] = 1000.0 * counts[i] * (1 + noise * (double)tiny_random(&seed));
            large_batch[i][p] = 1000.0 * counts[i] * many_of(counts[i]) *
                                (1 + noise * (double)tiny_random(&seed));
            if (p == 3)
                *(i & 1 ? &small_batch[i][p] : &large_batch[i][p]) *= 40;
        }
    return tune_choose(counts, N, (const double(*)[TUNE_PAIRS])small_batch,
                       (const double(*)[TUNE_PAIRS])large_batch, otherwise);
}

static double crosses_at_40(int n)
{
    return n < 40 ? 1.3 : 0.8;
}
static double always(int n)
{
    return 0.7;
}
static double never(int n)
{
    return 1.4;
}
static double same(int n)
{
    return 1.0;
}
static double a_little(int n)
{
    return n < 40 ? 1.02 : 0.98;
}

START_TEST(test_choose)
{
    ck_assert_int_eq(choose(crosses_at_40, 0.02, 24), 48);
    ck_assert_int_eq(choose(crosses_at_40, 0.02, 96), 48);
    ck_assert_int_eq(choose(crosses_at_40, 0.02, 48), 48);
    /* already between the two counts: the same choice, not a new one */
    ck_assert_int_eq(choose(crosses_at_40, 0.02, 40), 40);
    ck_assert_int_eq(choose(always, 0.02, 24), 8);
    ck_assert_int_eq(choose(never, 0.02, 24), TUNE_NEVER);
    ck_assert_int_eq(choose(same, 0.02, 24), 24);
    ck_assert_int_eq(choose(same, 0.3, 24), 24);
    /* real, but not worth it */
    ck_assert_int_eq(choose(a_little, 0.001, 24), 24);
}
END_TEST

START_TEST(test_faster)
{
    static const double plain[] = {100, 101, 99, 100, 102, 98, 100},
                        hit[] = {90, 91, 89, 4000, 92, 88, 90},
                        close[] = {97, 98, 96, 97, 99, 95, 97},
                        wild[] = {60, 150, 70, 140, 65, 145, 60};

    ck_assert(tune_faster(plain, hit)); /* one interruption does not hide it */
    ck_assert(!tune_faster(hit, plain));
    ck_assert(!tune_faster(plain, close)); /* 3 % is not worth it */
    ck_assert(!tune_faster(plain, wild));  /* nor is what may be chance */
    ck_assert(!tune_faster(plain, plain));
}
END_TEST

/* The fastest of several, unless the machine was busy or nothing is gained. */
START_TEST(test_fastest)
{
    double ns[4][TUNE_PAIRS];
    static const double of[4] = {100, 97, 80, 90};

    for (int i = 0; i < 4; i++)
        for (int p = 0; p < TUNE_PAIRS; p++)
            ns[i][p] = of[i] + (p % 3) * 0.5 + (p == 2 ? 300 : 0); /* one interruption each */
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 4, 0), 2);
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 4, 2), 2);
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 2, 0), 0); /* 3 % */
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 2, 1), 1);
    for (int p = 0; p < TUNE_PAIRS; p++) /* faster at times, slower at others */
        ns[2][p] = p % 2 ? 60 : 130;
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 3, 0), 0);
    for (int p = 0; p < TUNE_PAIRS; p++)
        ns[0][p] = 100 + 10 * p;
    ck_assert_int_eq(tune_fastest((const double(*)[TUNE_PAIRS])ns, 4, 0), -1);
}
END_TEST

START_TEST(test_text)
{
    struct tune t = {0}, back;
    struct error e;
    char text[4000];
    size_t n;

    tune_set(&t, (struct tune_entry){DTYPE_Q4_0, 128, 4096, 48, {0}});
    tune_set(&t, (struct tune_entry){DTYPE_BF16, 32, 448, 2, {0}});
    tune_set(&t, (struct tune_entry){DTYPE_Q6_K, 64, 2048, TUNE_NEVER, {0}});
    tune_decode_set(&t, (struct tune_decode){DTYPE_Q4_K, 16, 11, {0}});
    tune_decode_set(&t, (struct tune_decode){DTYPE_Q4_K, 16, 12, {0}});
    tune_pattern_set(&t, (struct tune_pattern){DTYPE_Q4_0, 4096, 2, READ_FOUR_TWICE, {0}});
    tune_pattern_set(&t, (struct tune_pattern){DTYPE_F16, 448, 1, READ_ONE_PLAIN, {0}});
    tune_pattern_set(&t, (struct tune_pattern){DTYPE_Q4_0, 4096, 2, READ_ONE_FIRST, {0}});
    n = tune_text(&t, key, text, sizeof text);
    ck_assert_str_eq(text, "a machine\nq4_0 128 4096 48\nbf16 32 448 2\nq6_k 64 2048 never\n"
                           "decode q4_k 16 12\npattern q4_0 4096 2 one-first\n"
                           "pattern f16 448 1 one-plain\n");
    ck_assert_int_eq(tune_parse(&back, key, text, n, &e), 0);
    ck_assert_int_eq(back.n, 3);
    ck_assert_int_eq(back.n_pattern, 2);
    ck_assert_int_eq(tune_pattern(&back, DTYPE_Q4_0, 4096, 2)->id, READ_ONE_FIRST);
    ck_assert_int_eq(tune_pattern(&back, DTYPE_F16, 448, 1)->id, READ_ONE_PLAIN);
    ck_assert_ptr_null(tune_pattern(&back, DTYPE_Q4_0, 4096, 1));
    ck_assert_ptr_null(tune_pattern(&back, DTYPE_Q4_0, 2048, 2));
    ck_assert_ptr_null(tune_pattern(&back, DTYPE_Q8_0, 4096, 2));
    ck_assert_int_eq(tune_decode(&back, DTYPE_Q4_K, 16), 12);
    ck_assert_int_eq(tune_decode(&back, DTYPE_Q4_K, 8), 0);
    ck_assert_int_eq(tune_decode(&back, DTYPE_Q4_0, 16), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(tune_from(&back, t.entry[i].type, t.entry[i].rows, t.entry[i].cols, 0),
                         t.entry[i].from);
    /* no room: nothing rather than half */
    ck_assert_uint_eq(tune_text(&t, key, text, 30), 0);
    /* what was measured beside others says so; what hardly was does not */
    t.entry[0].when.busy = 62;
    t.entry[2].when.busy = 100;
    t.decode[0].when.busy = TUNE_BUSY - 1;
    t.pattern[0].when.busy = TUNE_BUSY;
    n = tune_text(&t, key, text, sizeof text);
    ck_assert_str_eq(text, "a machine\nq4_0 128 4096 48 busy 62\nbf16 32 448 2\n"
                           "q6_k 64 2048 never busy 100\ndecode q4_k 16 12\n"
                           "pattern q4_0 4096 2 one-first busy 10\npattern f16 448 1 one-plain\n");
    ck_assert_int_eq(tune_parse(&back, key, text, n, &e), 0);
    ck_assert_int_eq(back.entry[0].when.busy, 62);
    ck_assert_int_eq(back.entry[0].from, 48);
    ck_assert_int_eq(back.entry[1].when.busy, 0);
    ck_assert_int_eq(back.entry[2].when.busy, 100);
    ck_assert_int_eq(back.entry[2].from, TUNE_NEVER);
    ck_assert_int_eq(back.decode[0].when.busy, 0);
    ck_assert_int_eq(back.pattern[0].when.busy, 10);
    /* another machine's: no error, and nothing of it counts */
    ck_assert_int_eq(tune_parse(&back, "a machin", text, n, &e), 0);
    ck_assert_int_eq(back.n, 0);
    ck_assert_int_eq(tune_parse(&back, "another", text, n, &e), 0);
    ck_assert_int_eq(back.n, 0);
    /* cut short: a whole number of lines, or refused */
    for (size_t cut = sizeof key; cut < n; cut++)
        if (text[cut - 1] != '\n') {
            ck_assert_int_eq(tune_parse(&back, key, text, cut, &e), ERR_INPUT);
            ck_assert_int_eq(back.n, 0);
        }
}
END_TEST

START_TEST(test_hostile)
{
    static const char *const lines[] = {
        "q4_0 128 4096",
        "q4_0 128 4096 48 x",
        "q9_9 128 4096 48",
        "q4_0 -128 4096 48",
        "q4_0 128 0 48",
        "q4_0 128 4096 1",
        "q4_0 128 4096 100000",
        "q4_0 128 4096 -5",
        "q4_0 128 4096 99999999999999999999",
        "q4_0 99999999999 4096 48",
        "q4_0 128 4096 4x",
        "q4_0 128 4096 always",
        "decode q4_0 4 5",
        "decode q4_0 4 0",
        "decode q4_0 4",
        "decode q4_0 100000 1",
        "decode x 4 2",
        "pattern q4_0 4096 2",
        "pattern q4_0 4096 2 five-twice",
        "pattern q4_0 4096 0 one-first",
        "pattern q4_0 0 2 one-first",
        "pattern q4_0 4096 2 one-first x",
        "pattern q4_0 4096 100000 one-first",
        "q4_0 128 4096 48 busy",
        "q4_0 128 4096 48 busy 9",
        "q4_0 128 4096 48 busy 101",
        "q4_0 128 4096 48 busy -20",
        "q4_0 128 4096 48 busy 20 busy 20",
        "q4_0 128 4096 48 busy 99999999999",
        " busy 20",
        "decode q4_0 4 5 busy 20",
        "pattern q4_0 4096 2 busy 20",
        "",
        "\x1b[2J",
        ("q4_0 128 4096 48                                                                         "
         " "
         "                                      "),
    };
    struct tune t;
    struct error e;
    char text[TUNE_MAX * 40 + 400] = "a machine\n";

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "a machine\nq8_0 32 64 8\n%s\n", lines[i]);
        ck_assert_msg(tune_parse(&t, key, text, strlen(text), &e) == ERR_INPUT, "taken: '%s'",
                      lines[i]);
        ck_assert_int_eq(t.n, 0);
        ck_assert_ptr_nonnull(strstr(e.text, "line 3"));
    }
    ck_assert_int_eq(tune_parse(&t, key, "a machine\nq8_0 32 64 8\0\n", 24, &e), ERR_INPUT);
    snprintf(text, sizeof text, "a machine\n");
    for (int i = 0; i <= TUNE_MAX; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "q8_0 32 %d 8\n", 32 + i);
    ck_assert_int_eq(tune_parse(&t, key, text, strlen(text), &e), ERR_INPUT);
}
END_TEST

START_TEST(test_file)
{
    struct tune t = {.n = 1, .entry = {{DTYPE_Q4_0, 32, 64, 12, {0}}}}, back;
    char path[500], large[80000];
    struct error e;
    FILE *f;

    snprintf(path, sizeof path, "%s/table", support_tmpdir());
    ck_assert_int_eq(tune_read(&back, path, key, &e), 0); /* none yet */
    ck_assert_int_eq(back.n, 0);
    ck_assert_int_eq(tune_write(&t, path, key, &e), 0);
    ck_assert_int_eq(tune_read(&back, path, key, &e), 0);
    ck_assert_int_eq(tune_from(&back, DTYPE_Q4_0, 32, 64, 0), 12);
    memset(large, 'x', sizeof large);
    f = fopen(path, "w");
    fwrite(large, 1, sizeof large, f);
    fclose(f);
    ck_assert_int_eq(tune_read(&back, path, key, &e), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    /* a folder in its place */
    ck_assert_int_eq(tune_read(&back, support_tmpdir(), key, &e), ERR_IO);
    snprintf(path, sizeof path, "%s/none/below/table", support_tmpdir());
    ck_assert_int_eq(tune_write(&t, path, key, &e), ERR_IO);
}
END_TEST

static void read_all(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");

    ck_assert_ptr_nonnull(f);
    out[fread(out, 1, size - 1, f)] = 0;
    fclose(f);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

/* How much others compute, of a machine's own figures. */
START_TEST(test_load)
{
    struct load a = {.own = 1000}, b = {.own = 1000}, none = {0};
    const uint64_t tick = 10000000;

    load_parse(&a, "cpu  100 20 30 800 50 1 2 7 0 0\ncpu0 1\ncpu1 2\nintr 5\n", tick);
    ck_assert_uint_eq(a.busy, 160 * tick);
    ck_assert_uint_eq(a.all, 1010 * tick);
    ck_assert_int_eq(a.cpus, 2);
    /* 102 ticks of two CPUs, 54 of them busy: a tick of each may belong to the while before */
    load_parse(&b, "cpu  120 30 40 848 50 5 4 15\ncpu0 1\ncpu1 2\n", tick);
    ck_assert_int_eq(load_others(&a, &b, tick), 50);
    b.own += 40 * tick; /* of which this process computed 40 */
    ck_assert_int_eq(load_others(&a, &b, tick), 11);
    b.own += 40 * tick;
    ck_assert_int_eq(load_others(&a, &b, tick), 0);
    ck_assert_int_eq(load_others(&none, &a, tick), 0); /* no first look */
    ck_assert_int_eq(load_others(&a, &a, tick), 0);    /* no time between them */
    load_parse(&b, "cpu", tick);
    ck_assert_uint_eq(b.all, 0);
    ck_assert_int_eq(load_others(&a, &b, tick), 0);
    load_parse(&b, "", tick);
    ck_assert_uint_eq(b.all, 0);
}
END_TEST

/* What was measured beside others is repeated where they are half as busy, once a process. */
START_TEST(test_again)
{
    ck_assert(tune_again((struct tune_when){.busy = 60}, 30));
    ck_assert(!tune_again((struct tune_when){.busy = 60}, 31));
    ck_assert(tune_again((struct tune_when){.busy = TUNE_BUSY}, 0));
    ck_assert(!tune_again((struct tune_when){.busy = TUNE_BUSY - 1}, 0)); /* was quiet */
    ck_assert(!tune_again((struct tune_when){.busy = 60, .here = true}, 0));
}
END_TEST

/* The doctor's count: tables of this version only, damaged ones left out. */
START_TEST(test_folder)
{
    char folder[500], path[800];
    struct tune_count c;

    snprintf(folder, sizeof folder, "%s/count", support_tmpdir());
    tune_folder_count(folder, &c); /* there is none */
    ck_assert_int_eq(c.choices, 0);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/kernels-1.tune", folder);
    write_text(path, TUNE_KEY_PREFIX "a\nq4_0 32 64 8\nq4_0 32 96 8 busy 30\nbf16 32 64 8 busy 20\n"
                                     "decode q4_0 4 3 busy 70\npattern q4_0 64 4 one-first\n");
    snprintf(path, sizeof path, "%s/kernels-2.tune", folder);
    write_text(path, TUNE_KEY_PREFIX "b\npattern q4_0 64 4 one-first busy 90\nrubbish\n");
    snprintf(path, sizeof path, "%s/kernels-3.tune", folder);
    write_text(path, "moetop 0.1 thresholds 3: a\nq4_0 32 64 8\n");
    snprintf(path, sizeof path, "%s/kernels-4.tune.tmp", folder);
    write_text(path, TUNE_KEY_PREFIX "d\nq4_0 32 64 8 busy 99\n");
    snprintf(path, sizeof path, "%s/kernels-.tune", folder);
    write_text(path, TUNE_KEY_PREFIX "e\nq4_0 32 64 8\n");
    tune_folder_count(folder, &c);
    ck_assert_int_eq(c.choices, 6);
    ck_assert_int_eq(c.busy, 3);
    ck_assert_int_eq(c.floats, 1);
    ck_assert_int_eq(c.most, 70);
}
END_TEST

#define TOKENS 40

/* The device with this folder: what two layers make of some rows; how many shapes `tune` measured.
 */
static int run(struct tiny_model *m, const char *folder, enum device_tune tune, float *x,
               char *said)
{
    struct device_config c = {.model = &m->model,
                              .n_threads = 2,
                              .max_rows = TOKENS,
                              .context = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .rope_cos = {m->rope_cos},
                              .rope_sin = {m->rope_sin},
                              .cache_dir = folder,
                              .tune = tune,
                              .float_library = true};
    struct layers_job j = {.first = 0, .last = 2, .rows = TOKENS, .x = x};
    int experts[2 * TOKENS * 2], n = 0, more;
    float weights[2 * TOKENS * 2];
    unsigned seed = 9;
    struct device *d;
    struct error e;

    c.log = (void (*)(void *, const char *))(void *)strcpy;
    c.log_ctx = said;
    j.experts = experts;
    j.weights = weights;
    *said = 0;
    ck_assert_msg(cpu_device_ops.open(&d, &c, &e) == 0, "%s", e.text);
    /* on a busy machine it gives up after a while, and goes on here */
    while ((more = cpu_device_ops.tune(d, -1)) > 0)
        n += more;
    for (int i = 0; i < TOKENS * 256; i++)
        x[i] = tiny_random(&seed);
    ck_assert_int_eq(cpu_device_ops.layers(d, &j, &e), 0);
    cpu_device_ops.close(d);
    return n;
}

/* The one table of a folder. "": there is none. */
static const char *table_of(const char *folder)
{
    static char path[800];
    struct dirent *p;
    DIR *d = opendir(folder);

    path[0] = 0;
    while (d && (p = readdir(d)))
        if (strncmp(p->d_name, "kernels-", 8) == 0)
            snprintf(path, sizeof path, "%s/%s", folder, p->d_name);
    if (d)
        closedir(d);
    return path;
}

/* Every threshold of the table becomes `to`. */
static void rewrite(const char *path, const char *to)
{
    static char old[20000], text[20000];
    FILE *f = fopen(path, "r");
    char *line;

    old[fread(old, 1, sizeof old - 1, f)] = 0;
    fclose(f);
    text[0] = 0;
    line = strtok(old, "\n");
    sprintf(text, "%s\n", line);
    while ((line = strtok(NULL, "\n"))) {
        if (strncmp(line, "pattern ", 8) == 0)
            continue;
        if (strstr(line, " busy "))
            *strstr(line, " busy ") = 0;
        *strrchr(line, ' ') = 0;
        sprintf(text + strlen(text), "%s %s\n", line, to);
    }
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q4_K};

/* Either kernel for every shape, measured or built in: the same bits. */
START_TEST(test_same_bits)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 256,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = types[_i],
                               .width = cpu_pack_width(),
                               .seed = 11};
    static float built_in[TOKENS * 256], x[TOKENS * 256];
    struct tiny_model *m = tiny_model_new(&shape);
    char folder[500], said[2000];
    int n;

    snprintf(folder, sizeof folder, "%s/bits%d", support_tmpdir(), _i);
    ck_assert_int_eq(run(m, NULL, DEVICE_TUNE_ON, built_in, said), 0); /* nowhere to keep it */
    ck_assert_int_eq(run(m, folder, DEVICE_TUNE_OFF, x, said), 0);
    ck_assert_str_eq(table_of(folder), "");
    n = run(m, folder, DEVICE_TUNE_ON, x, said);
    ck_assert_mem_eq(x, built_in, sizeof x);
    if (kernels_active()->small_batch_set) {
        ck_assert_int_gt(n, 0);
        for (int k = 0; k < 2; k++) {
            rewrite(table_of(folder), k ? "never" : "2");
            ck_assert_int_eq(run(m, folder, DEVICE_TUNE_ON, x, said), 0);
            ck_assert_mem_eq(x, built_in, sizeof x);
        }
        rewrite(table_of(folder), "rubbish");
        ck_assert_int_eq(run(m, folder, DEVICE_TUNE_ON, x, said), n);
        ck_assert_ptr_nonnull(strstr(said, "line 2 is no measured threshold"));
        ck_assert_mem_eq(x, built_in, sizeof x);
        ck_assert_int_eq(run(m, folder, DEVICE_TUNE_ON, x, said), 0); /* it was replaced */
        ck_assert_str_eq(said, "");
        ck_assert_int_eq(run(m, folder, DEVICE_TUNE_AGAIN, x, said), n);
    }
    tiny_model_free(m);
}
END_TEST

/* Float weights: chosen before the first token, once; what the file says is what runs, so that a
 * second run cannot differ from the first. */
START_TEST(test_float)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 96,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = DTYPE_BF16,
                               .seed = 11};
    static float first[TOKENS * 256], x[TOKENS * 256], own[TOKENS * 256], library[TOKENS * 256];
    struct tiny_model *m = tiny_model_new(&shape);
    char folder[500], said[2000], text[4000], again[4000];

    snprintf(folder, sizeof folder, "%s/float", support_tmpdir());
    ck_assert_int_eq(run(m, folder, DEVICE_TUNE_ON, first, said), 0);
    if (!table_of(folder)[0]) { /* no library here */
        tiny_model_free(m);
        return;
    }
    read_all(table_of(folder), text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "\nbf16 32 256 "));
    for (int i = 0; i < 3; i++) {
        run(m, folder, DEVICE_TUNE_ON, x, said);
        ck_assert_mem_eq(x, first, sizeof x);
        read_all(table_of(folder), again, sizeof again);
        ck_assert_str_eq(again, text);
    }
    rewrite(table_of(folder), "never");
    run(m, folder, DEVICE_TUNE_ON, own, said);
    rewrite(table_of(folder), "2");
    run(m, folder, DEVICE_TUNE_ON, library, said);
    ck_assert(memcmp(own, library, sizeof own) != 0); /* the file was obeyed */
    tiny_model_free(m);
}
END_TEST

/* Fewer threads may decode only where nobody asked for a number; what is found is kept, and the
 * text stays. */
START_TEST(test_decode)
{
    struct tiny_shape shape = {.layers = 5,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 96,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = DTYPE_Q8_0,
                               .width = cpu_pack_width(),
                               .seed = 11};
    struct tiny_model *m = tiny_model_new(&shape);
    struct device_config c = {.model = &m->model,
                              .n_threads = 3,
                              .max_rows = 4,
                              .context = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .rope_cos = {m->rope_cos},
                              .rope_sin = {m->rope_sin}};
    char folder[500], text[4000];
    float x[2][256];
    int experts[5 * 2];
    float weights[5 * 2];
    struct device *d;
    struct error e;

    m->model.type = DTYPE_Q8_0;
    snprintf(folder, sizeof folder, "%s/decode", support_tmpdir());
    c.cache_dir = folder;
    for (int asked = 1; asked >= 0; asked--) {
        struct device_stats before, after;
        int measured = 0;

        c.fewer_threads = !asked;
        ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
        /* the shapes; no position, no decoding */
        while (cpu_device_ops.tune(d, -1) > 0)
            ;
        for (int pos = 0; pos < 8; pos++) {
            struct layers_job j = {.first = 0,
                                   .last = 5,
                                   .rows = 1,
                                   .pos = pos,
                                   .x = x[asked],
                                   .experts = experts,
                                   .weights = weights};
            unsigned seed = (unsigned)pos;

            cpu_device_ops.stats(d, &before);
            measured += cpu_device_ops.tune(d, pos);
            cpu_device_ops.stats(d, &after);
            /* measuring is no work done */
            ck_assert_uint_eq(before.jobs, after.jobs);
            for (int i = 0; i < 256; i++)
                x[asked][i] = tiny_random(&seed);
            ck_assert_int_eq(cpu_device_ops.layers(d, &j, &e), 0);
        }
        ck_assert_int_eq(measured, !asked && topology_nodes() == 1);
        cpu_device_ops.close(d);
    }
    ck_assert_mem_eq(x[0], x[1], sizeof x[0]);
    if (topology_nodes() > 1) {
        tiny_model_free(m);
        return;
    }
    read_all(table_of(folder), text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "\ndecode q8_0 3 "));
    /* what other suites took beside this one is no reason to measure again */
    for (char *mark; (mark = strstr(text, " busy "));)
        memmove(mark, strchr(mark, '\n'), strlen(strchr(mark, '\n')) + 1);
    write_text(table_of(folder), text);
    ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
    ck_assert_int_eq(cpu_device_ops.tune(d, 0), 0); /* known from the file */
    cpu_device_ops.close(d);
    tiny_model_free(m);
}
END_TEST

/* A choice that the file says was measured on a busy machine is measured again, once, where the
 * machine is quieter since the device was opened, and stays where it is not. */
START_TEST(test_busy)
{
    static const char idle[] = "cpu 0 0 0 1000000 0 0 0 0\ncpu0 1\n",
                      crowded[] = "cpu 990000 0 0 1010000 0 0 0 0\ncpu0 1\n";
    struct tiny_shape shape = {.layers = 5,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 256,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = DTYPE_Q8_0,
                               .width = cpu_pack_width(),
                               .seed = 11};
    struct tiny_model *m = tiny_model_new(&shape);
    struct device_config c = {.model = &m->model,
                              .n_threads = 4,
                              .max_rows = 4,
                              .context = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .rope_cos = {m->rope_cos},
                              .rope_sin = {m->rope_sin},
                              .fewer_threads = true};
    char folder[500], stat[600], text[4000], made[4000], line[80], *end;
    const char *path;
    struct cpu_device *d;
    struct device *device;
    struct error e;
    int n, repeated;

    m->model.type = DTYPE_Q8_0;
    snprintf(folder, sizeof folder, "%s/busy", support_tmpdir());
    snprintf(stat, sizeof stat, "%s/stat", support_tmpdir());
    c.cache_dir = folder;
    ck_assert_int_eq(cpu_device_ops.open(&device, &c, &e), 0);
    for (n = 0; n < 20 && cpu_device_ops.tune(device, 0) > 0; n++)
        ;
    ck_assert_int_lt(n, 20); /* nothing is measured twice */
    cpu_device_ops.close(device);
    path = table_of(folder);
    if (!path[0]) { /* several memory nodes, and one kernel for all */
        tiny_model_free(m);
        return;
    }
    /* every line becomes one of a busy machine */
    read_all(path, text, sizeof text);
    end = strchr(text, '\n') + 1;
    memcpy(made, text, (size_t)(end - text));
    made[end - text] = 0;
    for (char *p = strtok(end, "\n"); p; p = strtok(NULL, "\n")) {
        if (strstr(p, " busy "))
            *strstr(p, " busy ") = 0;
        snprintf(line, sizeof line, "%s busy 100\n", p);
        strcat(made, line);
    }
    for (int quiet = 0; quiet < 2; quiet++) {
        write_text(path, made);
        write_text(stat, idle);
        ck_assert_int_eq(cpu_device_ops.open(&device, &c, &e), 0);
        d = (struct cpu_device *)device;
        d->stat_path = stat;
        tuning_watch(d, &d->since, d->n_threads);
        if (!quiet)
            write_text(stat, crowded);
        for (n = repeated = 0; n < 20; n++) {
            int more = cpu_device_ops.tune(device, 0);

            repeated += more;
            if (!more)
                break;
        }
        ck_assert_int_lt(n, 20);
        cpu_device_ops.close(device);
        read_all(path, text, sizeof text);
        if (quiet) {
            ck_assert_int_gt(repeated, 0);
            ck_assert_msg(!strstr(text, "busy 100"), "kept: %s", text);
        } else {
            ck_assert_int_eq(repeated, 0);
            ck_assert_str_eq(text, made);
        }
    }
    tiny_model_free(m);
}
END_TEST

/* Patterns are measured on the model's own weights, whatever else the machine does, once for each
 * type and row length, unless it is busy; and change no bit. */
START_TEST(test_patterns)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 512, /* whole superblocks */
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = types[_i],
                               .width = cpu_pack_width(),
                               .seed = 11};
    struct tiny_model *m = tiny_model_new(&shape);
    struct device_config c = {.model = &m->model,
                              .n_threads = 2,
                              .max_rows = 4,
                              .context = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .rope_cos = {m->rope_cos},
                              .rope_sin = {m->rope_sin}};
    float x[2][256], weights[2 * 2];
    int experts[2 * 2], n;
    struct tune fresh = {0};
    struct device *d;
    struct error e;

    ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
    /* too small to be measured unasked */
    ck_assert_int_eq(tuning_patterns((struct cpu_device *)d, TUNE_PATTERN_LEAST, &fresh), 0);
    n = tuning_patterns((struct cpu_device *)d, 0, &fresh);
    ck_assert_int_ge(n, 0);
    ck_assert_int_eq(n, fresh.n_pattern);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(fresh.pattern[i].threads, 2);
        ck_assert(fresh.pattern[i].cols == 256 || fresh.pattern[i].cols == 512);
    }
    for (int id = 0; id < READ_PATTERNS; id++) {
        struct layers_job j = {.first = 0,
                               .last = 2,
                               .rows = 1,
                               .x = x[id > 0],
                               .experts = experts,
                               .weights = weights};
        unsigned seed = 3;

        ((struct cpu_device *)d)->pattern = (enum pattern_id)id;
        for (int i = 0; i < 256; i++)
            x[id > 0][i] = tiny_random(&seed);
        ck_assert_int_eq(cpu_device_ops.layers(d, &j, &e), 0);
        ck_assert_mem_eq(x[0], x[id > 0], sizeof x[0]);
    }
    cpu_device_ops.close(d);
    tiny_model_free(m);
}
END_TEST

/* A folder that cannot be written to: float weights keep the built-in choice, since no later run
 * could repeat another one; and one line says so. */
START_TEST(test_unkept)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = 96,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = DTYPE_BF16,
                               .seed = 11};
    static float built_in[TOKENS * 256], x[TOKENS * 256];
    struct tiny_model *m = tiny_model_new(&shape);
    char folder[500], said[2000];
    FILE *f;

    snprintf(folder, sizeof folder, "%s/file", support_tmpdir());
    f = fopen(folder, "w");
    fclose(f);
    run(m, NULL, DEVICE_TUNE_OFF, built_in, said);
    run(m, folder, DEVICE_TUNE_ON, x, said);
    ck_assert_mem_eq(x, built_in, sizeof x);
    if (kernels_active() != &kernels_scalar)
        ck_assert_ptr_nonnull(strstr(said, "will be measured again"));
    tiny_model_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tune");
    TCase *t = tcase_create("tune");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, test_lookup);
    tcase_add_test(t, test_shapes);
    tcase_add_test(t, test_choose);
    tcase_add_test(t, test_faster);
    tcase_add_test(t, test_fastest);
    tcase_add_test(t, test_text);
    tcase_add_test(t, test_hostile);
    tcase_add_test(t, test_file);
    tcase_add_loop_test(t, test_same_bits, 0, (int)(sizeof types / sizeof *types));
    tcase_add_test(t, test_float);
    tcase_add_test(t, test_unkept);
    tcase_add_test(t, test_decode);
    tcase_add_test(t, test_busy);
    tcase_add_test(t, test_load);
    tcase_add_test(t, test_again);
    tcase_add_test(t, test_folder);
    tcase_add_loop_test(t, test_patterns, 0, (int)(sizeof types / sizeof *types));
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
