/* See engine_state.h. */
#include "app/common/engine_state.h"

#include "engine/base/utf8.h"
#include "engine/placement/plan.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CELLS_MOST (1 << 20)
#define SMALL_MOST 255 /* devices and slots of a routing are bytes */

enum kind { WHOLE, COUNT, REAL, YES, TEXT }; /* int, uint64_t, double, bool, char[] */

struct member {
    const char *name;
    enum kind kind;
    size_t offset, size;
};

#define MEMBER(of, kind, member)                                                        \
    {                                                                                   \
#member, kind, offsetof(struct of, member), sizeof(((struct of *)NULL)->member) \
    }

static const struct member engine[] = {
    MEMBER(telemetry, COUNT, weights_packed),
    MEMBER(telemetry, COUNT, weights_mapped),
    MEMBER(telemetry, COUNT, kv_bytes),
    MEMBER(telemetry, COUNT, scratch_bytes),
    MEMBER(telemetry, COUNT, kv_used_bytes),
    MEMBER(telemetry, COUNT, token_weight_bytes),
    MEMBER(telemetry, COUNT, token_kv_bytes),
    MEMBER(telemetry, COUNT, adapter_bytes),
    MEMBER(telemetry, COUNT, control_bytes),
    MEMBER(telemetry, REAL, disk_rate),
    MEMBER(telemetry, REAL, disk_hits),
    MEMBER(telemetry, REAL, disk_share),
    MEMBER(telemetry, WHOLE, disk.slots),
    MEMBER(telemetry, WHOLE, disk.here),
    MEMBER(telemetry, WHOLE, disk.experts),
    MEMBER(telemetry, COUNT, disk.bytes),
    MEMBER(telemetry, COUNT, disk.hits),
    MEMBER(telemetry, COUNT, disk.misses),
    MEMBER(telemetry, COUNT, disk.read_bytes),
    MEMBER(telemetry, COUNT, disk.read_ns),
    MEMBER(telemetry, COUNT, disk.wait_ns),
    MEMBER(telemetry, TEXT, plan),
    MEMBER(telemetry, TEXT, prompt_plan),
    MEMBER(telemetry, WHOLE, phase),
    MEMBER(telemetry, COUNT, handover_ns),
    MEMBER(telemetry, COUNT, handover_bytes),
    MEMBER(telemetry, COUNT, at_once.pieces),
    MEMBER(telemetry, COUNT, at_once.rows),
    MEMBER(telemetry, COUNT, at_once.tokens),
    MEMBER(telemetry, COUNT, at_once.ns),
    MEMBER(telemetry, COUNT, at_once.turns_ns),
    MEMBER(telemetry, TEXT, cpu_only),
    MEMBER(telemetry, WHOLE, moves_pending),
    MEMBER(telemetry, COUNT, moves_pending_bytes),
    MEMBER(telemetry, COUNT, moved_bytes),
    MEMBER(telemetry, COUNT, stall_ns),
    MEMBER(telemetry, COUNT, stall_token_ns),
    MEMBER(telemetry, TEXT, stall_plan),
    MEMBER(telemetry, YES, bandwidth_on),
    MEMBER(telemetry, COUNT, bandwidth_taken),
    MEMBER(telemetry, COUNT, bandwidth_waited_ns),
    MEMBER(telemetry, WHOLE, audit),
};

static const struct member device[] = {
    MEMBER(device_stats, COUNT, weight_bytes),   MEMBER(device_stats, COUNT, kv_bytes),
    MEMBER(device_stats, COUNT, scratch_bytes),  MEMBER(device_stats, COUNT, staging_bytes),
    MEMBER(device_stats, COUNT, kv_used_bytes),  MEMBER(device_stats, COUNT, shared_bytes),
    MEMBER(device_stats, COUNT, uploaded_bytes), MEMBER(device_stats, COUNT, downloaded_bytes),
    MEMBER(device_stats, COUNT, busy_ns),        MEMBER(device_stats, COUNT, wait_ns),
    MEMBER(device_stats, COUNT, transfer_ns),    MEMBER(device_stats, COUNT, jobs),
    MEMBER(device_stats, COUNT, failures),       MEMBER(device_stats, COUNT, stream_bytes),
    MEMBER(device_stats, COUNT, streamed_bytes), MEMBER(device_stats, COUNT, streamed),
    MEMBER(device_stats, COUNT, prefetched),     MEMBER(device_stats, COUNT, prefetch_hits),
    MEMBER(device_stats, COUNT, fast_threads),   MEMBER(device_stats, COUNT, slow_threads),
    MEMBER(device_stats, COUNT, slow_share),     MEMBER(device_stats, COUNT, row_bytes),
    MEMBER(device_stats, COUNT, waits),          MEMBER(device_stats, COUNT, replayed),
    MEMBER(device_stats, COUNT, recorded),
};

static const struct member health[] = {
    MEMBER(device_health, COUNT, inexact), MEMBER(device_health, COUNT, audited),
    MEMBER(device_health, COUNT, missed),  MEMBER(device_health, COUNT, audit_ns),
    MEMBER(device_health, COUNT, jobs),    MEMBER(device_health, WHOLE, returned),
    MEMBER(device_health, WHOLE, trouble), MEMBER(device_health, TEXT, why),
};

static const struct member plan[] = {
    MEMBER(plan_metrics, TEXT, name),           MEMBER(plan_metrics, COUNT, tokens),
    MEMBER(plan_metrics, COUNT, decode_ns),     MEMBER(plan_metrics, REAL, mean_tok_s),
    MEMBER(plan_metrics, REAL, median_tok_s),   MEMBER(plan_metrics, REAL, sd_tok_s),
    MEMBER(plan_metrics, REAL, q1_tok_s),       MEMBER(plan_metrics, REAL, q3_tok_s),
    MEMBER(plan_metrics, COUNT, ttft_ns),       MEMBER(plan_metrics, COUNT, wait_ns),
    MEMBER(plan_metrics, COUNT, transfer_ns),   MEMBER(plan_metrics, COUNT, switches),
    MEMBER(plan_metrics, COUNT, switch_tokens), MEMBER(plan_metrics, COUNT, stall_ns),
    MEMBER(plan_metrics, COUNT, stall_sum_ns),  MEMBER(plan_metrics, COUNT, prompt_tokens),
    MEMBER(plan_metrics, COUNT, prompt_ns),     MEMBER(plan_metrics, REAL, prompt_tok_s),
    MEMBER(plan_metrics, REAL, expected_tok_s), MEMBER(plan_metrics, REAL, expected_prompt_tok_s),
};

#define N(table) (sizeof table / sizeof *table)

/* ---- members ---- */

static json_t *member_json(const void *at, const struct member *m)
{
    const void *v = (const char *)at + m->offset;
    double x;

    switch (m->kind) {
    case WHOLE: return json_integer(*(const int *)v);
    case COUNT: return json_integer((json_int_t) * (const uint64_t *)v);
    case REAL: x = *(const double *)v; return json_real(isfinite(x) ? x : 0);
    case YES: return json_boolean(*(const bool *)v);
    case TEXT: return json_string(v); /* our own texts: ASCII */
    }
    return NULL;
}

static json_t *members_json(const void *at, const struct member *table, size_t n)
{
    json_t *o = json_object();

    for (size_t i = 0; i < n; i++)
        json_object_set_new(o, table[i].name, member_json(at, &table[i]));
    return o;
}

static void member_read(void *at, const struct member *m, const json_t *o)
{
    const json_t *v = json_object_get(o, m->name);
    void *to = (char *)at + m->offset;
    json_int_t n = json_integer_value(v);
    const char *text = json_string_value(v);

    switch (m->kind) {
    case WHOLE: *(int *)to = n < 0 || n > CELLS_MOST ? 0 : (int)n; break;
    case COUNT: *(uint64_t *)to = n < 0 ? 0 : (uint64_t)n; break;
    case REAL: *(double *)to = isfinite(json_number_value(v)) ? json_number_value(v) : 0; break;
    case YES: *(bool *)to = json_is_true(v); break;
    case TEXT: utf8_escape(to, m->size, text ? text : "", text ? strlen(text) : 0, 0); break;
    }
}

static void members_read(void *at, const struct member *table, size_t n, const json_t *o)
{
    for (size_t i = 0; i < n; i++)
        member_read(at, &table[i], o);
}

/* ---- experts: the numbers of all arrays, concatenated ---- */

enum cell { CELL_COUNT, CELL_SHARE, CELL_SMALL };

#define SHARE 1000.0 /* decaying shares are sent in thousandths */

static const struct {
    const char *name;
    enum cell cell;
    size_t offset;
} cells[] = {
    {"answer", CELL_COUNT, offsetof(struct telemetry, answer)},
    {"session", CELL_COUNT, offsetof(struct telemetry, session)},
    {"now", CELL_SHARE, offsetof(struct telemetry, now)},
    {"ran_on", CELL_SMALL, offsetof(struct telemetry, ran_on)},
    {"planned", CELL_SMALL, offsetof(struct telemetry, planned)},
    {"here", CELL_SMALL, offsetof(struct telemetry, here)},
    {"newest", CELL_SMALL, offsetof(struct telemetry, newest)},
};

static void *array_of(const struct telemetry *t, size_t i)
{
    void *array;

    memcpy(&array, (const char *)t + cells[i].offset, sizeof array);
    return array;
}

static json_int_t cell_value(const void *array, enum cell kind, int i)
{
    return kind == CELL_COUNT   ? (json_int_t)((const uint32_t *)array)[i]
           : kind == CELL_SHARE ? (json_int_t)lrint((double)((const float *)array)[i] * SHARE)
                                : (json_int_t)((const uint8_t *)array)[i];
}

static json_t *cells_json(const struct telemetry *t, size_t k)
{
    json_t *list = json_array();

    for (int i = 0; i < t->n_layers * t->n_experts; i++)
        json_array_append_new(list, json_integer(cell_value(array_of(t, k), cells[k].cell, i)));
    return list;
}

static void cell_read(void *array, enum cell kind, int i, json_int_t v)
{
    v = v < 0 ? 0 : v;
    switch (kind) {
    case CELL_COUNT: ((uint32_t *)array)[i] = (uint32_t)(v > UINT32_MAX ? UINT32_MAX : v); break;
    case CELL_SHARE: ((float *)array)[i] = (float)((double)v / SHARE); break;
    case CELL_SMALL: ((uint8_t *)array)[i] = (uint8_t)(v > SMALL_MOST ? SMALL_MOST : v); break;
    }
}

/* Ignores devices that do not exist, and unused slots of the routing. */
static void check_cells(struct telemetry *t)
{
    for (int i = 0; i < t->n_layers * t->n_experts; i++) {
        if (t->newest[i] > t->n_experts_used)
            t->newest[i] = 0;
        if (t->planned[i] >= DEVICE_MAX)
            t->planned[i] = 0;
        if (t->ran_on[i] >= DEVICE_MAX)
            t->ran_on[i] = PLAN_NO_DEVICE;
    }
}

static int bad(struct error *e, const char *what)
{
    return error_set(e, ERR_INPUT, "the server's state: %s is wrong", what);
}

/* Allocates the arrays for these sizes. */
static int shape(struct telemetry *t, int layers, int experts, int used)
{
    if (t->n_layers == layers && t->n_experts == experts && t->n_experts_used == used)
        return 0;
    telemetry_release(t);
    return telemetry_init(t, layers, experts, used);
}

static int experts_read(struct telemetry *t, const json_t *o, struct error *e)
{
    json_int_t layers = json_integer_value(json_object_get(o, "layers")),
               experts = json_integer_value(json_object_get(o, "experts")),
               used = json_integer_value(json_object_get(o, "experts_used"));
    const json_t *lists = json_object_get(o, "cells"), *routed = json_object_get(o, "routed"),
                 *blocks = json_object_get(o, "blocks");

    if (layers < 1 || layers > TELEMETRY_LAYERS || experts < 1 || experts > CELLS_MOST ||
        used < 1 || used > experts || used > SMALL_MOST || layers * experts > CELLS_MOST)
        return bad(e, "the number of layers or experts");
    if (json_array_size(routed) != (size_t)layers || json_array_size(blocks) != (size_t)layers)
        return bad(e, "the list of layers");
    for (size_t k = 0; k < N(cells); k++)
        if (json_array_size(json_object_get(lists, cells[k].name)) != (size_t)(layers * experts))
            return bad(e, cells[k].name);
    if (shape(t, (int)layers, (int)experts, (int)used) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the server's state");
    for (size_t l = 0; l < (size_t)layers; l++) {
        json_int_t n = json_integer_value(json_array_get(blocks, l)),
                   r = json_integer_value(json_array_get(routed, l));

        t->blocks[l] = (uint16_t)(n == TELEMETRY_MIXER || (n >= 0 && n <= experts) ? n : 0);
        t->routed[l] = (uint16_t)(r >= 0 && r <= experts ? r : 0);
    }
    for (size_t k = 0; k < N(cells); k++)
        for (size_t i = 0; i < (size_t)(layers * experts); i++)
            cell_read(array_of(t, k), cells[k].cell, (int)i,
                      json_integer_value(json_array_get(json_object_get(lists, cells[k].name), i)));
    check_cells(t);
    return 0;
}

/* ---- the whole object ---- */

static json_t *list_json(const void *first, int n, size_t size, const struct member *table,
                         size_t n_table)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              members_json((const char *)first + (size_t)i * size, table, n_table));
    return list;
}

static int list_read(void *first, int most, size_t size, const struct member *table, size_t n_table,
                     const json_t *list)
{
    int n = json_array_size(list) < (size_t)most ? (int)json_array_size(list) : most;

    for (int i = 0; i < n; i++)
        members_read((char *)first + (size_t)i * size, table, n_table,
                     json_array_get(list, (size_t)i));
    return n;
}

json_t *engine_state_json(const struct telemetry *t)
{
    json_t *o = members_json(t, engine, N(engine)), *routed = json_array(), *blocks = json_array(),
           *lists = json_object();

    for (int l = 0; l < t->n_layers && l < TELEMETRY_LAYERS; l++) {
        json_array_append_new(routed, json_integer(t->routed[l]));
        json_array_append_new(blocks, json_integer(t->blocks[l]));
    }
    for (size_t k = 0; k < N(cells); k++)
        json_object_set_new(lists, cells[k].name, cells_json(t, k));
    json_object_set_new(o, "devices",
                        list_json(t->devices, t->n_devices, sizeof *t->devices, device, N(device)));
    json_object_set_new(o, "health",
                        list_json(t->health, t->n_devices, sizeof *t->health, health, N(health)));
    json_object_set_new(o, "plans",
                        list_json(t->plans, t->n_plans, sizeof *t->plans, plan, N(plan)));
    json_object_set_new(o, "layers", json_integer(t->n_layers));
    json_object_set_new(o, "experts", json_integer(t->n_experts));
    json_object_set_new(o, "experts_used", json_integer(t->n_experts_used));
    json_object_set_new(o, "routed", routed);
    json_object_set_new(o, "blocks", blocks);
    json_object_set_new(o, "cells", lists);
    return o;
}

int engine_state_read(struct telemetry *t, const json_t *o, struct error *e)
{
    int rc = json_is_object(o) ? experts_read(t, o, e) : bad(e, "its form");

    if (rc < 0)
        return rc;
    members_read(t, engine, N(engine), o);
    t->n_devices = list_read(t->devices, DEVICE_MAX, sizeof *t->devices, device, N(device),
                             json_object_get(o, "devices"));
    list_read(t->health, DEVICE_MAX, sizeof *t->health, health, N(health),
              json_object_get(o, "health"));
    for (int d = 0; d < DEVICE_MAX; d++)
        if ((int)t->health[d].trouble < 0 || t->health[d].trouble > TROUBLE_WRONG)
            t->health[d].trouble = TROUBLE_NONE;
    t->n_plans = list_read(t->plans, TELEMETRY_PLANS, sizeof *t->plans, plan, N(plan),
                           json_object_get(o, "plans"));
    t->serial++;
    return 0;
}

int engine_state_copy(struct telemetry *to, const struct telemetry *from)
{
    int rc = shape(to, from->n_layers, from->n_experts, from->n_experts_used);

    if (rc == 0)
        telemetry_copy(to, from);
    return rc;
}
