/* Residency with made-up devices that only keep books: what is in force is always resident, steps
 * are bounded, every failure leaves consistent plans, memory returns to what it was. */
#include "engine/base/mem.h"
#include "engine/placement/residency.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 3
#define EXPERTS 4
#define CELLS (LAYERS * EXPERTS)
#define BLOCKS (LAYERS + CELLS + 1)
#define MIB ((size_t)1 << 20)

/* A device that keeps books only. */
struct book {
    struct device_base base;
    size_t have[BLOCKS]; /* bytes of each block that were put */
    bool resident[BLOCKS];
    uint64_t uploaded;
    int calls, fail_at; /* fail_at: the call (from 0) that is refused; -1: none */
    int fails;          /* how many calls from there on are refused */
};

static struct model model;
static struct layer_weights layers[LAYERS];
static struct expert_weights experts[LAYERS][EXPERTS];
static struct book books[3];
static struct device *devices[3];

static int index_of(struct block_id id)
{
    return id.kind == BLOCK_ATTENTION ? id.layer
           : id.kind == BLOCK_EXPERT  ? LAYERS + id.layer * EXPERTS + id.expert
                                      : BLOCKS - 1;
}

static int book_put(struct device *d, struct block_id id, size_t max, struct error *e)
{
    struct book *b = (struct book *)d;
    int i = index_of(id);
    uint64_t bytes = model_block_bytes(&model, id), left = bytes - b->have[i];

    if (b->fail_at >= 0 && b->calls >= b->fail_at && b->calls < b->fail_at + b->fails) {
        b->calls++;
        return error_set(e, ERR_DEVICE, "out of device memory");
    }
    b->calls++;
    ck_assert_msg(!b->resident[i], "block %d put twice", i);
    if (max < left) {
        b->have[i] += max;
        b->uploaded += max;
        return 0;
    }
    b->have[i] = bytes;
    b->uploaded += left;
    b->resident[i] = true;
    return 1;
}

static void book_drop(struct device *d, struct block_id id)
{
    struct book *b = (struct book *)d;

    b->have[index_of(id)] = 0;
    b->resident[index_of(id)] = false;
}

static bool book_supports(const struct device *d, const struct layer_shape *shape,
                          enum block_kind kind, enum dtype type)
{
    return type != DTYPE_F16 ? !shape || !shape->mixer.sinks || kind != BLOCK_ATTENTION
                             : kind == BLOCK_HEAD;
}

static void book_stats(const struct device *d, struct device_stats *out)
{
    *out = (struct device_stats){.uploaded_bytes = ((const struct book *)d)->uploaded};
}

static const struct device_ops book_ops = {.name = "book",
                                           .block_put = book_put,
                                           .block_drop = book_drop,
                                           .supports = book_supports,
                                           .stats = book_stats};

/* The engine's side: rows[layer][device] valid rows of kv_len. */
struct rows {
    int have[LAYERS][3], len;
    struct plan *in_force;
    int steps, fail_at;
};

#define ROW_BYTES 4096

static int rows_step(void *ctx, int layer, int device, uint64_t max, uint64_t *spent,
                     struct error *e)
{
    struct rows *k = ctx;
    int n = (int)(max / ROW_BYTES) ? (int)(max / ROW_BYTES) : 1,
        missing = k->len - k->have[layer][device];

    if (k->steps++ == k->fail_at)
        return error_set(e, ERR_DEVICE, "copy failed");
    ck_assert_int_ne(k->in_force->attention[layer], device);
    ck_assert_int_eq(k->have[layer][k->in_force->attention[layer]], k->len);
    n = n < missing ? n : missing;
    k->have[layer][device] += n;
    *spent += (uint64_t)n * ROW_BYTES;
    return k->have[layer][device] == k->len;
}

static void rows_dropped(void *ctx, int layer, int device)
{
    struct rows *k = ctx;

    k->have[layer][device] = 0;
}

static struct rows rows;
static struct residency_kv kv = {rows_step, rows_dropped, &rows};

static void setup(void)
{
    memset(&model, 0, sizeof model);
    memset(books, 0, sizeof books);
    memset(&rows, 0, sizeof rows);
    model.hp.n_layers = LAYERS;
    model.hp.common.ffn.experts = EXPERTS;
    hparams_count(&model.hp);
    model.layers = layers;
    model.head.bytes = 5 * MIB;
    for (int l = 0; l < LAYERS; l++) {
        layers[l].q.bytes = layers[l].o.bytes = 4 * MIB;
        layers[l].k.bytes = layers[l].v.bytes = MIB;
        layers[l].experts = experts[l];
        for (int x = 0; x < EXPERTS; x++)
            experts[l][x].gate.bytes = experts[l][x].up.bytes = experts[l][x].down.bytes = MIB;
    }
    for (int d = 0; d < 3; d++) {
        books[d].base.ops = &book_ops;
        snprintf(books[d].base.info.selector, sizeof books[d].base.info.selector, "book:%d", d);
        books[d].fail_at = -1;
        books[d].fails = 1;
        devices[d] = (struct device *)&books[d];
    }
    rows.fail_at = -1;
    rows.in_force = plan_new("cpu", LAYERS, EXPERTS);
}

static void teardown(void)
{
    plan_free(rows.in_force);
}

static uint64_t held(int d)
{
    uint64_t sum = 0;

    for (int i = 0; i < BLOCKS; i++)
        sum += books[d].have[i];
    return sum;
}

static int place(const struct plan *p, int i)
{
    return i < LAYERS ? p->attention[i] : i < LAYERS + CELLS ? p->experts[i - LAYERS] : p->head;
}

/* What must hold at every safe point, whatever happened. */
static void check_consistent(const struct plan *p)
{
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_msg(place(p, i) == 0 || books[place(p, i)].resident[i],
                      "block %d runs on device %d, which does not hold it", i, place(p, i));
    for (int l = 0; l < LAYERS; l++)
        ck_assert_msg(rows.have[l][p->attention[l]] == rows.len,
                      "layer %d: rows are missing where its attention runs", l);
}

/* A token: the rows of every layer grow where the attention runs. */
static void token(void)
{
    rows.len++;
    for (int l = 0; l < LAYERS; l++)
        rows.have[l][rows.in_force->attention[l]]++;
}

static struct plan *random_plan(unsigned *seed, int n_devices)
{
    struct plan *p = plan_new("random", LAYERS, EXPERTS);
    int style = rand_r(seed) % 4;

    for (int l = 0; l < LAYERS; l++)
        p->attention[l] = (uint8_t)(style == 0 ? 0 : style == 1 ? 1 : rand_r(seed) % n_devices);
    for (int i = 0; i < CELLS; i++)
        p->experts[i] = (uint8_t)(style == 0 ? 0 : style == 1 ? 1 : rand_r(seed) % n_devices);
    p->head = (uint8_t)(style < 2 ? style : rand_r(seed) % n_devices);
    return p;
}

static uint64_t bytes_on(const struct plan *p, int d)
{
    uint64_t sum = 0;

    for (int i = 0; i < BLOCKS; i++)
        if (place(p, i) == d)
            sum += i < LAYERS ? 10 * MIB : i < LAYERS + CELLS ? 3 * MIB : 5 * MIB;
    return sum;
}

START_TEST(everything_moves_in_bounded_steps_and_back)
{
    struct residency *r;
    struct error e = {0};
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS), *cpu = plan_new("cpu", LAYERS, EXPERTS);
    int steps = 0, rc;

    memset(gpu->attention, 1, LAYERS);
    memset(gpu->experts, 1, CELLS);
    gpu->head = 1;
    for (int i = 0; i < 100; i++)
        token();
    ck_assert_int_eq(residency_new(&r, &model, devices, 2, &e), 0);
    ck_assert_int_eq(residency_want(r, gpu, &e), 0);
    ck_assert_int_eq(residency_status(r, rows.in_force).pending, BLOCKS);
    ck_assert_uint_eq(residency_status(r, rows.in_force).pending_bytes, bytes_on(gpu, 1));
    do {
        uint64_t before = residency_status(r, rows.in_force).moved_bytes, after;

        token();
        rc = residency_step(r, rows.in_force, &kv, (struct residency_budget){2 * MIB, 0}, &e);
        after = residency_status(r, rows.in_force).moved_bytes;
        ck_assert_uint_le(after - before, 2 * MIB + ROW_BYTES);
        check_consistent(rows.in_force);
        ck_assert_int_lt(++steps, 100);
    } while (rc == 0);
    ck_assert_int_eq(rc, 1);
    ck_assert_int_ge(steps, (int)(bytes_on(gpu, 1) / (2 * MIB)));
    ck_assert(plan_equal(rows.in_force, gpu));
    ck_assert_str_eq(rows.in_force->name, "gpu");
    ck_assert_uint_eq(held(1), bytes_on(gpu, 1));
    ck_assert_int_eq(residency_status(r, rows.in_force).pending, 0);
    ck_assert_int_eq(residency_step(r, rows.in_force, &kv, (struct residency_budget){1, 0}, &e), 1);
    for (int i = 0; i < 10; i++)
        token();
    ck_assert_int_eq(residency_want(r, cpu, &e), 0);
    for (steps = 0; (rc = residency_step(r, rows.in_force, &kv,
                                         (struct residency_budget){64 << 10, 0}, &e)) == 0;
         steps++) {
        check_consistent(rows.in_force);
        token();
        ck_assert_int_lt(steps, 100);
    }
    ck_assert_int_eq(rc, 1);
    ck_assert(plan_equal(rows.in_force, cpu));
    check_consistent(rows.in_force);
    ck_assert_uint_eq(held(1), 0);
    residency_free(r);
    plan_free(gpu);
    plan_free(cpu);
}
END_TEST

START_TEST(plans_may_change_at_any_step)
{
    for (unsigned seed = 1; seed <= 60; seed++) {
        struct residency *r;
        struct error e = {0};
        unsigned state = seed;
        struct plan *p = NULL, *cpu = plan_new("cpu", LAYERS, EXPERTS);

        teardown();
        setup();
        ck_assert_int_eq(residency_new(&r, &model, devices, 3, &e), 0);
        for (int i = 0; i < 120; i++) {
            token();
            if (rand_r(&state) % 6 == 0) {
                plan_free(p);
                p = random_plan(&state, 3);
                ck_assert_int_eq(residency_want(r, p, &e), 0);
            }
            ck_assert_int_ge(residency_step(r, rows.in_force, &kv,
                                            (struct residency_budget){
                                                1 + (uint64_t)rand_r(&state) % (8 * MIB), 0},
                                            &e),
                             0);
            check_consistent(rows.in_force);
        }
        while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, &e) == 0)
            check_consistent(rows.in_force);
        ck_assert(!p || plan_equal(rows.in_force, p));
        for (int d = 1; d < 3 && p; d++)
            ck_assert_uint_eq(held(d), bytes_on(p, d));
        residency_want(r, cpu, &e);
        while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, &e) == 0)
            ;
        ck_assert_uint_eq(held(1) + held(2), 0);
        residency_free(r);
        plan_free(p);
        plan_free(cpu);
    }
}
END_TEST

/* The n-th upload of device 1 refused, for every n: the text's plan stays consistent, an error is
 * told once, the rest goes on. */
START_TEST(every_upload_may_be_refused)
{
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS), *cpu = plan_new("cpu", LAYERS, EXPERTS);
    bool reached = true;

    memset(gpu->attention, 1, LAYERS);
    memset(gpu->experts, 1, CELLS);
    gpu->experts[3] = 2;
    for (int n = 0; reached; n++) {
        struct residency *r;
        int told = 0, rc = 0, kept;
        uint64_t on_1;

        teardown();
        setup();
        books[1].fail_at = n;
        for (int i = 0; i < 20; i++)
            token();
        ck_assert_int_eq(residency_new(&r, &model, devices, 3, NULL), 0);
        residency_want(r, gpu, NULL);
        for (int i = 0; i < 200 && rc != 1; i++) {
            struct error e = {0};

            token();
            rc = residency_step(r, rows.in_force, &kv, (struct residency_budget){3 * MIB, 0}, &e);
            if (rc < 0) {
                told++;
                ck_assert_int_eq(rc, ERR_DEVICE);
                ck_assert_ptr_nonnull(strstr(e.text, "book:1 did not take"));
                ck_assert_ptr_nonnull(strstr(e.text, "out of device memory"));
            }
            check_consistent(rows.in_force);
        }
        ck_assert_int_eq(rc, 1);
        reached = books[1].calls > n;
        ck_assert_int_eq(told, reached);
        ck_assert_int_eq(rows.in_force->experts[3], 2);
        kept = 0;
        for (int i = 0; i < BLOCKS; i++)
            kept += place(rows.in_force, i) == 1;
        on_1 = held(1);
        ck_assert_uint_eq(on_1, bytes_on(rows.in_force, 1));
        ck_assert(reached ? kept < LAYERS + CELLS - 1 : kept == LAYERS + CELLS - 1);
        /* asked again, it is given another chance */
        residency_want(r, gpu, NULL);
        while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
            ;
        ck_assert(plan_equal(rows.in_force, gpu));
        residency_want(r, cpu, NULL);
        while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
            ;
        ck_assert_uint_eq(held(1) + held(2), 0);
        residency_free(r);
        ck_assert_int_lt(n, 200);
    }
    plan_free(gpu);
    plan_free(cpu);
}
END_TEST

START_TEST(every_row_copy_may_fail)
{
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS), *cpu = plan_new("cpu", LAYERS, EXPERTS);
    bool reached = true;

    memset(gpu->attention, 1, LAYERS);
    for (int n = 0; reached; n++) {
        struct residency *r;
        int failures = 0;

        teardown();
        setup();
        rows.fail_at = n;
        for (int i = 0; i < 2000; i++)
            token();
        ck_assert_int_eq(residency_new(&r, &model, devices, 3, NULL), 0);
        for (int way = 0; way < 2; way++) {
            residency_want(r, way ? cpu : gpu, NULL);
            for (int i = 0; i < 400; i++) {
                int rc = residency_step(r, rows.in_force, &kv, (struct residency_budget){MIB, 0},
                                        NULL);

                failures += rc < 0;
                check_consistent(rows.in_force);
                token();
            }
        }
        ck_assert_int_le(failures, 1);
        reached = rows.steps > n;
        residency_free(r);
        ck_assert_uint_eq(held(1), 0);
    }
    plan_free(gpu);
    plan_free(cpu);
}
END_TEST

START_TEST(a_lost_device_is_left_at_once_and_for_good)
{
    struct residency *r;
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS);

    memset(gpu->experts, 1, CELLS);
    gpu->experts[0] = 2;
    residency_new(&r, &model, devices, 3, NULL);
    residency_want(r, gpu, NULL);
    for (int i = 0; i < 4; i++)
        residency_step(r, rows.in_force, &kv, (struct residency_budget){5 * MIB, 0}, NULL);
    residency_lost(r, rows.in_force, 1);
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_ne(place(rows.in_force, i), 1);
    while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
        ;
    ck_assert_int_eq(rows.in_force->experts[0], 2);
    residency_want(r, gpu, NULL);
    while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
        ;
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_ne(place(rows.in_force, i), 1);
    residency_free(r);
    plan_free(gpu);
}
END_TEST

START_TEST(rows_already_there_are_not_moved_again)
{
    struct residency *r;
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS), *cpu = plan_new("cpu", LAYERS, EXPERTS);
    uint64_t out, back;

    memset(gpu->attention, 1, LAYERS);
    for (int i = 0; i < 500; i++)
        token();
    residency_new(&r, &model, devices, 2, NULL);
    residency_want(r, gpu, NULL);
    while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
        ;
    out = residency_status(r, rows.in_force).moved_bytes;
    ck_assert_uint_eq(out, LAYERS * (10 * MIB + 500 * ROW_BYTES));
    for (int i = 0; i < 3; i++)
        token();
    residency_want(r, cpu, NULL);
    while (residency_step(r, rows.in_force, &kv, (struct residency_budget){0}, NULL) == 0)
        ;
    back = residency_status(r, rows.in_force).moved_bytes - out;
    ck_assert_uint_eq(back, LAYERS * 3 * ROW_BYTES);
    residency_free(r);
    plan_free(gpu);
    plan_free(cpu);
}
END_TEST

START_TEST(where_memory_is_shared_only_time_bounds)
{
    struct residency *r;
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS);

    memset(gpu->experts, 1, CELLS);
    books[1].base.info.unified = true;
    residency_new(&r, &model, devices, 2, NULL);
    residency_want(r, gpu, NULL);
    /* a nanosecond: one piece */
    ck_assert_int_eq(residency_step(r, rows.in_force, &kv, (struct residency_budget){0, 1}, NULL),
                     0);
    ck_assert_int_eq(residency_status(r, rows.in_force).pending, CELLS - 1);
    residency_free(r);
    plan_free(gpu);
}
END_TEST

START_TEST(support_is_asked_for_every_matrix)
{
    struct block_id attention = {BLOCK_ATTENTION, 1, 0}, expert = {BLOCK_EXPERT, 1, 2},
                    head = {BLOCK_HEAD, 0, 0};

    ck_assert(residency_supports(devices[1], &model, attention));
    layers[1].v.type = DTYPE_F16;
    ck_assert(!residency_supports(devices[1], &model, attention));
    layers[1].v.type = 0;
    ck_assert(residency_supports(devices[1], &model, expert));
    experts[1][2].down.type = DTYPE_F16;
    ck_assert(!residency_supports(devices[1], &model, expert));
    experts[1][2].down.type = 0;
    model.head.type = DTYPE_F16;
    ck_assert(residency_supports(devices[1], &model, head));
    /* what the layer is counts, too */
    model.hp.common.mixer.sinks = true;
    ck_assert(!residency_supports(devices[1], &model, attention));
    ck_assert(residency_supports(devices[1], &model, expert));
}
END_TEST

START_TEST(no_memory_changes_nothing)
{
    struct residency *r;
    struct error e = {0};
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS);

    gpu->head = 1;
    for (long n = 0; n < 4; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(residency_new(&r, &model, devices, 2, &e), ERR_MEMORY);
        ck_assert_ptr_null(r);
    }
    mem_fail_after(-1);
    ck_assert_int_eq(residency_new(&r, &model, devices, 2, &e), 0);
    mem_fail_after(0);
    ck_assert_int_eq(residency_want(r, gpu, &e), ERR_MEMORY);
    mem_fail_after(-1);
    ck_assert_int_eq(residency_wanted(r)->head, 0);
    residency_free(r);
    residency_free(NULL);
    plan_free(gpu);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("residency");
    TCase *t = tcase_create("residency");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, everything_moves_in_bounded_steps_and_back);
    tcase_add_test(t, plans_may_change_at_any_step);
    tcase_add_test(t, every_upload_may_be_refused);
    tcase_add_test(t, every_row_copy_may_fail);
    tcase_add_test(t, a_lost_device_is_left_at_once_and_for_good);
    tcase_add_test(t, rows_already_there_are_not_moved_again);
    tcase_add_test(t, where_memory_is_shared_only_time_bounds);
    tcase_add_test(t, support_is_asked_for_every_matrix);
    tcase_add_test(t, no_memory_changes_nothing);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
