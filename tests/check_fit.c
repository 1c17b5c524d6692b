/* app/fit against the engine itself: what the table says is what opening takes, to the byte; and
 * what it needs is the peak of a run. */
#include "app/common/devices.h"
#include "app/setup/fit.h"
#include "app/setup/fit_page.h"
#include "app/setup/fit_remedy.h"
#include "app/setup/resolve.h"
#include "app/common/system_sample.h"
#include "engine/model/model.h"
#include "engine/run/internal.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/build_file.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error e;

static const char *demo_model(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    return path;
}

static const struct {
    const char *model;
    int context, ubatch, threads, convert;
    enum kv_type k, v;
    const char *override;
} cases[] = {
    {NULL, 0, 0, 1, -1, KV_F16, KV_F16, NULL},
    {NULL, 100, 7, 2, -1, KV_F32, KV_F16, NULL},
    {NULL, 4096, 64, 3, -1, KV_F16, KV_F32, NULL},
    {"golden/phimoe/phimoe-quirk-f32", 64, 16, 1, -1, KV_F16, KV_F16, NULL},
    {"golden/phimoe/phimoe-16x-bf16", 333, 512, 2, -1, KV_F32, KV_F32, NULL},
    {"golden/phimoe/phimoe-16x-bf16", 333, 512, 2, DTYPE_Q8_0, KV_F32, KV_F32, NULL},
    {"golden/phimoe/phimoe-longrope-f32", 300, 33, 1, -1, KV_F16, KV_F16, NULL},
    {NULL, 2000, 64, 1, -1, KV_F16, KV_F16, "*.attention.sliding_window=int:40"},
    {"golden/families/gpt_oss", 1500, 100, 1, -1, KV_F16, KV_F32, NULL},
    {"golden/families/lfm2_moe", 600, 16, 1, -1, KV_F16, KV_F16, NULL},
};

START_TEST(the_table_is_what_opening_takes)
{
    const struct overrides overrides = {&cases[_i].override, cases[_i].override != NULL};
    struct engine_config c = {
        .overrides = &overrides,
        .model_path = cases[_i].model ? support_path(cases[_i].model) : demo_model(),
        .context = cases[_i].context,
        .ubatch = cases[_i].ubatch,
        .n_threads = cases[_i].threads,
        .kv_k = cases[_i].k,
        .kv_v = cases[_i].v,
        .convert = cases[_i].convert,
        .no_tokenizer = true,
        .sessions = 1 + _i % 3,
        .drafting = {.type = "none"},
    };
    const struct telemetry *t;
    struct session *further;
    struct engine *g;
    struct fit f;

    if (_i % 2) /* drafted rows have logits, and are kept where layers have recurrent state */
        strcpy(c.drafting.type, "lookup");
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    for (int i = 1; i < c.sessions; i++)
        ck_assert_msg(engine_session_open(g, &further, &e) == 0, "%s", e.text);
    engine_session_clear(g); /* and its figures are newly taken */
    t = engine_telemetry(g);
    ck_assert_int_eq(f.context, engine_info(g)->context);
    ck_assert_int_eq(f.ubatch, engine_info(g)->ubatch);
    ck_assert_uint_eq(f.kv, t->kv_bytes);
    ck_assert_int_eq(f.ring_room, cases[_i].override ? 256 : f.ring_layers ? 256 : 0);
    ck_assert_int_eq(f.ring_layers, cases[_i].override ? engine_info(g)->model->hp.n_layers
                                    : cases[_i].model && strstr(cases[_i].model, "gpt_oss") ? 2
                                                                                            : 0);
    ck_assert(!f.ring_layers || f.copies > 0);
    ck_assert_uint_eq(f.scratch, t->scratch_bytes);
    ck_assert_uint_gt(f.apart, 0);
    ck_assert_uint_lt(f.apart, f.scratch);
    ck_assert_uint_eq(f.weights.packed, t->weights_packed);
    ck_assert_uint_eq(f.weights.mapped, t->weights_mapped);
    ck_assert_uint_eq(f.weights.attention + f.weights.experts + f.weights.router_norms +
                          f.weights.embeddings + f.weights.head,
                      f.weights.packed + f.weights.mapped);
    ck_assert_uint_eq(f.total, f.weights.packed + f.weights.mapped + f.kv + f.scratch - f.apart +
                                   f.computing + f.program);
    ck_assert_uint_gt(f.program, 1 << 20);
    engine_close(g);
}
END_TEST

/* A copy of a checkpoint that says it was trained with 131072 tokens. */
static const char *long_model(void)
{
    static char folder[300];
    char command[1200];

    snprintf(folder, sizeof folder, "%s/long", support_tmpdir());
    snprintf(command, sizeof command,
             "cp -r '%s' '%s' && sed -i 's/\"max_position_embeddings\": [0-9]*/"
             "\"max_position_embeddings\": 131072/' '%s/config.json'",
             support_path("golden/families/qwen3_moe"), folder, folder);
    ck_assert_int_eq(system(command), 0);
    return folder;
}

/* The context that nobody asks for: as trained, halved while it would take more than half of what
 * the weights leave; and its rotary tables are not computed before they are used. */
START_TEST(the_context_follows_the_memory)
{
    struct engine_config c = {
        .model_path = long_model(), .convert = -1, .n_threads = 1, .no_tokenizer = true};
    struct fit f;
    int last = 0;

    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_int_eq(f.context, 4096);
    ck_assert_int_eq(f.context_max, 131072);
    for (c.memory = (uint64_t)4 << 20; last < 131072; c.memory *= 2) {
        uint64_t weights = f.weights.packed + f.weights.mapped;

        ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
        ck_assert_int_ge(f.context, last);
        ck_assert(f.context == 4096 || f.kv <= (c.memory - weights) / 2);
        ck_assert(131072 % f.context == 0);
        ck_assert_uint_lt(c.memory, (uint64_t)1 << 40);
        last = f.context;
    }
    c.sessions = 64;
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_int_lt(f.context, 131072);
    c.context = 777;
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_int_eq(f.context, 777);
}
END_TEST

/* A context of sixteen million tokens fits no machine: refused, with a context that does fit and
 * the flag that overrides. */
START_TEST(too_much_is_refused_with_a_remedy_that_works)
{
    struct engine_config c = {.model_path = demo_model(),
                              .context = 1 << 24,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .convert = -1,
                              .n_threads = 1};
    char remedy[96], *at;
    uint64_t available;
    struct fit f;

    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    f.available = 1 << 30;
    ck_assert(!fit_fits(&f));
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    if (fit_fits(&f)) {
        support_skip("this machine has %.0f GiB free", (double)f.available / (1 << 30));
        return;
    }
    ck_assert_int_eq(fit_require(&c, false, false, &e), ERR_FIT);
    ck_assert_msg(strstr(e.text, "--force") && strstr(e.text, "-c "), "%s", e.text);
    ck_assert_int_eq(fit_require(&c, true, false, &e), 0);
    fit_suggest(&c, &f, remedy, sizeof remedy, NULL);
    ck_assert_ptr_nonnull(at = strstr(remedy, "-c "));
    c.context = atoi(at + 3);
    c.ubatch = (at = strstr(remedy, "-ub ")) ? atoi(at + 4) : 0;
    ck_assert_int_ge(c.context, 512);
    available = f.available;
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    /* what was free when it was suggested: other programs come and go */
    f.available = available;
    ck_assert(fit_fits(&f));
}
END_TEST

/* A model of 192 MiB of experts and hardly anything else; nobody reads its weights. */
static const char *wide_model(void)
{
    static char path[300];
    struct made_file *m = made_model(GGUF_STACKED);
    struct bytes header;
    uint64_t data;

    for (int i = 0; i < m->n; i++)
        if (strstr(m->t[i].name, "_exps")) {
            m->t[i].dims[strstr(m->t[i].name, "down") ? 2 : 1] *= 1024;
            m->t[i].bytes *= 1024;
        }
    header = made_gguf_header(m, &data);
    snprintf(path, sizeof path, "%s/wide.gguf", support_tmpdir());
    ck_assert_int_eq(save(&header, path), 0);
    ck_assert_int_eq(truncate(path, (off_t)(header.size + data)), 0);
    free(header.data);
    made_release(m);
    free(m);
    return path;
}

START_TEST(experts_on_the_disk_are_a_remedy)
{
    struct engine_config c = {.model_path = wide_model(),
                              .context = 64,
                              .ubatch = 16,
                              .convert = -1,
                              .n_threads = 1,
                              .no_tokenizer = true};
    char flag[FIT_PAGE_FLAGS];
    struct engine_config found = c;
    struct fit f, as;

    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_uint_gt(fit_needed(&f), (uint64_t)192 << 20);
    f.available = (uint64_t)190 << 20;
    as = f;
    ck_assert_int_eq(fit_page_smaller(&found, &as, flag, sizeof flag), 1);
    ck_assert_uint_eq(as.weights.cache_least > 0, 1);
    ck_assert_msg(strncmp(flag, "--expert-cache ", 15) == 0, "'%s'", flag);
    /* with that it fits, and leaves something for others */
    c.expert_cache = strtoull(flag + 15, NULL, 10) << 20;
    ck_assert_uint_ge(c.expert_cache, (uint64_t)64 << 20);
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_uint_lt(fit_needed(&f), (uint64_t)110 << 20);
    ck_assert_uint_gt(f.weights.on_disk, (uint64_t)190 << 20);
    c.expert_cache = 0;
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    f.available = (uint64_t)190 << 20;
    ck_assert_int_eq(fit_refuse(&c, &f, &e), ERR_FIT);
    ck_assert_msg(strstr(e.text, flag), "%s", e.text);
    /* not even two experts and what others may want */
    f.available = (uint64_t)100 << 20;
    as = f;
    found = c;
    ck_assert_int_eq(fit_page_smaller(&found, &as, flag, sizeof flag), 0);
    ck_assert_str_eq(flag, "");
}
END_TEST

START_TEST(less_context_and_experts_on_the_disk_are_one_remedy)
{
    static const char *const longer[] = {"*.context_length=int:1048576"};
    const struct overrides overrides = {longer, 1};
    struct engine_config c = {.model_path = wide_model(),
                              .overrides = &overrides,
                              .context = 1 << 20,
                              .ubatch = 256,
                              .convert = -1,
                              .n_threads = 1,
                              .no_tokenizer = true};
    char flags[FIT_PAGE_FLAGS], line[300];
    const char *at;
    struct fit f, as;

    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_uint_gt(f.kv, (uint64_t)270 << 20);
    f.available = (uint64_t)270 << 20;
    as = f;
    ck_assert_int_eq(fit_page(&c, &as, line, sizeof line), 0);
    ck_assert_int_eq(fit_refuse(&c, &f, &e), ERR_FIT);
    ck_assert_int_eq(fit_page_smaller(&c, &as, flags, sizeof flags), 1);
    ck_assert_msg(strstr(e.text, flags), "'%s' lacks '%s'", e.text, flags);
    ck_assert_msg(!strncmp(flags, "-ub 128 -c ", 11), "'%s'", flags);
    ck_assert_int_eq(atoi(flags + 11), c.context);
    ck_assert_int_gt(c.context, 512);
    ck_assert_ptr_nonnull(at = strstr(flags, "--expert-cache "));
    /* as a user would say it */
    c.expert_cache = strtoull(at + 15, NULL, 10) << 20;
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    ck_assert_uint_lt(fit_needed(&f), (uint64_t)270 << 20);
    ck_assert_uint_ge(f.weights.cache, f.weights.cache_least);
}
END_TEST

START_TEST(rows_that_no_context_asks_for_are_not_counted)
{
    static const uint64_t page = 4096;
    struct engine_config c = {.model_path = wide_model(),
                              .context = 8,
                              .ubatch = 8,
                              .convert = -1,
                              .n_threads = 1,
                              .no_tokenizer = true};
    uint64_t tables;
    struct fit f;

    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    tables = f.weights.tables;
    ck_assert_uint_gt(tables, 0);
    ck_assert_uint_eq(f.weights.table_row % page, 0);
    ck_assert_uint_gt(f.weights.table_row, 0);
    /* in memory: the file's pages stay where they are once they were read */
    ck_assert_uint_eq(f.untouched, 0);
    c.expert_cache = (uint64_t)64 << 20;
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    ck_assert_uint_eq(f.untouched,
                      tables > 8 * f.weights.table_row ? tables - 8 * f.weights.table_row : 0);
    c.sessions = 2;
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    ck_assert_uint_eq(f.untouched,
                      tables > 16 * f.weights.table_row ? tables - 16 * f.weights.table_row : 0);
}
END_TEST

START_TEST(the_table_prints_every_row)
{
    static const char *const window[] = {"*.attention.sliding_window=int:40"};
    const struct overrides overrides = {window, 1};
    struct engine_config c = {.model_path = demo_model(),
                              .overrides = &overrides,
                              .context = 4096,
                              .ubatch = 64,
                              .convert = -1};
    char *text, *rows[] = {"attention weights",
                           "expert weights",
                           "routers and norms",
                           "embeddings",
                           "output head",
                           "weights together",
                           "KV cache",
                           "keep the newest 256 alone",
                           "MiB copies to go back to",
                           "scratch",
                           "this program",
                           "needed",
                           "free",
                           "tiny-storyteller",
                           "q8_0"};
    size_t n;
    FILE *out = open_memstream(&text, &n);
    struct fit f;

    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    fit_print(&f, out);
    fclose(out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(strstr(text, rows[i]), "%s", rows[i]);
    free(text);
}
END_TEST

/* Control vectors are counted, as many bytes as the engine has of them, and named. */
START_TEST(control_vectors_are_counted)
{
    char path[400], command[9000], *text;
    struct adapter_request asked = {.path = path, .strength = 1};
    struct engine_config c = {.model_path = demo_model(), .context = 200, .convert = -1};
    struct fit without, with;
    struct engine *g;
    size_t n;
    FILE *out;

    snprintf(path, sizeof path, "%s/control.gguf", support_tmpdir());
    snprintf(command, sizeof command,
             "cd '%s' && echo 'A happy fox.' >a && echo 'A sad hen.' >b && '%s' -m '%s' "
             "--make-control-vector a b -o '%s' >out 2>err",
             support_tmpdir(), support_program(), demo_model(), path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(fit_measure(&c, &without, &e), 0);
    c.control = &asked;
    c.n_control = 1;
    ck_assert_msg(fit_measure(&c, &with, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    engine_session_clear(g);
    ck_assert_uint_ge(with.control, 8 * 512);
    ck_assert_uint_eq(with.control, engine_telemetry(g)->control_bytes);
    ck_assert_uint_eq(with.total - with.program, without.total - without.program + with.control);
    engine_close(g);
    out = open_memstream(&text, &n);
    fit_print(&with, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "control vectors"));
    free(text);
    strcpy(path, "/no/such.gguf");
    ck_assert_int_eq(fit_measure(&c, &with, &e), ERR_IO);
}
END_TEST

/* A model that drafts is in the table, with what it keeps of as long a context, and loading both
 * takes that much. */
START_TEST(the_draft_model_is_counted)
{
    struct engine_config c = {.model_path = demo_model(),
                              .context = 2048,
                              .ubatch = 64,
                              .n_threads = 1,
                              .convert = -1,
                              .drafting = {.type = "auto"}},
                         with = c;
    struct fit alone, both;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    with.drafting.model = demo_model();
    ck_assert_int_eq(fit_measure(&c, &alone, &e), 0);
    ck_assert_int_eq(fit_measure(&with, &both, &e), 0);
    ck_assert_uint_eq(alone.draft, 0);
    ck_assert_uint_ge(both.draft, alone.weights.packed + alone.weights.mapped + 2 * alone.kv);
    ck_assert_uint_eq(both.total - both.program - both.draft, alone.total - alone.program);
    fit_print(&both, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "draft model"));
    free(text);
    strcpy(with.drafting.type, "lookup"); /* nobody asks it */
    ck_assert_int_eq(fit_measure(&with, &both, &e), 0);
    ck_assert_uint_eq(both.draft, 0);
    strcpy(with.drafting.type, "auto");
    with.drafting.model = "/nowhere/at/all";
    ck_assert_int_lt(fit_measure(&with, &both, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "-md"));
}
END_TEST

/* So is the block of the file that predicts further tokens, where it drafts. */
START_TEST(the_block_that_drafts_is_counted)
{
    struct engine_config c = {.model_path = support_path("golden/families/qwen3_5_moe"),
                              .context = 256,
                              .ubatch = 64,
                              .n_threads = 1,
                              .convert = -1,
                              .drafting = {.type = "auto"}},
                         without = c;
    struct fit with_it, alone;

    strcpy(without.drafting.type, "lookup");
    ck_assert_int_eq(fit_measure(&c, &with_it, &e), 0);
    ck_assert_int_eq(fit_measure(&without, &alone, &e), 0);
    ck_assert_uint_eq(alone.mtp, 0);
    /* weights, cache and scratch: at least eleven experts of three matrices of 64 x 32 in BF16 */
    ck_assert_uint_gt(with_it.mtp, 11 * 3 * 64 * 32 * 2);
    ck_assert_uint_eq(with_it.total - with_it.program - with_it.mtp, alone.total - alone.program);
}
END_TEST

/* The device's rows against what the device then holds, to the byte; also for plan files, and for a
 * device that shares no memory. */
START_TEST(the_devices_share_is_what_it_holds)
{
    static const struct {
        const char *place;
        bool own_memory, q8_cache;
        const char *prompts;
    } plans[] = {{"gpu", false, false, NULL},
                 {"layers:3", false, true, NULL},
                 {"experts:5", true, false, NULL},
                 {"attention-gpu", false, false, NULL},
                 {"configs/placements/half.yaml", true, true, NULL},
                 {"configs/placements/attention.yaml", false, false, NULL},
                 {"stream:3M", false, false, NULL},
                 {"cpu", false, false, "layers:3"},
                 {"attention-gpu", true, false, "experts:5"},
                 {"gpu", false, false, "cpu"}};
    struct opencl_tuning tuning = {.copy = plans[_i].own_memory};
    enum kv_type kv = plans[_i].q8_cache ? KV_Q8_0 : KV_F16;
    struct engine_config c = {.model_path = demo_model(),
                              .convert = -1,
                              .n_threads = 1,
                              .ubatch = 37,
                              .context = 200,
                              .kv_k = kv,
                              .kv_v = kv,
                              .backends = device_backends,
                              .device_selector = "opencl:0"};
    struct device_stats want, got;
    const struct telemetry *t;
    struct plan *plan = NULL;
    struct engine *g;
    char place[4400];
    struct fit f;

    snprintf(place, sizeof place, "%s%s%s", strchr(plans[_i].place, '/') ? support_root() : "",
             strchr(plans[_i].place, '/') ? "/" : "", plans[_i].place);
    opencl_tune(&tuning);
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    ck_assert_msg(fit_measure_device(&c, place, plans[_i].prompts, &f, &e) == 0, "%s", e.text);
    if (!f.n_on) {
        support_skip("no OpenCL device");
        return;
    }
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(place_resolve(place, engine_info(g), &plan, &e) >= 0, "%s", e.text);
    ck_assert_msg((plan ? engine_plan_set(g, plan, &e) : engine_place(g, place, &e)) == 0 &&
                      engine_settle(g, &e) == 0,
                  "%s", e.text);
    if (plans[_i].prompts) {
        snprintf(place, sizeof place, "prompt %s", plans[_i].prompts);
        ck_assert_msg(engine_place(g, place, &e) == 0 && engine_settle(g, &e) == 0, "%s", e.text);
    }
    t = engine_telemetry(g);
    ck_assert_int_eq(t->n_devices, 2);
    got = t->devices[1];
    want = f.on[0].has;
    ck_assert_uint_gt(got.weight_bytes, 0);
    ck_assert_uint_eq(got.weight_bytes, want.weight_bytes);
    ck_assert_uint_eq(got.shared_bytes, want.shared_bytes);
    ck_assert_uint_eq(got.kv_bytes, want.kv_bytes);
    ck_assert_uint_eq(got.scratch_bytes, want.scratch_bytes);
    ck_assert_uint_eq(got.staging_bytes, want.staging_bytes);
    ck_assert_uint_eq(got.stream_bytes, want.stream_bytes);
    ck_assert_uint_eq(f.on[0].bytes, got.weight_bytes + got.kv_bytes + got.scratch_bytes +
                                         got.staging_bytes + got.stream_bytes);
    ck_assert_int_eq(got.staging_bytes > 0, plans[_i].own_memory);
    engine_close(g);
    opencl_tune(NULL);
}
END_TEST

/* ---- the table against the peak that the kernel tells of a run of the program ---- */

static const char *program(void)
{
    static char path[4200];
    const char *build = getenv("CHECK_BUILD");

    snprintf(path, sizeof path, "%s/%s/moetop", build && build[0] == '/' ? "" : support_root(),
             build ? build : "build/release");
    return path;
}

/* The number after the first `label` in what the command prints. */
static double figure_of(const char *command, const char *label)
{
    char text[16384], *at;
    FILE *f = popen(command, "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    pclose(f);
    at = strstr(text, label);
    ck_assert_msg(at, "no '%s' from %s: %s", label, command, text);
    return strtod(at + strlen(label), NULL);
}

/* Text of so many tokens, but for a tenth that is left to the answer. */
static void write_prompt(const char *path, int tokens)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < tokens / 10; i++)
        fputs("Tell me a story about a brave fox. ", f); /* nine tokens */
    fclose(f);
}

/* Where 5 % is less: a huge page (2 MiB) that is begun with packed weights while the file's pages
 * of the same weights are still there, and what the table's figure for code and stacks may be off.
 */
#define FIT_FLOOR 4.0 /* MiB */
/* Without a program around, much of that code is touched by a family before. */
#define FAMILY_FLOOR 2.2
#define RUNS 4

static bool near_enough(double needed, double peak)
{
    return fabs(needed - peak) <= fmax(0.05 * peak, FIT_FLOOR);
}

static const struct {
    bool folder;
    const char *settings;
    int context;
} peaks[] = {
    {false, "-c 2048", 2048},
    {false, "-c 512 -ub 64", 512},
    {false, "-c 1024 -ub 1024 -ctk f32 -ctv f32", 1024},
    {false, "-c 8192 -ctk f32 -ctv f32", 8192},
    {true, "-c 2048", 2048},
    {true, "-c 2048 -ctk f32 -ctv f32", 2048},
    {true, "-c 2048 --dtype f32", 2048},
    {true, "-c 2048 --dtype q8_0", 2048},
};

START_TEST(needed_is_the_peak)
{
    const char *model = peaks[_i].folder ? support_shared("demo/tiny-storyteller") : demo_model();
    char command[12000], prompt[300], run[9000];
    double needed, peak = 0;

    if (!model)
        return;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    support_skip("a checker's own memory would count");
    return;
#endif
    snprintf(prompt, sizeof prompt, "%s/prompt", support_tmpdir());
    write_prompt(prompt, peaks[_i].context);
    /* a verdict of auto's that somebody's runs left would open a driver */
    snprintf(run, sizeof run, "XDG_CACHE_HOME='%s' '%s' -m '%s' -t 2 %s", support_tmpdir(),
             program(), model, peaks[_i].settings);
    snprintf(command, sizeof command, "%s --fit", run);
    needed = figure_of(command, "  needed");
    snprintf(command, sizeof command,
             "%s -f %s -n %d --ignore-eos --temp 0 --stats-json %s.json >%s.out 2>&1; cat %s.json "
             "%s.out",
             run, prompt, peaks[_i].context / 50, prompt, prompt, prompt, prompt);
    /* Threads that wait for a processor hold pages of the file for longer: what a run needs is the
     * least that one of them took. */
    for (int i = 0; i < RUNS && !near_enough(needed, peak); i++) {
        double taken = figure_of(command, "\"peak_rss_bytes\":") / (1 << 20);

        peak = i && peak < taken ? peak : taken;
        printf("%s %s: needed %.1f MiB, peak %.1f MiB (%+.1f %%)\n",
               peaks[_i].folder ? "BF16" : "Q8_0", peaks[_i].settings, needed, taken,
               100 * (needed / taken - 1));
    }
    ck_assert_msg(near_enough(needed, peak), "needed %.1f MiB, peak %.1f MiB", needed, peak);
}
END_TEST

/* ---- every family, in this process ---- */

/* A row of /proc/self/status, MiB. */
static double status_of(const char *label)
{
    char line[200];
    double v = 0;
    FILE *f = fopen("/proc/self/status", "r");

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, label, strlen(label)) == 0)
            v = strtod(line + strlen(label), NULL) / 1024;
    fclose(f);
    return v;
}

/* From here on the peak counts anew. */
static double begin_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");

    if (!f || fputs("5", f) < 0 || fclose(f))
        return -1;
    return status_of("VmRSS:");
}

static const char *const families[] = {
    "afmoe",          "bailing_hybrid",
    "deepseek_v2",    "deepseek_v3",
    "dots1",          "ernie4_5_moe",
    "gemma3",         "gemma4",
    "glm4_moe",       "glm4_moe_lite",
    "gpt2",           "gpt_oss",
    "granitemoe",     "granitemoehybrid",
    "exaone_moe",     "flex_olmo",
    "mellum",         "olmo3",
    "lfm2_moe",       "laguna",
    "phi3",           "granite_swa",
    "minimax_m2",     "hy_v3",
    "mistral",        "mistral3",
    "mistral4",       "gemma4_e",
    "cohere2_moe",    "kimi_linear",
    "hunyuan_v1_moe", "jamba",
    "gemma3n",        "smallthinker",
    "llama4",         "muse_glimmer",
    "maple",          "step3p5",
    "mimo_v2_flash",  "grovemoe",
    "longcat_flash",  "deepseek_v32",
    "glm_moe_dsa",    "deepseek_v4",
    "jetmoe",         "zaya",
    "qwen4_exp",      "llama",
    "mixtral",        "nemotron_h",
    "olmoe",          "opt-350m",
    "qwen2_moe",      "qwen3",
    "qwen3_5_moe",    "qwen3_moe",
    "qwen3_next",     "smollm3",
    "gpt_oss-mxfp4",  "qwen3_moe-gptq-g32-act",
};

static void fill_contexts(struct engine *g, int sessions, int context)
{
    int *ids = calloc((size_t)context, sizeof *ids), n_vocab = engine_info(g)->model->hp.n_vocab,
        kinds = n_vocab < 95 ? n_vocab - 5 : 90;

    ck_assert_ptr_nonnull(ids);
    for (int s = 0; s < sessions; s++) {
        struct session *session = engine_session(g);

        if (s)
            ck_assert_msg(engine_session_open(g, &session, &e) == 0, "%s", e.text);
        for (int i = 0; i < context; i++)
            ids[i] = (i * 7 + s * 31 + i / 50) % kinds + 5;
        ck_assert_msg(engine_session_eval(session, ids, context, 0, NULL, false, &e) == 0, "%s",
                      e.text);
    }
    free(ids);
}

/* What a family's layers keep and compute with, whole contexts of one or four sessions: the models
 * are small, so that this and not their weights is what is weighed. */
START_TEST(needed_is_the_peak_of_every_family)
{
    char folder[100];
    struct engine_config c = {.context = 1024,
                              .ubatch = 256,
                              .n_threads = 2,
                              .sessions = _i % 2 ? 4 : 1,
                              .kv_k = _i % 3 ? KV_F16 : KV_F32,
                              .kv_v = _i % 3 ? KV_F16 : KV_F32,
                              .convert = -1,
                              .no_tokenizer = true};
    double before, peak, needed;
    struct engine *g;
    struct fit f;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    support_skip("a checker's own memory would count");
    return;
#endif
    snprintf(folder, sizeof folder, "golden/families/%s", families[_i]);
    c.model_path = support_path(folder);
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    needed = (double)fit_needed(&f) / (1 << 20);
    before = begin_peak();
    if (before < 0) {
        support_skip("this kernel does not count a peak anew");
        return;
    }
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    fill_contexts(g, c.sessions, engine_info(g)->context);
    peak = status_of("VmHWM:") - before;
    printf("%s, %d sessions of %d: needed %.1f MiB, peak %.1f MiB\n", families[_i], c.sessions,
           engine_info(g)->context, needed, peak);
    ck_assert_msg(fabs(needed - peak) <= fmax(0.05 * peak, FAMILY_FLOOR),
                  "needed %.1f MiB, peak %.1f MiB", needed, peak);
    engine_close(g);
}
END_TEST

static const char *const copying[] = {"bailing_hybrid", "gpt_oss",    "granitemoehybrid",
                                      "lfm2_moe",       "nemotron_h", "qwen3_5_moe",
                                      "qwen3_next"};

/* Copies to go back to are no more than whole contexts of plain text have, but for one: what is
 * counted is kept, whatever is said in however many sessions. */
START_TEST(copies_counted_are_copies_kept)
{
    static const int contexts[] = {1024, 2048, 4096};
    char folder[100];
    struct engine_config c = {.context = contexts[_i % 3],
                              .ubatch = _i % 2 ? 512 : 256,
                              .n_threads = 2,
                              .sessions = 3,
                              .convert = -1,
                              .no_tokenizer = true};
    struct engine *g;
    struct fit f;

    snprintf(folder, sizeof folder, "golden/families/%s", copying[_i]);
    c.model_path = support_path(folder);
    ck_assert_msg(fit_measure(&c, &f, &e) == 0, "%s", e.text);
    ck_assert_uint_gt(f.copies, 0);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    fill_contexts(g, c.sessions, f.context);
    for (int s = 0; s < c.sessions; s++) {
        size_t kept = (size_t)checkpoints_list(g->sessions[s]->checkpoints, NULL, 0) *
                      g->kv.all_copies;

        ck_assert_uint_le(kept * (size_t)c.sessions, f.copies);
        ck_assert_msg((kept + g->kv.all_copies) * (size_t)c.sessions >= f.copies ||
                          f.context / c.ubatch < CHECKPOINTS_LEAST,
                      "%s: %zu bytes of copies kept of %zu that are counted", copying[_i], kept,
                      (size_t)f.copies / (size_t)c.sessions);
    }
    engine_close(g);
}
END_TEST

START_TEST(what_onednn_takes_is_not_passed_over)
{
    struct engine_config c = {.model_path = support_path("golden/phimoe/phimoe-16x-bf16"),
                              .convert = -1,
                              .float_library = true};
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    struct fit f;

    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    fit_print(&f, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "oneDNN"));
    ck_assert_ptr_nonnull(strstr(text, "not counted"));
    free(text);
    c.model_path = demo_model();
    ck_assert_int_eq(fit_measure(&c, &f, &e), 0);
    ck_assert(!f.library); /* quantised weights never meet it */
}
END_TEST

START_TEST(no_model_is_a_model_error)
{
    struct engine_config c = {.model_path = support_path("support.h"), .convert = -1};

    ck_assert_int_eq(fit_require(&c, false, false, &e), ERR_MODEL);
    c.model_path = "/no/such/model.gguf";
    ck_assert_int_lt(fit_require(&c, false, false, &e), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("fit");
    TCase *t = tcase_create("fit");

    tcase_add_loop_test(t, the_table_is_what_opening_takes, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, the_context_follows_the_memory);
    tcase_add_test(t, too_much_is_refused_with_a_remedy_that_works);
    tcase_add_test(t, experts_on_the_disk_are_a_remedy);
    tcase_add_test(t, less_context_and_experts_on_the_disk_are_one_remedy);
    tcase_add_test(t, rows_that_no_context_asks_for_are_not_counted);
    tcase_add_test(t, the_table_prints_every_row);
    tcase_add_test(t, control_vectors_are_counted);
    tcase_add_test(t, the_draft_model_is_counted);
    tcase_add_test(t, the_block_that_drafts_is_counted);
    tcase_add_loop_test(t, the_devices_share_is_what_it_holds, 0, 10);
    tcase_add_loop_test(t, needed_is_the_peak, 0, sizeof peaks / sizeof *peaks);
    tcase_add_loop_test(t, needed_is_the_peak_of_every_family, 0,
                        sizeof families / sizeof *families);
    tcase_add_loop_test(t, copies_counted_are_copies_kept, 0, sizeof copying / sizeof *copying);
    tcase_add_test(t, what_onednn_takes_is_not_passed_over);
    tcase_add_test(t, no_model_is_a_model_error);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
