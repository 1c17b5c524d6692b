/* Every strategy on many made-up machines and models: valid, within the budget, the same twice;
 * what each promises; the spec parser. */
#include "engine/base/mem.h"
#include "engine/placement/planner.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_CELLS 512

/* A made-up model and machine; the seed decides everything. */
struct world {
    struct planner_input in;
    uint64_t attention_bytes[32], expert_bytes[MAX_CELLS];
    int used[32];
    double usage[MAX_CELLS];
    uint8_t attention_can[32], experts_can[MAX_CELLS];
};

static uint64_t random_state;

static unsigned next_random(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % below);
}

static void world_init(struct world *w, unsigned seed)
{
    struct planner_input *in = &w->in;
    int cells;

    memset(w, 0, sizeof *w);
    random_state = seed * 2654435761u + 1;
    in->n_layers = 1 + (int)next_random(6);
    in->n_experts = 1 + (int)next_random(9);
    in->n_experts_used = 1 + (int)next_random(in->n_experts < 3 ? (unsigned)in->n_experts : 3);
    in->n_devices = 1 + (int)next_random(3);
    in->target = in->n_devices > 1 ? 1 + (int)next_random((unsigned)in->n_devices - 1) : 0;
    if (in->n_devices == 3 && seed % 2)
        in->also[in->n_also++] = 3 - in->target;
    cells = in->n_layers * in->n_experts;
    for (int i = 0; i < in->n_layers; i++) {
        w->attention_bytes[i] = 100 + next_random(900);
        w->attention_can[i] = next_random(4) > 0;
    }
    for (int i = 0; i < cells; i++) {
        w->expert_bytes[i] = seed % 3 ? 200 : 50 + next_random(300);
        w->usage[i] = seed % 5 ? (double)next_random(1000) : 0;
        w->experts_can[i] = next_random(8) > 0;
    }
    in->used = w->used;
    for (int l = 0; l < in->n_layers; l++) { /* layers that differ: experts 0 .. has - 1 */
        int has = seed % 4 ? in->n_experts : (int)next_random((unsigned)in->n_experts + 1);

        w->used[l] = has < in->n_experts_used ? has : in->n_experts_used;
        for (int x = has; x < in->n_experts; x++) {
            w->expert_bytes[l * in->n_experts + x] = 0;
            w->usage[l * in->n_experts + x] = 0;
        }
    }
    in->head_bytes = next_random(2000);
    in->attention_bytes = w->attention_bytes;
    in->expert_bytes = w->expert_bytes;
    in->usage = seed % 7 ? w->usage : NULL;
    for (int d = 0; d < in->n_devices; d++) {
        struct planner_device *v = &in->devices[d];

        v->number = d - 1;
        v->budget = next_random(3) ? next_random(8000) : PLANNER_NO_LIMIT;
        v->head_can = next_random(3) > 0;
        v->attention_can = next_random(2) ? w->attention_can : NULL;
        v->experts_can = next_random(2) ? w->experts_can : NULL;
        if (next_random(2)) {
            v->attention_ns = 100 + next_random(1000);
            v->expert_ns = 50 + next_random(500);
            v->head_ns = 100 + next_random(3000);
            v->handoff_ns = next_random(200);
        }
        v->fuses_layers = next_random(2);
        v->streams = next_random(2);
        v->stream_bytes = next_random(1500);
    }
}

static const char *const specs[] = {
    "cpu",
    "gpu",
    "layers:0",
    "layers:2",
    "layers:99",
    "layers:first:1",
    "layers:first:99",
    "experts:0",
    "experts:3",
    "experts:99",
    "hot",
    "hot:1K",
    "hot:0",
    "memory:2K",
    "memory:1G",
    "attention-gpu",
    "experts-gpu",
    "balanced",
    "balanced:1K",
    "dynamic",
    "dynamic:1K",
    "auto",
    "stream",
    "stream:1K",
    "stream:4K",
    "layers:0=1,1=1",
    "layers:first:1=2",
    "experts:1=2,0=1",
    "hot:0=1K,1=2K",
    "memory:1=1K,0=500",
    "balanced:0=1K,1=1K",
    "dynamic:1=1K",
    "stream:0=3K,1=2K",
    "gpu:0",
    "gpu:1+0",
    "attention-gpu:1",
    "experts-gpu:1",
    "balanced:1=all,0=1K",
};
#define N_SPECS ((int)(sizeof specs / sizeof *specs))

static struct plan *run(const struct planner_input *in, const char *text, char *note)
{
    struct planner_spec s;
    struct plan *p;
    struct error e = {0};

    ck_assert_msg(planner_parse(&s, text, &e) == 0, "%s: %s", text, e.text);
    ck_assert_int_eq(planner_run(&s, in, &p, note, &e), 0);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* Two plans in effect by turns: what both have counts once; too much for a device is refused. */
START_TEST(both_phases_fit_together)
{
    static struct world w;
    char note[PLANNER_NOTE];
    int refused = 0, fit = 0;

    for (unsigned seed = 0; seed < 600; seed++) {
        struct plan *a, *b;
        struct error e = {0};
        bool room = true;
        int rc;

        world_init(&w, seed);
        a = run(&w.in, specs[_i], note);
        b = run(&w.in, specs[seed % (unsigned)N_SPECS], note);
        for (int d = 1; d < w.in.n_devices; d++) {
            uint64_t x = planner_bytes(&w.in, a, d), y = planner_bytes(&w.in, b, d),
                     both = planner_bytes_both(&w.in, a, b, d);

            ck_assert(both >= (x > y ? x : y) && both <= x + y);
            ck_assert_uint_eq(both, planner_bytes_both(&w.in, b, a, d));
            ck_assert_uint_eq(planner_bytes_both(&w.in, a, a, d), x);
            room = room && both <= w.in.devices[d].budget;
        }
        rc = planner_check_both(&w.in, a, b, &e);
        ck_assert_int_eq(rc, room ? 0 : ERR_USAGE);
        ck_assert(room || strstr(e.text, "together on"));
        refused += rc < 0;
        fit += rc == 0;
        plan_free(a);
        plan_free(b);
    }
    ck_assert_int_gt(fit, 100);
    if (strcmp(specs[_i], "hot") == 0)
        ck_assert_int_gt(refused, 10);
}
END_TEST

START_TEST(a_request_names_its_phase)
{
    static const struct {
        const char *request, *text;
        enum plan_phase phase;
    } good[] = {{"gpu", "gpu", PHASE_TOKENS},
                {"prompt gpu", "gpu", PHASE_PROMPT},
                {"prompt  hot:2M", "hot:2M", PHASE_PROMPT},
                {"prompt same", "", PHASE_PROMPT}};
    static const char *const bad[] = {"prompt",     "prompt ",           "prompts gpu",
                                      "same",       "prompt x",          "promptgpu",
                                      "gpu prompt", "prompt prompt gpu", "prompt same "};
    struct planner_spec s;
    enum plan_phase phase;
    struct error e = {0};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_int_eq(planner_parse_request(&s, &phase, good[i].request, &e), 0);
        ck_assert_int_eq(phase, good[i].phase);
        ck_assert_str_eq(s.text, good[i].text);
        ck_assert_int_eq(s.planner != NULL, *good[i].text != 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(planner_parse_request(&s, &phase, bad[i], &e) == ERR_USAGE, "%s", bad[i]);
}
END_TEST

/* By the rules in planner.h. */
static uint64_t may_hold(const struct planner_input *in, const struct planner_spec *s, int device)
{
    uint64_t size = s->size;
    bool used = device == in->target;

    for (int i = 0; i < in->n_also; i++)
        used |= in->also[i] == device;
    if (s->n_shares)
        used = false;
    for (int i = 0; i < s->n_shares; i++)
        if (s->share[i].number == device - 1) {
            size = s->share[i].size;
            used = true;
        }
    return !used ? 0 : size < in->devices[device].budget ? size : in->devices[device].budget;
}

START_TEST(every_plan_is_valid_within_budget_and_repeatable)
{
    static struct world w;
    char note[PLANNER_NOTE], again_note[PLANNER_NOTE];
    static const char *const verdicts[] = {NULL, "cpu", "gpu", "hot:1K", "auto", "nonsense"};

    for (unsigned seed = 0; seed < 600; seed++) {
        struct planner_spec s;
        struct plan *p, *q;
        struct error e = {0};
        uint64_t limit, used;

        world_init(&w, seed);
        w.in.verdict = verdicts[seed % 6];
        p = run(&w.in, specs[_i], note);
        q = run(&w.in, specs[_i], again_note);
        ck_assert_msg(planner_check(&w.in, p, &e) == 0, "seed %u: %s", seed, e.text);
        ck_assert_msg(plan_equal(p, q), "%s differs the second time (seed %u)", specs[_i], seed);
        ck_assert_str_eq(note, again_note);
        planner_parse(&s, specs[_i], NULL);
        for (int d = 1; d < w.in.n_devices; d++) {
            used = planner_bytes(&w.in, p, d);
            limit = may_hold(&w.in, &s, d);
            ck_assert_msg(used <= limit, "%s, seed %u: %lu bytes on device %d, %lu allowed",
                          specs[_i], seed, (unsigned long)used, d, (unsigned long)limit);
        }
        if (strcmp(specs[_i], "auto") != 0)
            ck_assert_str_eq(p->name, specs[_i]);
        ck_assert(planner_token_ns(&w.in, p) >= 0);
        for (int i = 0; i < w.in.n_layers * w.in.n_experts; i++)
            ck_assert_msg(w.expert_bytes[i] || (!p->experts[i] && !p->streamed[i]),
                          "%s, seed %u: an expert that is not there was placed", specs[_i], seed);
        plan_free(p);
        plan_free(q);
    }
}
END_TEST

/* A plain machine: 4 layers of 8 experts, 2 used, one GPU without limit. */
static void plain(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->in = (struct planner_input){.n_layers = 4,
                                   .n_experts = 8,
                                   .n_experts_used = 2,
                                   .n_devices = 2,
                                   .target = 1,
                                   .head_bytes = 500,
                                   .attention_bytes = w->attention_bytes,
                                   .expert_bytes = w->expert_bytes,
                                   .usage = w->usage};
    for (int i = 0; i < 4; i++)
        w->attention_bytes[i] = 1000;
    for (int i = 0; i < 32; i++) {
        w->expert_bytes[i] = 100;
        w->usage[i] = (i * 7) % 32;
    }
    w->in.devices[1] =
        (struct planner_device){.name = "opencl:0", .budget = PLANNER_NO_LIMIT, .head_can = true};
}

/* The same with 8, 1 (dense), 3 and 8 experts. */
static void uneven(struct world *w)
{
    static const int has[] = {8, 1, 3, 8};

    plain(w);
    w->in.used = w->used;
    for (int l = 0; l < 4; l++) {
        w->used[l] = has[l] < 2 ? has[l] : 2;
        for (int x = has[l]; x < 8; x++)
            w->expert_bytes[l * 8 + x] = 0;
    }
    w->in.usage = NULL;
}

static int count_attention(const struct plan *p)
{
    int n = 0;

    for (int i = 0; i < p->n_layers; i++)
        n += p->attention[i] == 1;
    return n;
}

static int count_experts(const struct plan *p)
{
    int n = 0;

    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        n += p->experts[i] == 1;
    return n;
}

START_TEST(layers_with_fewer_experts)
{
    static const char *const all[] = {"gpu", "layers:4",    "experts:8",
                                      "hot", "experts-gpu", "stream"};
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p, *cpu;
    struct error e = {0};

    uneven(&w);
    ck_assert_int_eq(planner_experts(&w.in), 20);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        p = run(&w.in, all[i], note);
        ck_assert_int_eq(count_experts(p), 20);
        ck_assert_str_eq(note, "");
        ck_assert(fabs(planner_hit_rate(&w.in, p) - 1) < 1e-12);
        plan_free(p);
    }
    /* 2 of 4 layers' experts */
    p = run(&w.in, "layers:2", note);
    ck_assert(fabs(planner_hit_rate(&w.in, p) - 0.5) < 1e-12);
    /* four attentions, 2 + 1 + 2 + 2 experts (a byte is a nanosecond), the head */
    cpu = run(&w.in, "cpu", note);
    ck_assert(fabs(planner_token_ns(&w.in, cpu) - (4 * 1000 + 7 * 100 + 500)) < 1e-9);
    cpu->experts[1 * 8 + 1] = 1;
    ck_assert_int_eq(planner_check(&w.in, cpu, &e), ERR_USAGE);
    plan_free(cpu);
    plan_free(p);
    /* 4500 for attention and head, 200 for the buffers, two experts */
    w.in.devices[1].streams = true;
    w.in.devices[1].stream_bytes = 200;
    p = run(&w.in, "stream:4900", note);
    ck_assert_int_eq(count_experts(p), 20);
    ck_assert_ptr_nonnull(strstr(note, "18 of 20 experts"));
    plan_free(p);
    /* what does not fit is counted without those that are not there */
    p = run(&w.in, "experts-gpu", note);
    plan_free(p);
    w.in.devices[1].budget = 150;
    p = run(&w.in, "experts-gpu", note);
    ck_assert_ptr_nonnull(strstr(note, "19 of 20 blocks do not fit"));
    plan_free(p);
}
END_TEST

/* A layer without a mixer: nothing of it can be placed, it costs nothing and no note counts it. */
START_TEST(layers_without_a_mixer)
{
    static const char *const all[] = {"gpu", "layers:4", "attention-gpu", "memory:1G", "balanced"};
    char note[PLANNER_NOTE];
    struct world w;
    struct plan *p;
    struct error e = {0};

    uneven(&w);
    w.attention_bytes[1] = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        p = run(&w.in, all[i], note);
        ck_assert_int_eq(p->attention[1], 0);
        ck_assert_msg(!strstr(note, "stay"), "%s: %s", all[i], note);
        plan_free(p);
    }
    p = run(&w.in, "cpu", note);
    /* as in layers_with_fewer_experts, an attention less; also where attention was measured */
    ck_assert(fabs(planner_token_ns(&w.in, p) - (3 * 1000 + 7 * 100 + 500)) < 1e-9);
    w.in.devices[0].attention_ns = 10;
    ck_assert(fabs(planner_token_ns(&w.in, p) - (3 * 10 + 7 * 100 + 500)) < 1e-9);
    p->attention[1] = 1;
    ck_assert_int_eq(planner_check(&w.in, p, &e), ERR_USAGE);
    plan_free(p);
}
END_TEST

START_TEST(strategies_do_what_they_say)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;

    plain(&w);
    p = run(&w.in, "gpu", note);
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_int_eq(count_experts(p), 32);
    ck_assert_int_eq(p->head, 1);
    ck_assert_str_eq(note, "");
    plan_free(p);

    p = run(&w.in, "layers:1", note);
    ck_assert_int_eq(p->attention[3], 1);
    ck_assert_int_eq(p->attention[0] + p->attention[1] + p->attention[2], 0);
    for (int x = 0; x < 8; x++) {
        ck_assert_int_eq(plan_expert(p, 3, x), 1);
        ck_assert_int_eq(plan_expert(p, 0, x), 0);
    }
    ck_assert_int_eq(p->head, 0);
    plan_free(p);

    p = run(&w.in, "layers:first:3", note);
    ck_assert_int_eq(p->attention[0] & p->attention[1] & p->attention[2], 1);
    ck_assert_int_eq(p->attention[3], 0);
    ck_assert_int_eq(count_experts(p), 24);
    plan_free(p);

    p = run(&w.in, "layers:9", note);
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_ptr_nonnull(strstr(note, "4 layers"));
    plan_free(p);

    p = run(&w.in, "experts:2", note);
    for (int l = 0; l < 4; l++)
        for (int x = 0; x < 8; x++)
            ck_assert_int_eq(plan_expert(p, l, x), x < 2);
    ck_assert_int_eq(count_attention(p), 0);
    plan_free(p);

    /* attention and head lie there with two experts; the others pass through the buffers, which
     * count */
    w.in.devices[1].streams = true;
    w.in.devices[1].stream_bytes = 200;
    p = run(&w.in, "stream:4900", note);
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_int_eq(count_experts(p), 32);
    ck_assert_int_eq(p->head, 1);
    ck_assert_uint_eq(planner_bytes(&w.in, p, 1), 4900);
    for (int i = 0, lying = 0; i < 32; i++) {
        lying += !p->streamed[i];
        ck_assert_int_eq(i < 31 || lying == 2, 1);
    }
    ck_assert_ptr_nonnull(strstr(note, "30 of 32 experts"));
    plan_free(p);
    p = run(&w.in, "stream", note); /* all of it fits: nothing passes */
    ck_assert_int_eq(count_experts(p), 32);
    ck_assert_ptr_null(memchr(p->streamed, 1, 32));
    ck_assert_str_eq(note, "");
    plan_free(p);
    p = run(&w.in, "stream:150", note);
    ck_assert_int_eq(count_experts(p), 1);
    ck_assert_ptr_nonnull(strstr(note, "buffers for streaming do not fit"));
    plan_free(p);
    w.in.devices[1].streams = false;
    p = run(&w.in, "stream:4900", note);
    ck_assert_ptr_null(memchr(p->streamed, 1, 32));
    ck_assert_ptr_nonnull(strstr(note, "cannot be streamed"));
    plan_free(p);

    p = run(&w.in, "attention-gpu", note);
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_int_eq(count_experts(p), 0);
    plan_free(p);

    p = run(&w.in, "experts-gpu", note);
    ck_assert_int_eq(count_attention(p), 0);
    ck_assert_int_eq(count_experts(p), 32);
    plan_free(p);
}
END_TEST

START_TEST(hot_takes_the_most_used)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;
    double coldest_in = 1e9, hottest_out = -1;

    plain(&w);
    p = run(&w.in, "hot:1000", note);
    ck_assert_int_eq(count_experts(p), 10);
    for (int i = 0; i < 32; i++) {
        if (p->experts[i] && w.usage[i] < coldest_in)
            coldest_in = w.usage[i];
        if (!p->experts[i] && w.usage[i] > hottest_out)
            hottest_out = w.usage[i];
    }
    ck_assert(coldest_in > hottest_out);
    ck_assert(planner_hit_rate(&w.in, p) > 10.0 / 32);
    plan_free(p);

    w.in.usage = NULL; /* nothing known: says so and takes the last layers' */
    p = run(&w.in, "hot:1000", note);
    ck_assert_int_eq(count_experts(p), 10);
    ck_assert_int_eq(plan_expert(p, 3, 0), 1);
    ck_assert_ptr_nonnull(strstr(note, "nothing is known"));
    ck_assert(fabs(planner_hit_rate(&w.in, p) - 10.0 / 32) < 1e-12);
    plan_free(p);
}
END_TEST

START_TEST(memory_takes_attention_first)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;

    plain(&w);
    p = run(&w.in, "memory:4700", note); /* 4 x 1000, head 500, 2 x 100 */
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_int_eq(p->head, 1);
    ck_assert_int_eq(count_experts(p), 2);
    plan_free(p);
    p = run(&w.in, "memory:2100", note);
    ck_assert_int_eq(count_attention(p), 2);
    ck_assert_int_eq(p->attention[3] & p->attention[2], 1);
    ck_assert_int_eq(p->head, 0);
    ck_assert_int_eq(count_experts(p), 1);
    plan_free(p);
}
END_TEST

START_TEST(notes_say_what_stayed)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;

    plain(&w);
    w.in.devices[1].budget = 1000;
    p = run(&w.in, "gpu", note);
    ck_assert_ptr_nonnull(strstr(note, "do not fit opencl:0"));
    plan_free(p);
    w.in.devices[1].budget = PLANNER_NO_LIMIT;
    w.in.devices[1].experts_can = w.experts_can; /* none */
    p = run(&w.in, "gpu", note);
    ck_assert_ptr_nonnull(strstr(note, "cannot run"));
    ck_assert_int_eq(count_experts(p), 0);
    plan_free(p);
    w.in.n_devices = 1;
    w.in.target = 0;
    p = run(&w.in, "gpu", note);
    ck_assert_ptr_nonnull(strstr(note, "no device beside the CPU"));
    ck_assert_int_eq(count_attention(p), 0);
    plan_free(p);
    p = run(&w.in, "cpu", note);
    ck_assert_str_eq(note, "");
    plan_free(p);
}
END_TEST

/* The least time over every split of every layer, by trying them all (2 layers of 3 experts: 2^9
 * plans). */
static double brute_force(const struct planner_input *in, uint64_t limit)
{
    struct plan *p = plan_new("try", in->n_layers, in->n_experts);
    int cells = in->n_layers * in->n_experts, bits = cells + in->n_layers + 1;
    double best = 1e300;

    for (int m = 0; m < 1 << bits; m++) {
        double t;

        for (int i = 0; i < cells; i++)
            p->experts[i] = (uint8_t)(m >> i & 1);
        for (int i = 0; i < in->n_layers; i++)
            p->attention[i] = (uint8_t)(m >> (cells + i) & 1);
        p->head = (uint8_t)(m >> (bits - 1) & 1);
        if (planner_bytes(in, p, 1) > limit)
            continue;
        t = planner_token_ns(in, p);
        if (t < best)
            best = t;
    }
    plan_free(p);
    return best;
}

START_TEST(balanced_beats_every_other_split)
{
    struct world w;
    char note[PLANNER_NOTE];
    int exact = 0, tried = 0;
    double worst = 1;

    for (unsigned seed = 0; seed < 60; seed++) {
        struct plan *p;
        double best, got, cpu;
        uint64_t limit;

        plain(&w);
        random_state = seed + 77;
        w.in.n_layers = 2;
        w.in.n_experts = 3;
        w.in.n_experts_used = 1 + (int)next_random(2);
        for (int i = 0; i < 6; i++)
            w.usage[i] = 10 + (i % 3) * next_random(40);
        for (int d = 0; d < 2; d++) {
            w.in.devices[d].attention_ns = 100 + next_random(1000);
            w.in.devices[d].expert_ns = 100 + next_random(1000);
            w.in.devices[d].head_ns = 100 + next_random(1000);
        }
        w.in.devices[1].handoff_ns = next_random(150);
        p = run(&w.in, "cpu", note);
        cpu = planner_token_ns(&w.in, p);
        plan_free(p);
        for (int limited = 0; limited < 2; limited++) {
            limit = limited ? 1200 + next_random(1500) : PLANNER_NO_LIMIT;
            w.in.devices[1].budget = limit;
            p = run(&w.in, "balanced", note);
            ck_assert_str_eq(note, "");
            got = planner_token_ns(&w.in, p);
            best = brute_force(&w.in, limit);
            ck_assert(got <= cpu + 1e-9);
            if (!limited) {
                ck_assert_msg(got <= best + 1e-6, "seed %u: %g ns, best %g", seed, got, best);
            } else {
                if (got > best * worst)
                    worst = got / best;
                exact += got <= best + 1e-6;
                tried++;
            }
            plan_free(p);
        }
    }
    printf("within a budget: %d of %d optimal, the worst %.1f %% longer\n", exact, tried,
           100 * (worst - 1));
    ck_assert_msg(exact * 10 >= tried * 8, "only %d of %d optimal", exact, tried);
    ck_assert_msg(worst < 1.15, "%g", worst);
}
END_TEST

/* A prompt's pass of 512 rows; ns of a row: attention 100 here, 400 there, an expert 25 and 100,
 * the host's part 10. */
static void prompts(struct world *w)
{
    plain(w);
    w->in.prompt_rows = 512;
    w->in.prompt_host_ns = 10;
    w->in.usage = NULL;
    w->in.devices[0].prompt_attention_ns = 100;
    w->in.devices[0].prompt_expert_ns = 25;
    w->in.devices[0].head_ns = 1000;
    w->in.devices[1].prompt_attention_ns = 400;
    w->in.devices[1].prompt_expert_ns = 100;
}

START_TEST(a_prompt_is_as_long_as_its_steps)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;
    double cpu = 4 * 512 * (100 + 2 * 25 + 10) + 1000, group = 256 * (100 + 10), sent;

    prompts(&w);
    p = run(&w.in, "cpu", note);
    ck_assert_double_eq_tol(planner_token_ns(&w.in, p), cpu, 1e-3);
    /* the device's experts, of one group after the other: the CPU has gone ahead with the next
     * group and waits for the device ever after; each job costs its launch and wait, too */
    for (int i = 0; i < 32; i++)
        p->experts[i] = 1;
    w.in.devices[1].handoff_ns = 5000;
    sent = 256 * 2 * 100 + 5000;
    ck_assert_double_eq_tol(planner_token_ns(&w.in, p), group + 8 * sent + 1000, 1e-3);
    /* too short to be split: as a token, one layer after the other */
    w.in.prompt_rows = PLANNER_OVERLAP - 1;
    ck_assert_double_gt(planner_token_ns(&w.in, p),
                        4 * (PLANNER_OVERLAP - 1) * (100 + 2 * 100) + 4 * 5000);
    plan_free(p);
}
END_TEST

START_TEST(balanced_keeps_both_sides_busy_with_a_prompt)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p, *cpu;
    double alone, ideal, got;

    prompts(&w);
    p = run(&w.in, "balanced", note);
    cpu = run(&w.in, "cpu", note);
    alone = planner_token_ns(&w.in, cpu);
    ideal = alone * 0.8; /* a fifth of it there: the device is a quarter as fast */
    got = planner_token_ns(&w.in, p);
    ck_assert_double_lt(got, 0.92 * alone);
    ck_assert_double_gt(got, ideal - 1e-6);
    ck_assert_int_gt(count_experts(p) + count_attention(p), 0);
    plan_free(p);
    /* one expert is all that fits */
    w.in.devices[1].budget = 150;
    p = run(&w.in, "balanced", note);
    ck_assert_uint_le(planner_bytes(&w.in, p, 1), 150);
    plan_free(p);
    /* nothing is gained where the device is too slow, or less than the costs may be wrong by */
    w.in.devices[1].budget = PLANNER_NO_LIMIT;
    w.in.doubt = 0.5;
    p = run(&w.in, "balanced", note);
    ck_assert_int_eq(count_experts(p) + count_attention(p), 0);
    plan_free(p);
    w.in.doubt = 0;
    w.in.devices[1].prompt_attention_ns = w.in.devices[1].prompt_expert_ns = 1e6;
    p = run(&w.in, "balanced", note);
    ck_assert_int_eq(count_experts(p) + count_attention(p), 0);
    plan_free(p);
    plan_free(cpu);
}
END_TEST

START_TEST(balanced_keeps_off_a_slow_gpu_and_uses_a_fast_one)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;

    plain(&w);
    w.in.devices[0] =
        (struct planner_device){.attention_ns = 1000, .expert_ns = 500, .head_ns = 2000};
    w.in.devices[1].attention_ns = w.in.devices[1].expert_ns = w.in.devices[1].head_ns = 50000;
    p = run(&w.in, "balanced", note);
    ck_assert_int_eq(count_attention(p) + count_experts(p) + p->head, 0);
    plan_free(p);
    w.in.devices[1].attention_ns = w.in.devices[1].expert_ns = w.in.devices[1].head_ns = 1;
    p = run(&w.in, "balanced", note);
    ck_assert_int_eq(count_attention(p), 4);
    ck_assert_int_eq(p->head, 1);
    /* one is never used: moving it would gain nothing */
    ck_assert_int_eq(count_experts(p), 31);
    plan_free(p);
    /* equal speed, no handoff: working at once is the win, so each layer is split */
    w.in.devices[1].attention_ns = 1000;
    w.in.devices[1].expert_ns = 500;
    w.in.devices[1].head_ns = 2000;
    p = run(&w.in, "balanced", note);
    ck_assert_int_gt(count_experts(p), 0);
    ck_assert_int_lt(count_experts(p), 32);
    plan_free(p);
}
END_TEST

START_TEST(model_of_a_token_by_hand)
{
    struct world w;
    struct plan *p;

    plain(&w);
    w.in.n_layers = 1;
    w.in.n_experts = 2;
    w.in.n_experts_used = 2;
    w.in.usage = NULL;
    w.in.devices[0] =
        (struct planner_device){.attention_ns = 1000, .expert_ns = 100, .head_ns = 50};
    w.in.devices[1].attention_ns = 10;
    w.in.devices[1].expert_ns = 10;
    w.in.devices[1].head_ns = 5;
    w.in.devices[1].handoff_ns = 1;
    p = plan_new("hand", 1, 2);
    ck_assert(fabs(planner_token_ns(&w.in, p) - (1000 + 200 + 50)) < 1e-9);
    p->experts[1] = 1;
    /* shares 1/2: both here 1/4 (200), one each 1/2 (100 beside 11), both there 1/4 (21) */
    ck_assert(fabs(planner_token_ns(&w.in, p) - (1000 + 0.25 * 200 + 0.5 * 100 + 0.25 * 21 + 50)) <
              1e-9);
    p->experts[0] = p->attention[0] = p->head = 1;
    ck_assert(fabs(planner_token_ns(&w.in, p) - (11 + 21 + 6)) < 1e-9);
    w.in.devices[1].fuses_layers = true;
    ck_assert(fabs(planner_token_ns(&w.in, p) - (11 + 20 + 6)) < 1e-9);
    plan_free(p);
}
END_TEST

START_TEST(dynamic_follows_use_without_flapping)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p, *q;

    plain(&w);
    w.in.devices[1].budget = 500;
    w.in.move_bytes = 200;
    for (int i = 0; i < 32; i++)
        w.usage[i] = i;
    p = run(&w.in, "dynamic", note);
    ck_assert_int_eq(count_experts(p), 2); /* the move budget */
    ck_assert(p->experts[31] && p->experts[30]);
    for (int i = 0; i < 4; i++) {
        w.in.current = p;
        q = run(&w.in, "dynamic", note);
        plan_free(p);
        p = q;
    }
    ck_assert_int_eq(count_experts(p), 5);
    ck_assert(p->experts[27] && p->experts[28] && p->experts[29]);
    w.in.current = p;
    q = run(&w.in, "dynamic", note); /* settled */
    ck_assert(plan_equal(p, q));
    plan_free(q);
    /* hotter than the coldest inside (27), but not by a quarter */
    w.usage[0] = 33;
    q = run(&w.in, "dynamic", note);
    ck_assert(plan_equal(p, q));
    plan_free(q);
    w.usage[0] = 60;
    q = run(&w.in, "dynamic", note);
    ck_assert_int_eq(q->experts[0], 1);
    ck_assert_int_eq(q->experts[27], 0);
    ck_assert_int_eq(plan_diff(p, q, NULL), 2);
    plan_free(q);
    plan_free(p);
}
END_TEST

START_TEST(dynamic_moves_at_most_its_budget)
{
    static struct world w;
    char note[PLANNER_NOTE];

    for (unsigned seed = 0; seed < 300; seed++) {
        struct plan *p = NULL, *q;

        world_init(&w, seed);
        if (!w.in.target)
            continue;
        w.in.usage = w.usage;
        w.in.move_bytes = 300;
        for (int round = 0; round < 12; round++) {
            uint64_t moved = 0;
            int n = 0;

            w.in.current = p;
            q = run(&w.in, "dynamic", note);
            for (int i = 0; i < w.in.n_layers * w.in.n_experts; i++)
                if (q->experts[i] && !(p && p->experts[i])) {
                    moved += w.expert_bytes[i];
                    n++;
                }
            ck_assert_msg(moved <= 300 || n == 1, "seed %u: %lu bytes in one step", seed,
                          (unsigned long)moved);
            plan_free(p);
            p = q;
            w.usage[next_random((unsigned)(w.in.n_layers * w.in.n_experts))] += next_random(2000);
        }
        plan_free(p);
    }
}
END_TEST

START_TEST(auto_takes_the_verdict)
{
    struct world w;
    char note[PLANNER_NOTE];
    struct plan *p;

    plain(&w);
    p = run(&w.in, "auto", note);
    ck_assert_int_eq(count_experts(p), 0);
    ck_assert_ptr_nonnull(strstr(note, "nothing was measured"));
    plan_free(p);
    w.in.verdict = "experts-gpu";
    p = run(&w.in, "auto", note);
    ck_assert_int_eq(count_experts(p), 32);
    ck_assert_str_eq(p->name, "auto (experts-gpu)");
    plan_free(p);
    w.in.verdict = "cpu";
    w.in.verdict_line = "auto: gpu 38 % slower";
    p = run(&w.in, "auto", note);
    ck_assert_int_eq(count_experts(p), 0);
    ck_assert_ptr_nonnull(strstr(note, "38 % slower"));
    plan_free(p);
}
END_TEST

static int count_on(const struct plan *p, int device)
{
    int n = p->head == device;

    for (int i = 0; i < p->n_layers; i++)
        n += p->attention[i] == device;
    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        n += p->experts[i] == device;
    return n;
}

/* The second device gets what the first one left, and the sizes are those of the spec. */
START_TEST(several_gpus_are_filled_in_order)
{
    struct world w;
    struct plan *p;
    char note[PLANNER_NOTE];

    plain(&w);
    w.in.n_devices = 3;
    w.in.devices[2] = w.in.devices[1];
    w.in.devices[2].number = 1;
    w.in.devices[1].budget = 4500; /* attention and head alone */
    p = run(&w.in, "gpu", note);   /* nobody named the second one */
    ck_assert_int_eq(count_on(p, 1), 5);
    ck_assert_int_eq(count_on(p, 2), 0);
    ck_assert_ptr_nonnull(strstr(note, "32 of 37 blocks do not fit"));
    plan_free(p);

    w.in.also[w.in.n_also++] = 2;
    p = run(&w.in, "gpu", note);
    ck_assert_int_eq(count_on(p, 1), 5);
    ck_assert_int_eq(count_on(p, 2), 32);
    ck_assert_str_eq(note, "");
    plan_free(p);

    p = run(&w.in, "layers:0=1,1=2", note); /* the last one, then the two before it */
    for (int l = 0; l < 4; l++) {
        int want = l == 3 ? 1 : l ? 2 : 0;

        ck_assert_int_eq(p->attention[l], want);
        for (int x = 0; x < 8; x++)
            ck_assert_int_eq(plan_expert(p, l, x), want);
    }
    plan_free(p);

    p = run(&w.in, "experts:1=1,0=2", note);
    for (int x = 0; x < 8; x++)
        ck_assert_int_eq(plan_expert(p, 2, x), x < 1 ? 2 : x < 3 ? 1 : 0);
    plan_free(p);

    w.in.devices[1].budget = PLANNER_NO_LIMIT;
    p = run(&w.in, "hot:1=300,0=500", note); /* the hottest on the one named first */
    ck_assert_int_eq(count_on(p, 2), 3);
    ck_assert_int_eq(count_on(p, 1), 5);
    for (int i = 0; i < 32; i++)
        for (int k = 0; k < 32; k++)
            if (p->experts[i] == 2 && p->experts[k] != 2)
                ck_assert(w.usage[i] > w.usage[k]);
    plan_free(p);

    p = run(&w.in, "hot:300", note); /* of each */
    ck_assert_int_eq(count_on(p, 1), 3);
    ck_assert_int_eq(count_on(p, 2), 3);
    plan_free(p);

    p = run(&w.in, "hot:0=300,5=1G", note);
    ck_assert_int_eq(count_on(p, 1), 3);
    ck_assert_int_eq(count_on(p, 2), 0);
    ck_assert_ptr_nonnull(strstr(note, "no device number 5"));
    plan_free(p);

    p = run(&w.in, "gpu:1", note); /* alone */
    ck_assert_int_eq(count_on(p, 1), 0);
    ck_assert_int_eq(count_on(p, 2), 37);
    plan_free(p);

    w.in.verdict = "attention-gpu:1"; /* as auto's verdict */
    p = run(&w.in, "auto", note);
    ck_assert_int_eq(count_on(p, 1), 0);
    ck_assert_int_eq(count_on(p, 2), 4);
    ck_assert_str_eq(p->name, "auto (attention-gpu:1)");
    plan_free(p);

    w.in.devices[2].budget = 4500;
    p = run(&w.in, "gpu:1+0", note); /* in this order */
    ck_assert_int_eq(count_on(p, 1), 32);
    ck_assert_int_eq(count_on(p, 2), 5);
    plan_free(p);

    p = run(&w.in, "hot:1=all", note);
    ck_assert_int_eq(count_on(p, 1), 0);
    ck_assert_int_eq(count_on(p, 2), 32);
    plan_free(p);

    w.in.devices[1].budget = 4500;
    w.in.devices[2].budget = 1000;
    w.in.devices[2].streams = true;
    w.in.devices[2].stream_bytes = 200;
    p = run(&w.in, "stream", note); /* what neither holds goes through the last one */
    ck_assert_int_eq(count_on(p, 1), 5);
    ck_assert_int_eq(count_on(p, 2), 32);
    ck_assert_uint_eq(planner_bytes(&w.in, p, 2), 1000);
    ck_assert_ptr_nonnull(strstr(note, "24 of 32 experts"));
    plan_free(p);
}
END_TEST

/* Two GPUs that are as fast as the CPU share each layer with it. */
START_TEST(balanced_uses_them_all)
{
    struct world w;
    struct plan *one, *two;
    char note[PLANNER_NOTE];

    plain(&w);
    w.in.n_experts_used = 4;
    w.in.n_devices = 3;
    for (int d = 0; d < 3; d++) {
        w.in.devices[d] = w.in.devices[1];
        w.in.devices[d].number = d - 1;
        w.in.devices[d].attention_ns = w.in.devices[d].expert_ns = 100;
        w.in.devices[d].head_ns = 500;
    }
    w.in.usage = NULL;
    one = run(&w.in, "balanced", note);
    w.in.also[w.in.n_also++] = 2;
    two = run(&w.in, "balanced", note);
    ck_assert_int_eq(count_on(one, 2), 0);
    ck_assert_int_gt(count_on(two, 0), 0);
    ck_assert_int_gt(count_on(two, 1), 0);
    ck_assert_int_gt(count_on(two, 2), 0);
    ck_assert(planner_token_ns(&w.in, two) < planner_token_ns(&w.in, one));
    plan_free(one);
    plan_free(two);
}
END_TEST

START_TEST(several_gpus_are_modelled)
{
    struct world w;
    struct plan *p;
    double split, one;

    plain(&w);
    w.in.n_devices = 3;
    w.in.devices[0].expert_ns = w.in.devices[1].expert_ns = w.in.devices[2].expert_ns = 100;
    w.in.usage = NULL;
    p = plan_new("three", 4, 8);
    one = planner_token_ns(&w.in, p);
    for (int i = 0; i < 32; i++)
        p->experts[i] = (uint8_t)(i % 3);
    split = planner_token_ns(&w.in, p);
    ck_assert(split < one);
    plan_free(p);
}
END_TEST

static const struct {
    const char *spec, *says;
} bad_specs[] = {
    {"", "empty"},
    {"fast", "no such strategy"},
    {"layers", "layers:N"},
    {"layers:", "layers:N"},
    {"layers:-1", "layers:N"},
    {"layers:x", "layers:N"},
    {"layers:first:", "layers:N"},
    {"layers:first", "layers:N"},
    {"layers:3x", "layers:N"},
    {"layers:99999999999", "layers:N"},
    {"experts", "experts:N"},
    {"experts:1.5", "experts:N"},
    {"hot:", "no size"},
    {"hot:lots", "no size"},
    {"memory", "give a size"},
    {"memory:-1", "no size"},
    {"cpu:1", "nothing after a colon"},
    {"gpu:", "for example gpu:1 or gpu:1+0"},
    {"attention-gpu:1,0", "each device's number once"},
    {"experts-gpu:1+1", "each device's number once"},
    {"gpu:1+", "each device's number once"},
    {"gpu:0+1+2+3+4+5+6+7+8", "each device's number once"},
    {"balanced:1=everything", "0=4G,1=2G"},
    {"balanced:x", "no size"},
    {"CPU", "no such strategy"},
    {"hot600M", "no such strategy"},
    {"hot:0=1G,0=2G", "each device's number once"},
    {"hot:0=1G,", "each device's number once"},
    {"hot:=1G", "each device's number once"},
    {"hot:0=", "0=4G,1=2G"},
    {"memory:0=1G,2G", "memory:0=4G,1=2G"},
    {"layers:0=x", "layers:0=12,1=8"},
    {"experts:0=1,1=-1", "experts:0=12,1=8"},
    {"hot:0=1,1=1,2=1,3=1,4=1,5=1,6=1,7=1,8=1", "once"},
    {"gpu:0=1G", "each device's number once"},
    {"hot:"
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaa",
     "too long"},
};

START_TEST(bad_specs_are_named)
{
    struct planner_spec s;
    struct error e = {0};

    ck_assert_int_eq(planner_parse(&s, bad_specs[_i].spec, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad_specs[_i].says) != NULL, "'%s' gives: %s", bad_specs[_i].spec,
                  e.text);
}
END_TEST

START_TEST(unknown_name_lists_all)
{
    struct planner_spec s;
    struct error e = {0};

    planner_parse(&s, "x", &e);
    for (int i = 0; i < n_planners; i++)
        ck_assert_msg(strstr(e.text, planners[i].syntax) != NULL, "%s is missing in: %s",
                      planners[i].syntax, e.text);
}
END_TEST

START_TEST(help_has_a_line_each)
{
    char text[2000];
    int n = planner_help(text, sizeof text), lines = 0;

    ck_assert_int_lt(n, (int)sizeof text);
    for (int i = 0; text[i]; i++)
        lines += text[i] == '\n';
    ck_assert_int_eq(lines, n_planners);
    ck_assert_int_eq(planner_help(NULL, 0), n);
}
END_TEST

START_TEST(every_planner_can_be_named)
{
    for (int i = 0; i < n_planners; i++)
        ck_assert_ptr_eq(planner_find(planners[i].name, strlen(planners[i].name)), &planners[i]);
}
END_TEST

START_TEST(check_finds_bad_plans)
{
    struct world w;
    struct error e = {0};
    struct plan *p = plan_new("bad", 4, 8), *other = plan_new("other", 3, 8);

    plain(&w);
    ck_assert_int_eq(planner_check(&w.in, p, &e), 0);
    ck_assert_int_eq(planner_check(&w.in, other, &e), ERR_USAGE);
    p->experts[9] = 2;
    ck_assert_int_eq(planner_check(&w.in, p, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "expert 1 of layer 1"));
    p->experts[9] = 0;
    p->attention[2] = 7;
    ck_assert_int_eq(planner_check(&w.in, p, &e), ERR_USAGE);
    p->attention[2] = 1;
    w.in.devices[1].attention_can = w.attention_can;
    ck_assert_int_eq(planner_check(&w.in, p, &e), ERR_USAGE);
    p->attention[2] = 0;
    p->head = 1;
    w.in.devices[1].head_can = false;
    ck_assert_int_eq(planner_check(&w.in, p, &e), ERR_USAGE);
    plan_free(p);
    plan_free(other);
}
END_TEST

START_TEST(scripts_parse)
{
    struct planner_step s[4];
    struct error e = {0};

    ck_assert_int_eq(planner_script_parse(s, 4, "20:gpu,45:hot:600M,80:cpu", &e), 3);
    ck_assert_int_eq(s[0].after, 20);
    ck_assert_str_eq(s[1].spec, "hot:600M");
    ck_assert_int_eq(s[2].after, 80);
    ck_assert_int_eq(planner_script_parse(s, 4, "0:plan.yaml", &e), 1);
    ck_assert_int_eq(planner_script_parse(s, 4, "5:hot:0=4G,1=2G,20:layers:1=3,40:cpu", &e), 3);
    ck_assert_str_eq(s[0].spec, "hot:0=4G,1=2G");
    ck_assert_str_eq(s[1].spec, "layers:1=3");
    ck_assert_int_eq(planner_script_parse(s, 4, "", &e), 0);
    ck_assert_int_eq(planner_script_parse(s, 4, NULL, &e), 0);
}
END_TEST

static const char *const bad_scripts[] = {"20",
                                          "20:",
                                          ":gpu",
                                          "x:gpu",
                                          "20:gpu,",
                                          "20:gpu,,30:cpu",
                                          "30:gpu,20:cpu",
                                          "20:gpu,20:cpu",
                                          "-1:gpu",
                                          "1:a,2:a,3:a,4:a,5:a"};

START_TEST(bad_scripts_are_named)
{
    struct planner_step s[4];
    struct error e = {0};

    ck_assert_int_eq(planner_script_parse(s, 4, bad_scripts[_i], &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "--place-script"));
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    struct world w;

    plain(&w);
    w.in.verdict = "balanced";
    for (int i = 0; i < N_SPECS; i++) {
        struct planner_spec s;

        planner_parse(&s, specs[i], NULL);
        for (long n = 0; n < 50; n++) {
            struct plan *p;
            struct error e = {0};
            int rc;

            mem_fail_after(n);
            rc = planner_run(&s, &w.in, &p, NULL, &e);
            mem_fail_after(-1);
            if (rc == 0) {
                plan_free(p);
                break;
            }
            ck_assert_int_eq(rc, ERR_MEMORY);
            ck_assert_ptr_null(p);
            ck_assert_int_lt(n, 49);
        }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("planner");
    TCase *t = tcase_create("planner");

    tcase_add_loop_test(t, every_plan_is_valid_within_budget_and_repeatable, 0, N_SPECS);
    tcase_add_loop_test(t, both_phases_fit_together, 0, N_SPECS);
    tcase_add_test(t, a_request_names_its_phase);
    tcase_add_test(t, strategies_do_what_they_say);
    tcase_add_test(t, layers_with_fewer_experts);
    tcase_add_test(t, layers_without_a_mixer);
    tcase_add_test(t, hot_takes_the_most_used);
    tcase_add_test(t, memory_takes_attention_first);
    tcase_add_test(t, notes_say_what_stayed);
    tcase_add_test(t, balanced_beats_every_other_split);
    tcase_add_test(t, a_prompt_is_as_long_as_its_steps);
    tcase_add_test(t, balanced_keeps_both_sides_busy_with_a_prompt);
    tcase_add_test(t, balanced_keeps_off_a_slow_gpu_and_uses_a_fast_one);
    tcase_add_test(t, model_of_a_token_by_hand);
    tcase_add_test(t, dynamic_follows_use_without_flapping);
    tcase_add_test(t, dynamic_moves_at_most_its_budget);
    tcase_add_test(t, auto_takes_the_verdict);
    tcase_add_test(t, several_gpus_are_filled_in_order);
    tcase_add_test(t, balanced_uses_them_all);
    tcase_add_test(t, several_gpus_are_modelled);
    tcase_add_loop_test(t, bad_specs_are_named, 0, (int)(sizeof bad_specs / sizeof *bad_specs));
    tcase_add_test(t, unknown_name_lists_all);
    tcase_add_test(t, help_has_a_line_each);
    tcase_add_test(t, every_planner_can_be_named);
    tcase_add_test(t, check_finds_bad_plans);
    tcase_add_test(t, scripts_parse);
    tcase_add_loop_test(t, bad_scripts_are_named, 0,
                        (int)(sizeof bad_scripts / sizeof *bad_scripts));
    tcase_add_test(t, every_allocation_may_fail);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
