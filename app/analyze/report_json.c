/* See report.h: the JSON. Its keys are stable: names are added, never changed. */
#include "app/analyze/report.h"

#include <stdio.h>
#include <string.h>

static void put_int(json_t *o, const char *key, uint64_t v)
{
    json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *parts_json(const uint64_t parts[ANALYSIS_PART_COUNT])
{
    json_t *o = json_object();

    for (int p = 0; p < ANALYSIS_PART_COUNT; p++)
        if (parts[p])
            put_int(o, analysis_part_name((enum analysis_part)p), parts[p]);
    return o;
}

static json_t *parameters_json(const struct analysis_count *c)
{
    json_t *o = json_object(), *active = parts_json(c->active_parts);

    if (c->tied_head)
        put_int(active, "head (tied)", c->tied_head);
    put_int(o, "total", c->total);
    json_object_set_new(o, "by_part", parts_json(c->parts));
    put_int(o, "active_per_token", c->active);
    json_object_set_new(o, "active_by_part", active);
    json_object_set_new(o, "expert_share",
                        json_real(c->total ? (double)c->parts[ANALYSIS_EXPERTS] / (double)c->total
                                           : 0.0));
    put_int(o, "one_expert_all_layers",
            c->experts ? c->parts[ANALYSIS_EXPERTS] / (uint64_t)c->experts : 0);
    put_int(o, "one_expert_one_layer", c->one_expert);
    put_int(o, "experts", (uint64_t)c->experts);
    put_int(o, "experts_per_token", (uint64_t)c->used);
    return o;
}

static json_t *types_json(const struct analysis_count *c)
{
    json_t *o = json_object();

    for (int t = 0; t < DTYPE_COUNT; t++)
        if (c->type_bytes[t])
            put_int(o, dtype_info((enum dtype)t)->word, c->type_bytes[t]);
    return o;
}

static json_t *flops_json(const struct analysis *a)
{
    json_t *o = json_object(), *attention = json_object();
    int at[] = {1, 1024, a->context};
    char key[16];

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        snprintf(key, sizeof key, "%d", at[i]);
        put_int(attention, key, (uint64_t)analysis_attention_flops(&a->model->hp, at[i]));
    }
    put_int(o, "matrices", (uint64_t)analysis_matrix_flops(&a->count));
    json_object_set_new(o, "attention_at_context", attention);
    return o;
}

static json_t *kv_json(const struct analysis *a)
{
    const struct hparams *hp = &a->model->hp;
    json_t *o = json_object();
    uint64_t token = analysis_kv_token(hp);

    put_int(o, "per_token_f16", token);
    put_int(o, "per_token_f32", 2 * token);
    put_int(o, "at_context_f16", token * (uint64_t)a->context);
    put_int(o, "at_context_windows_f16", analysis_kv_bytes(hp, a->context));
    put_int(o, "context", (uint64_t)a->context);
    put_int(o, "context_trained", (uint64_t)hp->context_max);
    return o;
}

static json_t *by_dtype(const struct analysis_count *c,
                        uint64_t (*value)(const struct analysis_count *c, int dtype))
{
    json_t *o = json_object();

    for (int t = 0; t < ANALYSIS_DTYPES; t++)
        put_int(o, analysis_dtypes[t].name, value(c, t));
    return o;
}

static json_t *intensity_json(const struct analysis_count *c)
{
    json_t *o = json_object();

    for (int t = 0; t < ANALYSIS_DTYPES; t++)
        json_object_set_new(o, analysis_dtypes[t].name,
                            json_real(analysis_matrix_flops(c) /
                                      (double)analysis_token_bytes(c, t)));
    return o;
}

static json_t *plans_json(const struct analysis_machine *m)
{
    json_t *list = json_array();

    for (int i = 0; i < m->n_plans; i++) {
        const struct analysis_plan *p = &m->plans[i];

        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:b, s:s}", "place", p->spec, "device_bytes",
                                        (json_int_t)p->bytes, "fits", p->fits, "note", p->note));
    }
    return list;
}

static json_t *machine_json(const struct analysis_machine *m)
{
    json_t *o = json_object();

    put_int(o, "threads", (uint64_t)m->threads);
    json_object_set_new(o, "memory_bytes_per_second", json_real(m->bandwidth));
    json_object_set_new(o, "available_bytes",
                        m->available == UINT64_MAX ? json_null()
                                                   : json_integer((json_int_t)m->available));
    if (m->why.code) {
        json_object_set_new(o, "error", json_string(m->why.text));
        return o;
    }
    put_int(o, "needed_bytes", fit_needed(&m->fit));
    json_object_set_new(o, "fits", json_boolean(fit_fits(&m->fit)));
    put_int(o, "bytes_per_token", m->token_bytes);
    put_int(o, "tokens_before", ANALYSIS_DEPTH);
    json_object_set_new(o, "tokens_per_second", m->rate > 0 ? json_real(m->rate) : json_null());
    json_object_set_new(o, "in_cache", json_boolean(m->in_cache));
    json_object_set_new(o, "device", m->device[0] ? json_string(m->device) : json_null());
    put_int(o, "device_memory_bytes", m->device_memory);
    json_object_set_new(o, "plans", plans_json(m));
    return o;
}

static json_t *hints_json(const struct analysis_hints *h)
{
    json_t *list = json_array();

    for (int i = 0; i < h->n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "key", h->at[i].key, "text", h->at[i].text));
    return list;
}

json_t *analysis_json(const struct analysis *a)
{
    const struct model *m = a->model;

    return json_pack(
        "{s:{s:s, s:s, s:i, s:i, s:i}, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model",
        "name", m->name, "family", m->family, "layers", m->hp.n_layers, "hidden", m->hp.hidden,
        "vocabulary", m->hp.n_vocab, "parameters", parameters_json(&a->count),
        "file_bytes_of_tensors", (json_int_t)a->count.file_bytes, "bytes_by_type",
        types_json(&a->count), "flops_per_token", flops_json(a), "weight_bytes_per_decoded_token",
        by_dtype(&a->count, analysis_token_bytes), "flops_per_byte", intensity_json(&a->count),
        "kv_bytes", kv_json(a), "memory_of_weights", by_dtype(&a->count, analysis_memory),
        "machine", machine_json(&a->machine), "hints", hints_json(&a->hints));
}

json_t *analysis_tensors_json(const struct analysis_by_tensors *by, const char *why)
{
    const struct analysis_count *c = &by->count;

    return json_pack("{s:{s:s, s:s, s:i}, s:s, s:o, s:{s:i, s:I, s:s}, s:I, s:o, s:o, s:o}",
                     "model", "name", by->name, "architecture", by->architecture, "layers",
                     by->layers, "error", why, "parameters", parameters_json(c), "unknown_tensors",
                     "tensors", by->strange, "values", (json_int_t)by->strange_values, "first",
                     by->strange_name, "file_bytes_of_tensors", (json_int_t)c->file_bytes,
                     "bytes_by_type", types_json(c), "weight_bytes_per_decoded_token",
                     by_dtype(c, analysis_token_bytes), "memory_of_weights",
                     by_dtype(c, analysis_memory));
}
