/* Experts that stay on the disk (engine/model/expert_cache.h): the same bits as with all of them in
 * memory, whatever the cache holds, the threads, the company and the placement; what a file that
 * changes or fails does; and what is counted. */
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/file/direct_rate.h"
#include "engine/file/direct_ring.h"
#include "engine/model/expert_cache.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/support.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROMPT 21
#define STEPS 10

static struct error e;

static struct engine_config config_of(const char *path, int convert, int threads)
{
    return (struct engine_config){.model_path = path,
                                  .context = 128,
                                  .n_threads = threads,
                                  .ubatch = 16,
                                  .convert = convert,
                                  .no_tokenizer = true};
}

/* What holds so many experts of a model, the largest ones. */
static uint64_t cache_for(const char *path, int convert, int experts)
{
    struct model_options o = {.convert = convert, .width = cpu_pack_width(), .n_threads = 1};
    struct model_footprint none, all;
    struct model *m;
    int paged = 0;

    o.expert_cache = 1;
    ck_assert_msg(model_inspect(&m, path, &o, &none, &e) == 0, "%s", e.text);
    for (int l = 0; l < m->hp.n_layers; l++)
        paged += hparams_layer(&m->hp, l)->ffn.experts;
    model_free(m);
    o.expert_cache = UINT64_MAX / 2;
    ck_assert_int_eq(model_inspect(&m, path, &o, &all, &e), 0);
    model_free(m);
    ck_assert_int_gt(paged, 0);
    return none.cache + (all.cache - none.cache) / (uint64_t)paged * (uint64_t)experts;
}

static struct engine *open_with(struct engine_config c, uint64_t cache)
{
    struct engine *g = NULL;

    c.expert_cache = cache;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s: %s", c.model_path, e.text);
    return g;
}

static int vocabulary(const struct engine *g)
{
    return engine_info(g)->model->hp.n_vocab;
}

/* Logits of a prompt in chunks, then of tokens one by one: (PROMPT + STEPS, vocabulary). */
static float *logits_of(struct engine *g)
{
    size_t vocab = (size_t)vocabulary(g);
    float *all = mem_alloc((PROMPT + STEPS) * vocab, sizeof *all);
    int ids[PROMPT + STEPS];

    for (int i = 0; i < PROMPT + STEPS; i++)
        ids[i] = (i * 37 + 11) % (int)vocab;
    ck_assert_msg(engine_eval(g, ids, PROMPT, all, true, &e) == 0, "%s", e.text);
    for (int i = PROMPT; i < PROMPT + STEPS; i++)
        ck_assert_msg(engine_eval(g, ids + i, 1, all + (size_t)i * vocab, false, &e) == 0, "%s",
                      e.text);
    return all;
}

static void same_logits(struct engine *g, const float *want, const char *what)
{
    float *got = logits_of(g);

    ck_assert_msg(memcmp(got, want, (PROMPT + STEPS) * (size_t)vocabulary(g) * sizeof *got) == 0,
                  "%s: other bits than in memory", what);
    mem_free(got);
}

/* The demo model in another type. */
static const char *exported(const char *type)
{
    static char out[4300];
    struct export_options o = {.type = export_type_find(type), .n_threads = 2};
    struct export_report r;

    snprintf(out, sizeof out, "%s/%s.gguf", support_tmpdir(), type);
    ck_assert_msg(model_export(support_demo(), out, &o, &r, &e) == 0, "%s", e.text);
    return out;
}

static const struct {
    const char *model, *type; /* type: of the demo model; model NULL */
    int convert;
} models[] = {
    {NULL, "Q8_0", -1},
    {NULL, "Q4_0", -1},
    {NULL, "Q4_K_M", -1},
    {NULL, "BF16", -1},
    {"golden/phimoe/phimoe-16x-bf16", NULL, -1},
    {"golden/phimoe/phimoe-16x-bf16", NULL, DTYPE_Q8_0},
    {"golden/phimoe/phimoe-quirk-f32", NULL, -1},
    {"golden/families/mixtral", NULL, -1},
    {"golden/families/gpt_oss", NULL, -1},       /* turned, gate and up take turns, biases */
    {"golden/families/gpt_oss-mxfp4", NULL, -1}, /* packed, the same */
    {"golden/families/qwen3_moe-gptq-g32-act", NULL, -1}, /* columns in an order of their own */
    {"golden/families/deepseek_v3", NULL, -1},            /* dense layers, a shared expert */
    {"golden/families/granitemoehybrid", NULL, -1},       /* gate and up in one tensor */
    {"golden/families/gemma4", NULL, -1},                 /* norms around the experts */
};

START_TEST(bits_are_those_of_memory)
{
    const char *path = models[_i].model ? support_path(models[_i].model)
                                        : exported(models[_i].type);
    struct engine_config c = config_of(path, models[_i].convert, 2);
    struct engine *g = open_with(c, 0);
    float *want = logits_of(g);
    int sizes[] = {2, 3, 9, 1000};

    engine_close(g);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        c.n_threads = 1 + (int)i % 2;
        g = open_with(c, cache_for(path, models[_i].convert, sizes[i]));
        ck_assert_int_gt(engine_telemetry(g)->disk.slots, 0);
        same_logits(g, want, path);
        engine_close(g);
    }
    mem_free(want);
}
END_TEST

START_TEST(what_is_counted_adds_up)
{
    struct engine *g = open_with(config_of(support_demo(), -1, 2),
                                 cache_for(support_demo(), -1, 40));
    const struct telemetry *t = engine_telemetry(g);
    const struct hparams *hp = &engine_info(g)->model->hp;
    float *logits = logits_of(g);
    int here = 0;

    ck_assert_int_eq(t->disk.slots, 40);
    ck_assert_int_eq(t->disk.experts, hp->n_layers * hp->common.ffn.experts);
    /* a pass asks for each expert once: ten of one row, and the prompt's */
    ck_assert_uint_ge(t->disk.hits + t->disk.misses,
                      (uint64_t)(STEPS * hp->n_layers * hp->n_experts_used));
    ck_assert_uint_gt(t->disk.hits, 0);
    ck_assert_uint_gt(t->disk.misses, 0);
    ck_assert_uint_le(t->disk.guess_hits, t->disk.guesses);
    ck_assert_uint_gt(t->disk.guess_hits, 0);
    ck_assert_uint_gt(t->disk.read_bytes, 0);
    ck_assert_uint_gt(t->disk.read_ns, 0);
    for (int i = 0; i < t->n_layers * t->n_experts; i++)
        here += t->here[i];
    ck_assert_int_eq(here, t->disk.here);
    ck_assert_int_le(here, 40);
    ck_assert_int_gt(here, 20);
    mem_free(logits);
    engine_close(g);
}
END_TEST

START_TEST(all_of_them_are_read_once)
{
    struct engine *g = open_with(config_of(support_demo(), -1, 1), UINT64_MAX / 2);
    const struct telemetry *t = engine_telemetry(g);
    float *first = logits_of(g);
    uint64_t misses = t->disk.misses;

    ck_assert_uint_le(misses, (uint64_t)t->disk.experts);
    engine_session_clear(g);
    same_logits(g, first, "again");
    ck_assert_uint_le(t->disk.misses, (uint64_t)t->disk.experts);
    ck_assert_uint_eq(t->disk.misses, misses);
    mem_free(first);
    engine_close(g);
}
END_TEST

START_TEST(memory_is_what_was_asked_for)
{
    uint64_t cache = cache_for(support_demo(), -1, 7);
    struct model_options o = {
        .convert = -1, .width = cpu_pack_width(), .n_threads = 1, .expert_cache = cache};
    size_t before = mem_pages_total();
    struct model_footprint needs;
    struct model *m;

    ck_assert_int_eq(model_inspect(&m, support_demo(), &o, &needs, &e), 0);
    model_free(m);
    ck_assert_uint_eq(needs.cache, cache);
    ck_assert_uint_gt(needs.on_disk, needs.cache);
    ck_assert_int_eq(model_load(&m, support_demo(), &o, &e), 0);
    ck_assert_uint_eq(mem_pages_total() - before,
                      (needs.packed + 4095) / 4096 * 4096 + needs.cache);
    ck_assert_uint_eq(expert_cache_stats(m->cache).bytes, cache);
    model_free(m);
    o.expert_cache = cache_for(support_demo(), -1, 1);
    ck_assert_int_eq(model_load(&m, support_demo(), &o, &e), ERR_FIT);
    ck_assert_msg(strstr(e.text, "--expert-cache") != NULL, "%s", e.text);
    o.expert_cache = 0;
    ck_assert_int_eq(model_load(&m, support_demo(), &o, &e), 0);
    ck_assert_ptr_null(m->cache);
    model_free(m);
}
END_TEST

START_TEST(sessions_share_it)
{
    struct engine_config c = config_of(support_demo(), -1, 2);
    struct engine *g;
    struct session *s[3];
    float *one[3], *got;
    int ids[3] = {5, 17, 400};
    size_t vocab;

    for (int paged = 0; paged < 2; paged++) {
        g = open_with(c, paged ? cache_for(support_demo(), -1, 5) : 0);
        vocab = (size_t)vocabulary(g);
        s[0] = engine_session(g);
        for (int i = 1; i < 3; i++)
            ck_assert_int_eq(engine_session_open(g, &s[i], &e), 0);
        for (int n = 0; n < 6; n++) {
            for (int i = 0; i < 3; i++)
                ids[i] = (ids[i] * 7 + 3) % (int)vocab;
            ck_assert_msg(engine_sessions_eval(s, 3, ids, &e) == 0, "%s", e.text);
        }
        for (int i = 0; i < 3; i++) {
            got = mem_alloc(vocab, sizeof *got);
            ck_assert_int_eq(engine_session_eval(s[i], &i, 1, 0, got, false, &e), 0);
            if (paged)
                ck_assert_int_eq(memcmp(got, one[i], vocab * sizeof *got), 0);
            else
                one[i] = got;
            if (paged)
                mem_free(got);
        }
        for (int i = 0; i < 3; i++)
            ids[i] = (int[]){5, 17, 400}[i];
        engine_close(g);
    }
    for (int i = 0; i < 3; i++)
        mem_free(one[i]);
}
END_TEST

static void place(struct engine *g, const char *spec)
{
    if (engine_place(g, spec, &e) < 0 || engine_settle(g, &e) < 0)
        ck_abort_msg("%s: %s", spec, e.text);
}

START_TEST(placements_change_nothing)
{
    static const struct device_ops *const backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};
    static const char *const plans[] = {"gpu",      "stream", "experts:40",
                                        "layers:3", "cpu",    "balanced"};
    struct engine_config c = config_of(support_demo(), -1, 2);
    struct device_info info[DEVICE_MAX];
    char why[256];
    struct engine *g;
    float *want;

    if (opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) == 0 || info[0].why_not[0]) {
        support_skip("no OpenCL device");
        return;
    }
    g = open_with(c, 0);
    want = logits_of(g);
    engine_close(g);
    c.backends = backends;
    c.cache_dir = support_tmpdir();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        g = open_with(c, cache_for(support_demo(), -1, i % 2 ? 4 : 30));
        place(g, plans[i]);
        same_logits(g, want, plans[i]);
        engine_session_clear(g);
        place(g, plans[(i + 2) % 6]); /* from one to another */
        same_logits(g, want, plans[(i + 2) % 6]);
        engine_close(g);
    }
    mem_free(want);
}
END_TEST

static uint64_t left_now;

static uint64_t tell_left(void *ctx)
{
    return left_now;
}

static int n_told;

static void count_lines(void *ctx, const char *line)
{
    n_told += strstr(line, "memory is short") != NULL;
}

/* Twice, half a second apart. */
static void idle(struct engine *g)
{
    usleep(510000);
    ck_assert_int_eq(engine_place(g, "cpu", &e), 0);
    engine_idle_step(g);
}

START_TEST(memory_that_shrinks_takes_slots_first)
{
    struct engine_config c = config_of(support_demo(), -1, 2);
    struct engine *g = open_with(c, 0);
    const struct telemetry *t;
    float *want = logits_of(g);

    engine_close(g);
    c.memory_left = tell_left;
    c.log = count_lines;
    left_now = UINT64_MAX;
    g = open_with(c, UINT64_MAX / 2);
    t = engine_telemetry(g);
    same_logits(g, want, "enough");
    ck_assert_int_eq(t->disk.slots, 128);
    left_now = 1 << 20;
    idle(g);
    engine_session_clear(g);
    ck_assert_int_lt(t->disk.slots, 20);
    ck_assert_int_eq(n_told, 1);
    same_logits(g, want, "short");
    idle(g);
    ck_assert_int_eq(n_told, 1); /* once */
    left_now = (uint64_t)4 << 30;
    idle(g);
    engine_session_clear(g);
    ck_assert_int_eq(t->disk.slots, 128);
    same_logits(g, want, "enough again");
    engine_close(g);
    mem_free(want);
}
END_TEST

static uint64_t stalled_now;

static uint64_t tell_stalls(void *ctx)
{
    return stalled_now;
}

/* Somebody waits for memory half of the time: slots go back while more is left than else would make
 * them go, and stay while much is. */
START_TEST(waiting_for_memory_takes_slots)
{
    struct engine_config c = config_of(support_demo(), -1, 2);
    const struct telemetry *t;
    struct engine *g;

    c.memory_left = tell_left;
    c.memory_stalled = tell_stalls;
    left_now = (uint64_t)150 << 20;
    stalled_now = 1000000;
    g = open_with(c, UINT64_MAX / 2);
    t = engine_telemetry(g);
    idle(g);
    idle(g);
    engine_session_clear(g);
    ck_assert_int_eq(t->disk.slots, 128); /* enough, and nobody waits */
    left_now = (uint64_t)1 << 30;
    stalled_now += 600000;
    idle(g);
    engine_session_clear(g);
    ck_assert_int_eq(t->disk.slots, 128); /* they wait for something else */
    left_now = (uint64_t)150 << 20;
    stalled_now += 20000;
    idle(g);
    engine_session_clear(g);
    ck_assert_int_eq(t->disk.slots, 128); /* hardly */
    stalled_now += 600000;
    idle(g);
    engine_session_clear(g);
    ck_assert_int_lt(t->disk.slots, 20);
    engine_close(g);
}
END_TEST

/* Bytes that the last line about it said went back, of ended conversations. */
static double rows_told;

static void note_rows(void *ctx, const char *line)
{
    const char *at = strstr(line, "of copies to go back to, ");

    if (at)
        rows_told = strtod(at + strlen("of copies to go back to, "), NULL);
}

/* Rows of what was said before and is no more: their memory goes back first, once. */
START_TEST(memory_that_shrinks_takes_rows_of_nobody)
{
    enum { LONG = 2048 };
    struct engine_config c = config_of(support_demo(), -1, 2);
    int ids[LONG];
    struct engine *g;
    float *want;

    for (int i = 0; i < LONG; i++)
        ids[i] = 5 + i % 400;
    want = logits_of(g = open_with(c, 0));
    engine_close(g);
    c.memory_left = tell_left;
    c.log = note_rows;
    c.context = LONG;
    c.ubatch = 512;
    left_now = UINT64_MAX;
    g = open_with(c, 0);
    ck_assert_int_eq(engine_eval(g, ids, LONG, NULL, false, &e), 0);
    engine_session_clear(g);
    left_now = 1 << 20;
    rows_told = 0;
    idle(g);
    ck_assert_msg(rows_told > 2, "%.0f MiB went back", rows_told);
    same_logits(g, want, "after rows went back");
    engine_close(g);
    mem_free(want);
}
END_TEST

static double idle_told;

static void note_idle(void *ctx, const char *line)
{
    const char *at = strstr(line, " of ended and ");

    if (at)
        idle_told = strtod(at + strlen(" of ended and "), NULL);
}

static int hear_end(void *ctx, struct event *ev)
{
    *(int *)ctx += ev->kind == EVENT_TURN_DONE ? 1 : ev->kind == EVENT_ERROR ? 100 : 0;
    return 0;
}

/* While one session answers the rows of those that do not go back, and theirs alone. */
START_TEST(memory_that_shrinks_takes_rows_of_the_idle)
{
    enum { LONG = 2048 };
    struct engine_config c = config_of(support_demo(), -1, 2);
    struct turn t = {.max_tokens = 4};
    int ids[LONG], over = 0, answered;
    struct session *other;
    struct engine *g;
    float *want, *got;

    for (int i = 0; i < LONG; i++)
        ids[i] = 5 + i % 400;
    t.prompt.ids = ids + 7;
    t.prompt.n = 300;
    c.memory_left = tell_left;
    c.log = note_idle;
    c.context = LONG;
    c.ubatch = 512;
    c.sessions = 2;
    c.no_tokenizer = false;
    left_now = UINT64_MAX;
    g = open_with(c, 0);
    want = mem_alloc((size_t)vocabulary(g), sizeof *want);
    got = mem_alloc((size_t)vocabulary(g), sizeof *got);
    ck_assert_int_eq(engine_session_open(g, &other, &e), 0);
    ck_assert_int_eq(engine_session_eval(other, ids, LONG, 0, want, false, &e), 0);
    left_now = 1 << 20;
    idle_told = -1;
    idle(g);
    ck_assert_msg(idle_told <= 0, "%.0f MiB of a session went back while nobody answers",
                  idle_told);
    left_now = (uint64_t)4 << 30;
    idle(g); /* the next shortage is another one */
    left_now = 1 << 20;
    usleep(510000);
    ck_assert_msg(engine_session_turn(engine_session(g), &t, hear_end, &over, &e) == 0, "%s",
                  e.text);
    while (engine_step(g))
        ;
    ck_assert_int_eq(over, 1);
    ck_assert_msg(idle_told > 2, "%.0f MiB of the idle session went back", idle_told);
    answered = engine_session_tokens(g, NULL);
    ck_assert_int_ge(answered, t.prompt.n); /* who answers lost nothing */
    /* the other one begins anew: the same bits as before */
    ck_assert_int_eq(engine_session_eval(other, ids, LONG, 0, got, false, &e), 0);
    ck_assert_int_eq(memcmp(want, got, (size_t)vocabulary(g) * sizeof *got), 0);
    engine_close(g);
    mem_free(want);
    mem_free(got);
}
END_TEST

static const char *copy_of(const char *path, const char *name)
{
    static char out[4300];
    char line[9000];

    snprintf(out, sizeof out, "%s/%s", support_tmpdir(), name);
    snprintf(line, sizeof line, "cp '%s' '%s'", path, out);
    ck_assert_int_eq(system(line), 0);
    return out;
}

START_TEST(a_file_may_go_but_not_change)
{
    const char *path = copy_of(support_demo(), "gone.gguf");
    uint64_t cache = cache_for(path, -1, 4);
    struct engine *g = open_with(config_of(path, -1, 2), 0);
    float *want = logits_of(g);
    int id = 3, n;

    engine_close(g);
    g = open_with(config_of(path, -1, 2), cache);
    ck_assert_int_eq(unlink(path), 0);
    same_logits(g, want, "removed");
    engine_close(g);
    mem_free(want);

    path = copy_of(support_demo(), "short.gguf");
    g = open_with(config_of(path, -1, 2), cache);
    ck_assert_int_eq(engine_eval(g, &id, 1, NULL, false, &e), 0);
    ck_assert_int_eq(truncate(path, 5000000), 0);
    ck_assert_int_eq(engine_eval(g, &id, 1, NULL, false, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "short.gguf") && strstr(e.text, "changed while it was read"), "%s",
                  e.text);
    n = engine_session_tokens(g, NULL);
    ck_assert_int_eq(n, 1); /* what was computed before is kept */
    ck_assert_int_eq(engine_eval(g, &id, 1, NULL, false, &e), ERR_IO);
    engine_close(g);
}
END_TEST

/* Pieces of all kinds of a file, several at a time: what lies in it, in whatever order they come.
 */
static int read_by_ring(int wanted)
{
    const size_t most = 300000, room = direct_room(most);
    const uint8_t *want[DIRECT_RING_MOST], *at;
    size_t sizes[DIRECT_RING_MOST];
    uint8_t *buffers = aligned_alloc(DIRECT_ALIGN, DIRECT_RING_MOST * room);
    struct direct_file *d;
    struct direct_ring *r;
    struct weight_file *f;
    int depth;

    ck_assert_ptr_nonnull(buffers);
    ck_assert_msg(weight_file_open(&f, support_demo(), false, &e) == 0, "%s", e.text);
    ck_assert_msg(direct_open(&d, f, &e) == 0, "%s", e.text);
    ck_assert_msg(direct_ring_new(&r, d, wanted, &e) == 0, "%s", e.text);
    depth = direct_ring_depth(r);
    for (size_t round = 0; round < 100; round++) {
        for (int i = 0; i < depth; i++) {
            const struct tensor_view *t = weight_file_at(f, (round * 31 + (size_t)i) %
                                                                weight_file_count(f));
            size_t from = t->bytes * (round % 13) / 13;

            want[i] = (const uint8_t *)t->data + from;
            sizes[i] = t->bytes - from < most ? t->bytes - from : most - round;
            direct_ring_begin(r, i, t, from, sizes[i], buffers + (size_t)i * room);
        }
        for (int i = 0; i < depth; i++) {
            int n = direct_ring_next(r, &at, &e);

            ck_assert_msg(at && want[n] && memcmp(at, want[n], sizes[n]) == 0, "%s", e.text);
            want[n] = NULL; /* each comes once */
        }
    }
    direct_ring_free(r);
    direct_close(d);
    weight_file_close(f);
    free(buffers);
    return depth;
}

START_TEST(a_ring_reads_what_is_asked_for)
{
    static const int depths[] = {1, 3, DIRECT_RING_MOST};
    int depth = read_by_ring(depths[_i]);

    ck_assert(depth == depths[_i] || depth == 1);
}
END_TEST

START_TEST(the_disk_has_a_rate)
{
    struct direct_file *d;
    struct weight_file *f;
    double rate;

    ck_assert_msg(weight_file_open(&f, exported("F32"), false, &e) == 0, "%s", e.text);
    ck_assert_msg(direct_open(&d, f, &e) == 0, "%s", e.text);
    rate = direct_rate(f, 4, 20);
    if (direct_bypasses(d))
        ck_assert(rate > 1e5 && rate < 1e12);
    else /* what comes out of the page cache says nothing of a disk */
        ck_assert(!(rate > 0));
    direct_close(d);
    weight_file_close(f);
}
END_TEST

/* From here on the kernel has no io_uring for this process, as in many containers. */
static bool forbid_rings(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
}

START_TEST(reads_come_where_no_ring_is_allowed)
{
    if (forbid_rings())
        support_skip("this kernel filters no calls");
    else
        ck_assert_int_eq(read_by_ring(DIRECT_RING_MOST), 1);
}
END_TEST

START_TEST(what_is_no_number_is_found)
{
    char copy[4300];
    struct engine *g;
    int ids[PROMPT];

    snprintf(copy, sizeof copy, "%s/poisoned.gguf", support_tmpdir());
    support_poison(support_demo(), "blk.5.ffn_up_exps.weight", 0x7e00, copy);
    g = open_with(config_of(copy, -1, 2), cache_for(copy, -1, 6));
    for (int i = 0; i < PROMPT; i++)
        ids[i] = i + 5;
    ck_assert_int_eq(engine_eval(g, ids, PROMPT, NULL, false, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, "blk.5.ffn_up_exps.weight") != NULL, "%s", e.text);
    engine_close(g);
}
END_TEST

START_TEST(memory_may_run_out_anywhere)
{
    struct engine_config c = config_of(support_demo(), -1, 1);
    uint64_t cache = cache_for(support_demo(), -1, 4);
    int failed = 0;

    c.expert_cache = cache;
    for (long n = 0;; n += 1 + n / 8) {
        struct engine *g = NULL;
        int rc;

        mem_fail_after(n);
        rc = engine_open(&g, &c, &e);
        mem_fail_after(-1);
        engine_close(g);
        if (rc == 0)
            break;
        failed++;
    }
    ck_assert_int_gt(failed, 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("expert_cache");
    TCase *t = tcase_create("expert_cache");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, bits_are_those_of_memory, 0, sizeof models / sizeof *models);
    tcase_add_test(t, what_is_counted_adds_up);
    tcase_add_test(t, all_of_them_are_read_once);
    tcase_add_test(t, memory_is_what_was_asked_for);
    tcase_add_test(t, sessions_share_it);
    tcase_add_test(t, placements_change_nothing);
    tcase_add_loop_test(t, a_ring_reads_what_is_asked_for, 0, 3);
    tcase_add_test(t, the_disk_has_a_rate);
    tcase_add_test(t, reads_come_where_no_ring_is_allowed);
    tcase_add_test(t, memory_that_shrinks_takes_slots_first);
    tcase_add_test(t, waiting_for_memory_takes_slots);
    tcase_add_test(t, memory_that_shrinks_takes_rows_of_nobody);
    tcase_add_test(t, memory_that_shrinks_takes_rows_of_the_idle);
    tcase_add_test(t, a_file_may_go_but_not_change);
    tcase_add_test(t, what_is_no_number_is_found);
    tcase_add_test(t, memory_may_run_out_anywhere);
    suite_add_tcase(s, t);
    return support_run(s);
}
